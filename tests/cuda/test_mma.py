"""Contractions by mma.sync: what is served, how kernels fit each architecture, and what they compute (emulated)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.plan import Plan, make_plan
from opsgen.compiler.problem import Variant, enumerate_problems, variant
from opsgen.dsl.op import Op
from opsgen.ops.linear import linear
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.cuda import exact_halves, mma
from opsgen.targets.cuda import ARCHS, codegen
from opsgen.targets.names import parse
from tests import arrays
from tests.cuda import cases, emulated

SIZES = ((64, 64, 32), (65, 72, 40), (70, 130, 64), (130, 64, 521), (9, 33, 1), (17, 8, 0), (20, 72, 24), (1, 1, 7))
"""Rows, columns, steps of the sum: around tiles and pieces of 16 bytes, and nothing to sum."""


@og.op
def times(x: og.Tensor["rows", "inner"], w: og.Tensor["inner", "columns"]):
    """y = x · w"""
    return og.dot(x, w, over="inner")


@og.op
def gradient(x: og.Tensor["inner", "rows"], w: og.Tensor["inner", "columns"]):
    """y = xᵀ · w"""
    return og.dot(x, w, over="inner")


@og.op
def masked(
    x: og.Tensor["batch", "rows", "inner"],
    mask: og.Tensor["batch", "rows", "inner"],
    w: og.Tensor["batch", "columns", "inner"],
    b: og.Tensor["columns"],
):
    """y = where(mask > 0, x, 0) · wᵀ + b: operands that are halves."""
    return og.dot(og.where(mask > 0.0, x, 0.0), w, over="inner") + b


@og.op
def normed(
    x: og.Tensor["rows", "inner"],
    scale: og.Tensor["rows"],
    gain: og.Tensor["inner"],
    w: og.Tensor["inner", "columns"],
):
    """y = (x scale gain) · e^w: operands that are float32."""
    return og.dot(x * scale * gain, og.exp(w), over="inner")


@og.op
def quantised(x: og.Tensor["rows", "inner"], w: og.Tensor["columns", "inner", og.int8], scale: og.Tensor["columns"]):
    """y = x · (w scale)ᵀ: each column has its scale, on the result."""
    return og.dot(x, og.cast(w, x.dtype), over="inner") * scale


@og.op
def gathered(ids: og.Tensor["rows", og.int64], table: og.Tensor["words", "inner"], w: og.Tensor["columns", "inner"]):
    """y = table[ids] · wᵀ"""
    return og.dot(table.at(words=ids), w, over="inner")


@og.op
def several(x: og.Tensor["rows", "heads", "inner"], w: og.Tensor["columns", "heads", "inner"]):
    """A sum over two dims, and two results of it."""
    y = og.dot(x, w, over=["heads", "inner"])
    return og.results(y=y, z=og.cast(og.tanh(y), og.float32))


def arguments(op: Op, m: int, n: int, k: int, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    def r(*shape: int) -> Any:
        return arrays.values(rng, shape, dtype)

    made: dict[str, Callable[[], dict[str, Any]]] = {
        "times": lambda: {"x": r(m, k), "w": r(k, n)},
        "gradient": lambda: {"x": r(k, m), "w": r(k, n)},
        "masked": lambda: {"x": r(2, m, k), "mask": r(2, m, k), "w": r(2, n, k), "b": r(n)},
        "normed": lambda: {"x": r(m, k), "scale": r(m), "gain": r(k), "w": r(k, n)},
        "quantised": lambda: {"x": r(m, k), "w": rng.integers(-128, 128, (n, k)).astype(np.int8), "scale": r(n)},
        "gathered": lambda: {"ids": rng.integers(0, 5, m), "table": r(5, k), "w": r(n, k)},
        "several": lambda: {"x": r(m, 2, k), "w": r(n, 2, k)},
    }
    return made[op.name]()


OPS = (times, gradient, masked, normed, quantised, gathered, several)


@pytest.fixture
def on_cpu() -> Iterator[None]:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        yield


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_emulated(op: Op, dtype: str, tmp_path: Path, on_cpu: None) -> None:
    rng = np.random.default_rng(0)
    lib = emulated.compile([op], tmp_path, "cuda/sm_80", dtypes=[dtype])
    for m, n, k in SIZES:
        cases.check(lib, op, arguments(op, m, n, k, dtype, rng))


def test_large_tiles_emulated(tmp_path: Path, on_cpu: None) -> None:
    """Around the ends of a large tile, more tiles than a band has, and an epilogue that reads and stores strips."""
    rng = np.random.default_rng(1)
    whole = variant(linear, absent=[], activation="silu")
    config = {"cuda.mma": {"tenths_idle": 1 << 20, "few_rows": 0}}  # large tiles, whatever they leave idle
    lib = emulated.compile([whole, normed], tmp_path, "cuda/sm_80", dtypes=["bfloat16"], configs=config)
    for m, n, k in ((127, 129, 33), (128, 256, 96), (1100, 136, 8), (130, 40, 161)):
        shapes = {"x": (m, k), "weight": (n, k), "bias": (n,), "residual": (m, n)}
        given = {name: arrays.values(rng, shape, "bfloat16") for name, shape in shapes.items()}
        cases.check(lib, linear, {**given, "activation": "silu"})
        cases.check(lib, normed, arguments(normed, m, n, k, "bfloat16", rng))


def test_memory_that_is_not_aligned(tmp_path: Path, on_cpu: None) -> None:
    rng = np.random.default_rng(2)
    lib = emulated.compile([times], tmp_path, "cuda/sm_80", dtypes=["float16"])
    x, w = (arrays.values(rng, shape, "float16") for shape in ((70, 88), (64, 88)))
    for first, last in ((0, 64), (8, 72), (1, 65), (4, 68)):
        cases.check(lib, times, {"x": x[:, first:last], "w": w[: last - first, first : first + 72]})
    assert lib.stats["times"].copies_in == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinities_come_through(tmp_path: Path, on_cpu: None) -> None:
    lib = emulated.compile([normed], tmp_path, "cuda/sm_80", dtypes=["bfloat16"])
    given = arguments(normed, 12, 9, 16, "bfloat16", np.random.default_rng(3))
    given["x"][1, 2], given["x"][2, 3], given["x"][4, 0] = np.nan, np.inf, -np.inf
    cases.check(lib, normed, given)
    found = lib.normed(**given).astype(np.float64)
    assert np.isnan(found[1]).all() and np.isinf(found[[2, 4]]).all() and np.isfinite(found[[0, 3]]).all()


# -- what is served ---------------------------------------------------------------------------------------------------
def plan_of(op: Op | Variant, dtype: str = "bfloat16", arch: str = "sm_80") -> Plan:
    [problem] = enumerate_problems([op], [dtype], {})
    [target] = parse(f"cuda/{arch}")
    return make_plan(problem, target)


ALONE = variant(linear, absent=["bias", "residual"], activation="none")


@pytest.mark.parametrize(
    ("op", "dtype", "arch", "schedule"),
    [
        (ALONE, "bfloat16", "sm_80", "cuda.mma"),
        (ALONE, "float16", "sm_100a", "cuda.mma"),
        (ALONE, "bfloat16", "sm_90a", "cuda.wgmma"),
        (several, "bfloat16", "sm_90a", "cuda.mma"),
        (normed, "float16", "sm_90a", "cuda.mma"),
        (ALONE, "float32", "sm_80", "cuda.contraction"),
    ],
)
def test_schedules(op: Op | Variant, dtype: str, arch: str, schedule: str) -> None:
    assert plan_of(op, dtype, arch).steps[-1].schedule.name == schedule


@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [
        (times, "float16", ("float16", (1, 1))),
        (masked, "bfloat16", ("bfloat16", (1, 1))),
        (gathered, "float16", ("float16", (1, 1))),
        (quantised, "float16", ("float16", (1, 1))),
        (normed, "bfloat16", ("bfloat16", (3, 3))),
    ],
)
def test_terms(op: Op, dtype: str, wanted: tuple[str, tuple[int, int]]) -> None:
    problem = Problem(plan_of(op, dtype).steps[-1].group)
    assert exact_halves.terms((problem.left, problem.right), dtype) == wanted


@pytest.mark.parametrize(
    ("value", "float16", "bfloat16"),
    [(0.0, True, True), (1.5, True, True), (257.0, True, False), (2.0**-24, True, True), (2.0**-25, False, True),
     (65504.0, True, False), (65536.0, False, True), (0.1, False, False), (float("inf"), True, True)],
)  # fmt: skip
def test_numbers_that_are_halves(value: float, float16: bool, bfloat16: bool) -> None:
    assert exact_halves._is_half(value, "float16") is float16
    assert exact_halves._is_half(value, "bfloat16") is bfloat16


# -- what it compiles to ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("op", [times, normed, quantised], ids=lambda op: op.name)
def test_kernels_compile_without_spills(op: Op, arch: str) -> None:
    plan = plan_of(op, "bfloat16", arch)
    kernels = {x.name: x for x in plan.launches if "_mma_" in x.name}
    found = codegen.sources({name: x.function for name, x in kernels.items()}, arch)
    _, used = codegen.compile_units([source for _, source in codegen.units(found)], arch)
    for name, launch in kernels.items():
        assert (used[name].spilled, used[name].stack) == (0, 0), name
        assert launch.grid is not None
        assert used[name].registers * launch.grid.threads <= ARCHS[arch].registers
        assert launch.grid.shared.value is not None
        assert launch.grid.shared.value <= ARCHS[arch].shared_per_block


def test_as_many_blocks_as_a_form_wants_fit() -> None:
    for arch in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a"):
        for form in (mma.SMALL, mma.MEDIUM, mma.LARGE, *mma.STAGED.values()):
            fitted = mma.fit(form, arch)
            stage = (fitted.rows + fitted.columns) * fitted.depth * 2
            assert fitted.stages >= 2
            assert fitted.resident * (fitted.stages * stage + 1024) <= ARCHS[arch].shared_per_sm
