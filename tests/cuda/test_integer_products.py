"""Products of integers, and linear layers of int8 and float8, in generated CUDA."""

from pathlib import Path

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.plan import make_plan
from opsgen.ops import fp8_linear, int8_linear
from opsgen.targets.cuda import codegen
from opsgen.targets.names import parse
from tests import integer_products
from tests.cuda import cases, emulated
from tests.cuda.test_compile import check_resources, enumerate_problems

LINEAR = [
    og.variant(int8_linear, absent=[], out_dtype="float32"),
    og.variant(int8_linear, absent=["bias", "x_scale"], out_dtype="bfloat16"),
    og.variant(fp8_linear, absent=["scale"], dtype={"weight": "float8_e5m2"}),
    og.variant(fp8_linear, absent=["x_scale", "weight_scale", "bias"]),
]


def test_products(tmp_path: Path) -> None:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        # Rows of 16 bytes go to dp4a, with tails of rows, columns and steps.
        more = ((9, 1, 16), (130, 140, 48), (70, 257, 272), (64, 0, 32))
        integer_products.check_products(
            emulated.compile(integer_products.OPS, tmp_path), (*integer_products.SIZES, *more)
        )


def test_what_dp4a_multiplies() -> None:
    found = {}
    for problem in enumerate_problems([*integer_products.OPS, LINEAR[0], LINEAR[2]], ["float32"], {}):
        plan = make_plan(problem, parse(["cuda/sm_80"])[0])
        found[problem.op.name] = plan.steps[-1].schedule.name
        text = "".join(codegen.sources({x.name: x.function for x in plan.launches}, "sm_80").values())
        kinds = {"int_mm": "ss", "unsigned_mm": "uu", "int8_linear": "ss"}.get(problem.op.name)
        assert ("opsgen_dp4a" in text) == (kinds is not None)
        assert kinds is None or f"opsgen_dp4a_{kinds}(" in text
    assert found == {
        "int_mm": "cuda.dp4a", "mixed_mm": "cuda.contraction", "wide_mm": "cuda.row_reduction",
        "unsigned_mm": "cuda.dp4a", "int_mv": "cuda.row_reduction", "int8_linear": "cuda.dp4a",
        "fp8_linear": "cuda.contraction",
    }  # fmt: skip


def test_linear_layers(tmp_path: Path) -> None:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        lib = emulated.compile(LINEAR, tmp_path)
        for item in LINEAR:
            kinds = item.dtype if isinstance(item.dtype, dict) else {}
            for m, k, n in ((1, 16, 5), (9, 65, 67), (70, 33, 129)):
                dims = {"in_features": k, "out_features": n}
                given = cases.arrays.arguments(item.op, item.absent or frozenset(), (m,), dims, "float32")
                for name, kind in kinds.items():
                    given[name] = given[name].astype(cases.arrays.numpy_dtype(kind))
                cases.check(lib, item.op, {**given, **item.attributes})
    assert np.isfinite(given["x"].astype(np.float32)).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_compile_without_spills(arch: str) -> None:
    check_resources(
        enumerate_problems([*integer_products.OPS[:2], integer_products.unsigned_mm, *LINEAR[:3:2]], ["float32"], {}),
        arch,
    )
