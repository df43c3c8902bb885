"""Products of integers on x86, which are exact; packed weights too."""

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import enumerate_problems
from opsgen.runtime.host import host_levels
from opsgen.targets.names import parse
from tests import integer_products


@pytest.mark.parametrize("arch", ["avx2", "avx512"])
def test_products(arch: str) -> None:
    if arch not in host_levels():
        pytest.skip(f"this CPU has no {arch}")
    lib = og.compile(integer_products.OPS, target=f"x86/{arch}")
    integer_products.check_products(lib, (*integer_products.SIZES, (300, 70, 64)))
    w = np.arange(-64, 64, dtype=np.int8).reshape(4, 32)
    x = np.arange(64, dtype=np.int8).reshape(2, 32)
    np.testing.assert_array_equal(lib.int_mm(x, lib.pack("int_mm.w", w)), lib.int_mm(x, w))


def test_which_products_are_contractions() -> None:
    found = {}
    for problem in enumerate_problems(integer_products.OPS, ["float32"], {}):
        plan = make_plan(problem, parse("x86/avx2")[0])
        found[problem.op.name] = [g.pattern for g in plan.partition.groups]
    assert found == {
        "int_mm": ["contraction"], "mixed_mm": ["contraction"], "wide_mm": ["row_reduction"],
        "unsigned_mm": ["contraction"],
        "int_mv": ["row_reduction"],
    }  # fmt: skip
