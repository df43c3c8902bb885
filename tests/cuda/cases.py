"""Calls of ops that kernels for GPUs are tested with, emulated and on a GPU, and how their results are judged.

A result is compared with float64 within the bounds of an error analysis (opsgen/lowering/error_bounds.py).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import opsgen as og
from opsgen.compiler import Variant
from opsgen.dsl import Op
from opsgen.lowering.error_bounds import NVIDIA, bounded
from tests import arrays
from tests.x86 import test_attention, test_cases, test_ops

Convert = Callable[[Any], Any]

OPS = test_ops.OPS
USERS = {op.name: op for op in test_cases.USERS}
ATTENTION = test_attention.CALLS
INTEGERS = dict.fromkeys(("ids", "q_offsets", "k_offsets", "page_table", "lengths", "document"), "int64")


@og.op
def columns_total(x: og.Tensor["n", "m"], y: og.Tensor["m", "k"]):
    """A sum over the columns of the left, whose operands are contiguous along result dims."""
    return og.dot(og.exp(x), y + 1.0, over="m") * og.sum(y, over="m")


@og.op
def row_totals(x: og.Tensor["rows", "columns"]):
    """y = the sum of the row's powers, at each of its elements"""
    return og.where(x == x, og.sum(og.exp(x), over="columns"), 0.0)


@og.op
def half_functions(x: og.Tensor["n"]):
    """What has a form of its own where results are of half types."""
    gelu = x * (1.0 + og.erf(x))
    return og.results(exp=og.exp(x), sigmoid=og.sigmoid(x), gelu=gelu, tanh=1.0 + og.tanh(x))


def check(lib: Any, op: Op, given: dict[str, Any], convert: Convert = lambda x: x, back: Convert = lambda x: x) -> None:
    """Calls the library with what ``convert`` makes of the arrays, and judges what ``back`` makes of the results."""
    absent = {p.name: None for p in op.parameters if p.spec and p.name not in given}
    bounds = bounded(op, {**given, **absent}, NVIDIA)
    passed = {n: convert(x) if isinstance(x, np.ndarray) else x for n, x in given.items()}
    got = lib[op.name](**passed)
    updated = {p.name for p in op.parameters if p.spec and p.spec.mutable}
    returned = () if updated >= bounds.keys() else got if isinstance(got, tuple) else (got,)
    assert len(returned) == len(bounds.keys() - updated)
    results = iter(returned)
    shapes = {n: v.shape for n, v in given.items() if isinstance(v, np.ndarray)}
    for name, bound in bounds.items():
        y = back(passed[name] if name in updated else next(results))
        bad = bound.wrong(y)
        assert not len(bad), (
            f"{op.name}.{name}: {len(bad)} of {y.size} wrong, first at {tuple(bad[0])}: {y[tuple(bad[0])]} where "
            f"{bound.value[tuple(bad[0])]} ± {bound.bound[tuple(bad[0])]:.2e} is right; {shapes}"
        )


def items(names: list[str]) -> list[Variant]:
    """Two variants of each op, that differ in every optional tensor and attribute."""
    return test_ops.items([OPS[n] for n in names], every=False)


def calls(name: str, dtype: str) -> Iterator[dict[str, Any]]:
    """An op at sizes around tiles and ends of rows: small ones."""
    op = OPS[name]
    for absent, attributes in test_ops.calls_of(op, every=False):
        for lead, sizes in test_ops.sizes_of(op):
            yield {**arrays.arguments(op, absent, lead, sizes, dtype), **attributes}


LONG_ROWS = (64, 1023, 1024, 1025, 2048, 4099, 16384, 30011, 32768, 60001, 65536, 131080, 300007)
"""What parts of warps, warps, blocks and clusters take, and what is split among blocks; aligned, and not."""

TILES = ((1, 300, 257), (7, 1000, 65), (8, 64, 129), (9, 65, 63), (64, 64, 64), (65, 17, 129), (129, 128, 127))
LARGE_TILES = ((1501, 33, 1409), (2048, 64, 1056))
"""Rows, length of the sum, and columns of a linear layer."""


def long_calls(name: str, dtype: str, lengths: tuple[int, ...] = LONG_ROWS) -> Iterator[dict[str, Any]]:
    """An op that reduces rows, at lengths around the ends of what its kernels take."""
    op = OPS[name]
    for absent, attributes in test_ops.calls_of(op, every=False):
        for n in lengths:
            dims = dict.fromkeys(op.dims, n)
            yield {**arrays.arguments(op, absent, (3,), dims, dtype), **attributes}


def linear_calls(dtype: str, tiles: tuple[tuple[int, int, int], ...] = TILES) -> Iterator[dict[str, Any]]:
    """A linear layer around the ends of tiles."""
    op = OPS["linear"]
    for absent, attributes in test_ops.calls_of(op, every=False):
        for rows, summed, columns in tiles:
            dims = {"in_features": summed, "out_features": columns}
            yield {**arrays.arguments(op, absent, (rows,), dims, dtype), **attributes}


def user_calls(name: str, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Ops that are not of the library: reductions over any dims, searches, gathers, updates."""

    def r(*shape: int) -> Any:
        return arrays.values(rng, shape, "float32")

    made: dict[str, list[dict[str, Any]]] = {
        "two_tables": [{"ids": rng.integers(0, 3, 7), "small": r(7, 5), "large": r(9, 5)}],
        "first_dim": [{"x": r(33, 45)}, {"x": r(1, 1)}, {"x": r(300, 33)}, {"x": r(1300, 2)}],
        "middle": [{"x": r(3, 37, 5)}, {"x": r(2, 9, 33)}, {"x": r(1, 1, 65)}],
        "adaptive_pool": [{"x": r(2, 6, 8)}, {"x": r(1, 33, 2)}],
        "product": [{"a": r(2, 9, 33), "b": r(33, 70)}, {"a": r(3, 17), "b": r(17, 1)}, {"a": r(70, 1), "b": r(1, 65)}],
        "matrix_vector": [{"a": r(17, 65), "x": r(65)}, {"a": r(2, 1025), "x": r(1025)}],
        "extremes": [
            *({"x": r(*shape)} for shape in ((3, 37), (1, 1), (2, 1500), (3, 2048), (2, 40000), (2, 150001))),
            {"x": with_nan(r(5, 70))},
            {"x": np.zeros((3, 67), np.float32)},  # the first of equal ones, whichever thread has it
        ],
        "scaled": [{"x": r(3, 37), "factor": 0.5}],
        "bytes_sum": [{"x": rng.integers(-128, 127, (3, 44)).astype(np.int8)}],
    }
    yield from made[name]


def with_nan(x: Any) -> Any:
    """NaN here and there, and both infinities."""
    x[1, 3] = x[2, 69] = np.nan
    x[3, 5], x[3, 6] = np.inf, -np.inf
    return x
