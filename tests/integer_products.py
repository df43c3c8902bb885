"""Products of integers for tests: ops, and calls whose results numpy has exactly, in int64."""

from typing import Any

import numpy as np

import opsgen as og


@og.op
def int_mm(x: og.Tensor["...", "k", og.int8], w: og.Tensor["n", "k", og.int8]) -> og.Tensor:
    """x · wᵀ in int32, as torch._int_mm."""
    return og.dot(x, w, over="k")


@og.op
def mixed_mm(x: og.Tensor["m", "k", og.uint8], w: og.Tensor["k", "n", og.int8]) -> og.Tensor:
    """x · w; the right operand is contiguous along its columns."""
    return og.dot(x, w, over="k")


@og.op
def wide_mm(x: og.Tensor["m", "k", og.int32], w: og.Tensor["n", "k", og.int16]) -> og.Tensor:
    """x · wᵀ in int64."""
    return og.dot(x, w, over="k")


@og.op
def unsigned_mm(x: og.Tensor["b", "m", "k", og.uint8], w: og.Tensor["b", "n", "k", og.uint8]) -> og.Tensor:
    """x · wᵀ of each of a batch."""
    return og.dot(x, w, over="k")


@og.op
def int_mv(x: og.Tensor["m", "k", og.uint8], v: og.Tensor["k", og.uint8]) -> og.Tensor:
    """x · v, a row reduction."""
    return og.dot(x, v, over="k")


OPS = [int_mm, mixed_mm, wide_mm, unsigned_mm, int_mv]
SIZES = ((1, 1, 1), (3, 5, 7), (0, 4, 4), (4, 0, 3), (3, 3, 0), (17, 65, 33), (40, 130, 129), (9, 33, 257))


def check_products(
    lib: Any,
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
    convert: Any = lambda x: x,
    back: Any = lambda x: x,
) -> None:
    """Every value that the types have, the least (whose square is the largest product) among them. ``convert`` makes
    what the library takes of arrays, ``back`` arrays of its results."""
    random = np.random.default_rng(3)

    def draw(dtype: Any, *shape: int) -> Any:
        limits = np.iinfo(dtype)
        x = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.where(random.random(shape) < 0.25, limits.min, x).astype(dtype)

    for m, n, k in sizes:
        w, across, wide, v = draw(np.int8, n, k), draw(np.int8, k, n), draw(np.int16, n, k), draw(np.uint8, k)
        calls = (
            (lib.int_mm, draw(np.int8, m, k), w, w.T, np.int32),
            (lib.mixed_mm, draw(np.uint8, m, k), across, across, np.int32),
            (lib.wide_mm, draw(np.int32, m, k), wide, wide.T, np.int64),
            (lib.unsigned_mm, draw(np.uint8, 2, m, k), (b := draw(np.uint8, 2, n, k)), b.transpose(0, 2, 1), np.int32),
            (lib.int_mv, draw(np.uint8, m, k), v, v, np.int32),
        )
        for op, x, w, right, kind in calls:
            found = back(op(convert(x), convert(w)))
            assert found.dtype == kind
            np.testing.assert_array_equal(found, x.astype(np.int64) @ right.astype(np.int64))
