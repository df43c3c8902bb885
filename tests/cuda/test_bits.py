"""Operations on the bits of integers in generated CUDA, emulated and compiled."""

from pathlib import Path
from typing import Any

from opsgen.compiler.problem import enumerate_problems
from opsgen.dsl import Op
from tests import bits
from tests.cuda import emulated
from tests.cuda.test_compile import check_resources


def test_emulated(tmp_path: Path) -> None:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        lib = emulated.compile(bits.OPS, tmp_path)

        def call(op: Op, given: dict[str, Any]) -> dict[str, Any]:
            found = lib[op.name](**given)
            return found._asdict() if isinstance(found, tuple) else {"out": found}

        bits.check_bits(call)


def test_compiles() -> None:
    check_resources(enumerate_problems(bits.OPS, ["float32"], {}), "sm_90a")
