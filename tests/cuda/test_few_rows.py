"""Contractions with few rows: which kernel a call gets, what the kernels compute (emulated), and what they take."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import Variant, enumerate_problems, variant
from opsgen.dsl.op import Op
from opsgen.ops.linear import linear
from opsgen.targets.names import parse
from tests.cuda import cases, emulated
from tests.cuda.test_compile import check_resources

ALONE = variant(linear, absent=["bias", "residual"], activation="none")
FULL = variant(linear, absent=[], activation="gelu")

SIZES = [
    # rows, length of the sum, columns: around the ends of strips, steps, shares and tasks
    (1, 1, 1), (1, 8, 16), (1, 264, 5), (2, 4104, 17), (3, 127, 33), (4, 1032, 40), (5, 60, 15), (8, 512, 31),
    (9, 300, 16), (13, 2056, 35), (16, 129, 48), (17, 1028, 33), (24, 64, 65), (32, 520, 34), (33, 40, 20),
    (0, 8, 3), (3, 0, 5), (2, 5, 0),
]  # fmt: skip


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        yield


@og.op
def weight_only(x: og.Tensor["...", "inner"], w: og.Tensor["columns", "inner", og.int8], scale: og.Tensor["columns"]):
    """y = x · (w · scale)ᵀ, the weights being small integers"""
    return og.dot(x, og.cast(w, x.dtype) * scale, over="inner")


@og.op
def weight_only_uint8(
    x: og.Tensor["...", "inner"], w: og.Tensor["columns", "inner", og.uint8], scale: og.Tensor["columns"]
):
    """The same with bytes, whose scale comes after the sum."""
    return og.dot(x, og.cast(w, x.dtype), over="inner") * scale


@og.op
def wrapped_weights(
    x: og.Tensor["...", "inner"], w: og.Tensor["columns", "inner", og.int8], factor: og.Tensor["columns", og.int8]
):
    """Weights that are products of int8, which wrap around."""
    return og.dot(x, og.cast(w * factor, x.dtype), over="inner")


@og.op
def heads(q: og.Tensor["batch", "rows", "width"], k: og.Tensor["batch", "keys", "width"], *, scale: float):
    """s = scale · q · kᵀ, for each head"""
    return og.dot(q, k, over="width") * scale


@og.op
def scaled_weights(x: og.Tensor["rows", "inner"], w: og.Tensor["columns", "inner"], g: og.Tensor["columns", "inner"]):
    """Weights that are computed on the way: no parameter of a half type."""
    return og.dot(x, w * g + 1.0, over="inner")


@og.op
def transposed(x: og.Tensor["rows", "inner"], w: og.Tensor["inner", "columns"]):
    """y = x · w"""
    return og.dot(x, w, over="inner")


def given(rng: np.random.Generator, dtype: str, **shapes: tuple[int, ...]) -> dict[str, Any]:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return {name: rng.standard_normal(shape).astype(np.float32).astype(kind) for name, shape in shapes.items()}


def parts(op: Op | Variant, dtype: str, arch: str = "sm_80") -> list[str]:
    """The kernels of an op's plan, in their order."""
    [problem] = enumerate_problems([op], [dtype], {})
    [target] = parse([f"cuda/{arch}"])
    return [launch.name.partition("_g0_")[2] for launch in make_plan(problem, target).launches]


def test_which_kernels_there_are() -> None:
    rows = ["few_rows_8", "few_rows_16", "few_rows_32"]
    assert parts(ALONE, "bfloat16")[:3] == parts(weight_only, "float16")[:3] == parts(heads, "bfloat16")[:3] == rows
    threads = ["few_rows_1", "few_rows_4", "few_rows_8"]
    assert parts(ALONE, "float32")[:3] == parts(scaled_weights, "bfloat16")[:3] == threads
    assert parts(wrapped_weights, "bfloat16")[:3] == threads
    assert not any("few_rows" in p for p in parts(transposed, "float32"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_rows(dtype: str, tmp_path: Path) -> None:
    lib = emulated.compile([FULL], tmp_path, dtypes=[dtype])
    rng = np.random.default_rng(0)
    for m, k, n in SIZES:
        arrays = given(rng, dtype, x=(m, k), weight=(n, k), bias=(n,), residual=(m, n))
        cases.check(lib, linear, {**arrays, "activation": "gelu"})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", [weight_only, weight_only_uint8])
def test_small_integers_as_weights(op: Op, dtype: str, tmp_path: Path) -> None:
    lib = emulated.compile([op], tmp_path, dtypes=[dtype])
    rng = np.random.default_rng(1)
    for m, k, n in SIZES:
        arrays = given(rng, dtype, x=(m, k), scale=(n,))
        w = rng.integers(0, 256, (n, k)).astype(np.uint8)
        w[:1] = np.arange(k) % 256
        cases.check(lib, op, {**arrays, "w": w if op is weight_only_uint8 else w.view(np.int8)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_batches_short_sums_and_computed_operands(dtype: str, tmp_path: Path) -> None:
    lib = emulated.compile([heads, scaled_weights], tmp_path, dtypes=[dtype])
    rng = np.random.default_rng(2)
    for batch, rows, width, keys in ((3, 1, 64, 100), (2, 4, 40, 17), (5, 9, 128, 33), (1, 8, 1, 1), (2, 30, 300, 65)):
        arrays = given(rng, dtype, q=(batch, rows, width), k=(batch, keys, width))
        cases.check(lib, heads, {**arrays, "scale": 0.3})
    for m, k, n in SIZES:
        cases.check(lib, scaled_weights, given(rng, dtype, x=(m, k), w=(n, k), g=(n, k)))


def test_memory_that_is_not_aligned_and_rows_with_gaps(tmp_path: Path) -> None:
    lib = emulated.compile([ALONE], tmp_path, dtypes=["float16"])
    rng = np.random.default_rng(3)
    wide = given(rng, "float16", x=(5, 523), weight=(20, 523))
    for first in (0, 1, 2, 4, 8):
        for last in (512, 514, 516, 520, 521):
            cases.check(lib, linear, {**{n: v[:, first:last] for n, v in wide.items()}, "activation": "none"})
    assert lib.stats["linear"].copies_in == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_no_kernel_spills(arch: str) -> None:
    for op, dtype in ((FULL, "bfloat16"), (weight_only, "float16"), (FULL, "float64")):
        check_resources(enumerate_problems([op], [dtype], {}), arch)
