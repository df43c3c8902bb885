"""Operations on the bits of integers: in numpy, and on x86."""

from typing import Any

import pytest

import opsgen as og
from opsgen.dsl import Op
from opsgen.runtime.host import host_levels
from tests import bits


def test_numpy() -> None:
    def call(op: Op, given: dict[str, Any]) -> dict[str, Any]:
        found = op.evaluate(**given)
        return found if isinstance(found, dict) else {"out": found}

    bits.check_bits(call)


@pytest.mark.parametrize("arch", ["avx2", "avx512"])
def test_compiled(arch: str) -> None:
    if arch not in host_levels():
        pytest.skip(f"this CPU has no {arch}")
    lib = og.compile(bits.OPS, target=f"x86/{arch}")

    def call(op: Op, given: dict[str, Any]) -> dict[str, Any]:
        found = lib[op.name](**given)
        return found._asdict() if isinstance(found, tuple) else {"out": found}

    bits.check_bits(call)
