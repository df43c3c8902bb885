"""Inputs that broke other systems: the right answer or a named error, never garbage, a hang or a crash.

Each test names the public report that it comes from, where there is one.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.errors import OpsgenError
from opsgen.lowering.error_bounds import bounded
from opsgen.ops import all_ops
from tests import arrays

OPS = all_ops()
F32 = 2.0**-24


@og.op
def first_dim(x: og.Tensor["n", "m"]):
    return og.results(
        total=og.sum(x, over="n"),
        largest=og.max(x, over="n"),
        where=og.argmax(x, over="n"),
        everything=og.sum(x, over=("n", "m")),
    )


@og.op
def middle(x: og.Tensor["a", "n", "b"]):
    centered = x - og.mean(x, over="n")
    return og.results(
        y=centered * og.rsqrt(og.mean(centered * centered, over="n") + 1e-5), soft=og.softmax(x, over="n")
    )


@og.op
def adaptive_pool(x: og.Tensor["c", "h", "w"]):
    tiles = og.split(og.split(x, "h", h2=None, dh=3), "w", w2=None, dw=2)
    largest = og.max(og.max(tiles, over="dw"), over="dh")
    return og.results(mean=og.mean(tiles, over=("dh", "dw")), spread=largest - og.min(tiles, over=("dh", "dw")))


@og.op
def product(a: og.Tensor["...", "k"], b: og.Tensor["k", "n"]):
    return og.dot(a, b, over="k")


@og.op
def matrix_vector(a: og.Tensor["m", "k"], x: og.Tensor["k"]):
    return og.dot(a, x, over="k")


@og.op
def extremes(x: og.Tensor["...", "n"]):
    return og.results(
        total=og.sum(x, over="n"),
        high=og.max(x, over="n"),
        low=og.min(x, over="n"),
        times=og.prod(x, over="n"),
        first=og.argmax(x, over="n"),
        last=og.argmin(x, over="n"),
        e=og.exp(x),
        safe=og.where(og.isnan(x), 0.0, x),
        clamped=og.min(og.max(x, -1.0), 1.0),
    )


@og.op
def scaled(x: og.Tensor["..."], *, factor: float):
    return x * factor + factor


@og.op
def bytes_sum(x: og.Tensor["r", "n", og.int8]):
    return og.results(total=og.sum(x, over="n"), double=og.cast(x, "float32") * 2.0)


@og.op
def two_tables(ids: og.Tensor["n", og.int64], small: og.Tensor["s", "m"], large: og.Tensor["l", "m"]):
    return small.at(s=ids) + large.at(l=ids) + large.at(l=ids * 3)


@og.op
def shift(cache: og.Mut["n", "m"], x: og.Tensor["m"]):
    """A ring of rows: each moves up by one, x is the last."""
    last = og.index("n") == og.size("n") - 1
    return og.results(cache=og.where(last, x, cache.at(n=og.index("n") + 1)))


USERS = [two_tables, first_dim, middle, adaptive_pool, product, matrix_vector, extremes, scaled, bytes_sum, shift]


@pytest.fixture(scope="module")
def lib() -> Any:
    linear = og.variant(OPS["linear"], absent=["residual"], activation="none")
    norms = [og.variant(OPS["layer_norm"], absent=["residual"]), OPS["rms_norm"]]
    return og.compile(
        [*USERS, linear, *norms, OPS["softmax"], OPS["embedding"], og.variant(OPS["gelu"], approximate="none")]
    )


@pytest.fixture(scope="module")
def half_lib() -> Any:
    return og.compile([OPS["rms_norm"], OPS["softmax"], product, scaled], dtypes=["float16"])


def random(*shape: int, seed: int = 0) -> Any:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def check(lib: Any, op: Any, **given: Any) -> dict[str, Any]:
    """Calls the library and compares with float64 within the bounds of an error analysis."""
    bounds = bounded(op, {p.name: given.get(p.name) for p in op.parameters})
    got = lib[op.name](**given)
    got = dict(zip(bounds, got if isinstance(got, tuple) else (got,)))
    for name, bound in bounds.items():
        bad = bound.wrong(got[name])
        assert not len(bad), f"{name} at {bad[0]}: {got[name][tuple(bad[0])]}, right is {bound.value[tuple(bad[0])]}"
    return got


# -- norms and softmax -------------------------------------------------------------------------------------------------
def test_layer_norm_of_a_large_mean(lib: Any) -> None:  # TVM #19592
    y = lib.layer_norm(
        np.array([80000, 80001, 80002, 80003], np.float32), np.ones(4, np.float32), np.zeros(4, np.float32), eps=1e-5
    )
    centered = np.array([-1.5, -0.5, 0.5, 1.5])
    np.testing.assert_allclose(y, centered / np.sqrt(1.25 + 1e-5), rtol=8 * F32)


@pytest.mark.parametrize("n", [3, 16, 257, 768])
def test_layer_norm_of_a_constant_row_is_the_bias(lib: Any, n: int) -> None:  # onnxruntime #21935
    bias = random(n)
    y = lib.layer_norm(np.full((2, n), 1234, np.float32), np.full(n, 3, np.float32), bias)
    if n in (16, 768):  # their means are exact in every order of summing; others are off by a rounding of 1234
        assert np.array_equal(y, np.broadcast_to(bias, y.shape))
    off = 1234 * F32 * 4 / np.sqrt(1e-5) * 3
    assert np.abs(y - bias).max() <= off


@pytest.mark.parametrize("x", [np.r_[np.zeros(255), 255], random(4) + 2000])  # pytorch #51102
def test_layer_norm_of_rows_that_cancel(lib: Any, x: Any) -> None:
    x = x.astype(np.float32)
    h = x.astype(np.float64)
    wanted = (h - h.mean()) / np.sqrt(h.var() + 1e-5)
    y = lib.layer_norm(x, np.ones(x.shape, np.float32), np.zeros(x.shape, np.float32))
    off = np.spacing(np.float32(np.abs(h).max())) / h.std() + 32 * F32 * np.abs(wanted).max()
    np.testing.assert_allclose(y, wanted, rtol=0, atol=off)


def test_rms_norm_of_float16_above_256_does_not_overflow(half_lib: Any) -> None:  # pytorch PR 133085
    x = (random(3, 64) * 10000).clip(-60000, 60000).astype(np.float16)
    y = half_lib.rms_norm(x, np.ones(64, np.float16))
    h = x.astype(np.float64)
    np.testing.assert_allclose(y, h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6), rtol=2.0**-11 * 1.01)


def test_softmax_of_4096_equal_float16_logits_sums_to_one(half_lib: Any) -> None:  # candle #3727
    for value in (0, 3, -60000, 60000):
        assert np.array_equal(half_lib.softmax(np.full(4096, value, np.float16)), np.full(4096, 1 / 4096))


def test_constants_that_a_type_cannot_hold_are_refused() -> None:  # TVM #17744
    with pytest.raises(OpsgenError, match="E1011"):

        @og.op
        def too_large(x: og.Tensor["n"]):
            return x * og.cast(70000.0, "float16")

    with pytest.raises(OpsgenError, match="E1011"):

        @og.op
        def beyond_float(x: og.Tensor["n", og.float32]):
            return x + 1e39


def test_a_constant_above_65504_beside_float16_works_in_float32(half_lib: Any) -> None:
    y = half_lib.scaled(np.array([0.0, 1e-3], np.float16), factor=1e5)
    assert y[0] == np.inf  # 100000 rounds to it
    assert half_lib.scaled(np.array([-0.5], np.float16), factor=1e5)[0] == 50000


# -- sizes -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("m", [0, 1, 33])
def test_dims_of_size_zero(lib: Any, n: int, m: int) -> None:  # TVM #19578
    x = random(n, m)
    got = check(lib, first_dim, x=x)
    if n == 0:
        assert (got["total"] == 0).all()
        assert (got["largest"] == -np.inf).all()
    check(lib, product, a=random(n, m), b=random(m, 7))
    check(lib, product, a=random(7, n), b=random(n, m))
    check(lib, OPS["softmax"], x=x)
    check(lib, OPS["layer_norm"], x=x, weight=random(m), bias=random(m), eps=1e-5)
    check(lib, OPS["gelu"], x=x, approximate="none")
    check(lib, middle, x=random(2, n, m))


def test_the_product_over_nothing_overwrites_what_was_in_memory(lib: Any) -> None:
    out = np.full((3, 40), np.nan, np.float32)
    lib.product(random(3, 0), random(0, 40), out=out)
    assert (out == 0).all()


@pytest.mark.parametrize("shape", [(65536, 1), (1, 65537), (70001, 1)])  # TVM #20106
def test_very_long_and_very_wide(lib: Any, shape: tuple[int, int]) -> None:
    x = random(*shape)
    check(lib, OPS["softmax"], x=x)
    check(lib, first_dim, x=x)
    check(lib, extremes, x=x.clip(0.5, 1.5))
    check(lib, OPS["layer_norm"], x=x, weight=random(shape[1]), bias=random(shape[1]), eps=1e-5)
    check(lib, product, a=x, b=random(shape[1], 3))
    check(lib, product, a=random(2, shape[0]), b=x)


def test_positions_beyond_two_to_the_31(lib: Any) -> None:  # flashinfer #3007
    far = 2**31 + 16
    memory = np.zeros(far + 4096, np.int8)  # the pages in between are never touched
    x = np.lib.stride_tricks.as_strided(memory, (2, 300), (far, 1))
    x[0], x[1] = 1, np.arange(300) % 100
    total, double = lib.bytes_sum(x)
    assert total.tolist() == [300, int((np.arange(300) % 100).sum())]
    assert np.array_equal(double, x.astype(np.float32) * 2)
    back = x[::-1]
    assert lib.bytes_sum(back)[0].tolist() == total.tolist()[::-1]
    assert lib.stats["bytes_sum"].copies_in == 0


def test_gathers_and_products_beyond_two_to_the_31(half_lib: Any) -> None:  # flashinfer #3007
    far = 2**31 + 16
    memory = np.zeros(far + 4096, np.float16)
    x = np.lib.stride_tricks.as_strided(memory, (2, 70), (far * 2, 2))
    x[...] = random(2, 70).astype(np.float16)
    w = random(70, 33).astype(np.float16)
    check(half_lib, product, a=np.ascontiguousarray(x), b=w)
    assert np.array_equal(half_lib.product(x, w), half_lib.product(x.copy(), w))
    b = random(5, 2).astype(np.float16)
    assert np.array_equal(half_lib.product(b, x), half_lib.product(b, x.copy()))


@pytest.mark.parametrize("m", [1, 2, 4, 5, 6, 7, 12, 13, 25])  # TVM #14935, #16775
def test_contractions_that_divide_no_tile(lib: Any, m: int) -> None:
    for n, k in ((8, 3), (1, 1), (15, 5), (16, 4), (17, 7), (31, 64), (33, 65), (65, 1), (129, 33)):
        check(lib, product, a=random(m, k), b=random(k, n))
        check(lib, OPS["linear"], x=random(m, k), weight=random(n, k), bias=random(n), activation="none")
        check(lib, matrix_vector, a=random(m, k), x=random(k))
    check(lib, matrix_vector, a=random(8, 300), x=random(300))


# -- reductions --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 5, 64, 100])  # TVM #17754, #16848
def test_reduced_dims_that_are_not_the_last(lib: Any, n: int) -> None:
    for m in (1, 7, 16, 40, 70):
        check(lib, first_dim, x=random(n, m))
        check(lib, middle, x=random(3, n, m))


@pytest.mark.parametrize("shape", [(1, 3, 4), (2, 6, 4), (3, 9, 10), (1, 3, 2), (2, 0, 4)])  # TVM #20105
def test_nested_reductions(lib: Any, shape: tuple[int, int, int]) -> None:
    check(lib, adaptive_pool, x=random(*shape))


@pytest.mark.parametrize("n", [1, 8, 16, 17, 64, 65, 100])  # tilelang #2697
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_come_out_where_arithmetic_says(lib: Any, n: int, special: float) -> None:
    for at in {0, n // 2, n - 1}:
        x = random(3, n)
        x[1, at] = special
        got = check(lib, extremes, x=x)
        plain = np.delete(np.arange(3), 1)
        assert np.isfinite(got["total"][plain]).all()
        if np.isnan(special):
            assert np.isnan([got[k][1] for k in ("total", "high", "low", "times")]).all()
            assert got["first"][1] == got["last"][1] == at
        check(lib, first_dim, x=np.ascontiguousarray(x.T))
        with np.errstate(all="ignore"):
            check(lib, OPS["softmax"], x=x)
            check(lib, middle, x=x.reshape(1, 3, n))


def test_nan_beside_infinity_and_signed_zeros(lib: Any) -> None:
    x = np.array([[np.inf, np.nan, -np.inf], [np.inf, -np.inf, 1], [-0.0, 0.0, -0.0]], np.float32)
    got = lib.extremes(x)
    assert np.isnan(got.high[0])
    assert np.isnan(got.low[0])
    assert (got.high[1], got.low[1]) == (np.inf, -np.inf)
    assert np.isnan(got.total[1])
    assert got.first.tolist() == [1, 0, 0]
    assert got.clamped[1].tolist() == [1, -1, 1]
    assert np.isnan(got.clamped[0, 1])


def test_comparisons_of_nan() -> None:
    @og.op
    def compare(x: og.Tensor["n"], y: og.Tensor["n"]):
        below, same, above = x < y, x == y, x > y
        return og.results(
            ne=x != y,
            eq=same,
            some=below | above | same,
            none=og.logical_not(below | above | same),
            not_below=og.logical_not(below),
            nested=og.where(x >= 0.0, 1.0, og.where(x < 0.0, 2.0, 3.0)),
            other_way=og.where(x < 0.0, 1.0, og.where(og.logical_not(x >= 0.0), 2.0, 3.0)),
            both=og.where((x >= 0.0) & og.logical_not(x >= 0.0), 1.0, og.where((x >= 0.0) | (x < 0.0), 2.0, 3.0)),
            self_ne=x != x,
            difference=og.where(x - x == 0.0, 1.0, 0.0),
            product=x * 0.0 + 1.0,
        )

    lib = og.compile(compare)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    for repeat in (1, 3):
        xs, ys = np.tile(x, repeat), np.tile(y, repeat)
        want, got = compare.evaluate(xs, ys), lib.compare(xs, ys)
        for name, w in want.items():
            assert np.array_equal(getattr(got, name), w, equal_nan=w.dtype.kind == "f"), name


def test_floor_division_of_floats() -> None:
    @og.op
    def divide(x: og.Tensor["n"], y: og.Tensor["n"]):
        return og.results(quotient=x // y, rest=x % y, by_half=x // 0.5, rest_of_two=x % 2.0)

    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 0.25], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        want = divide.evaluate(x, y)
    got = og.compile(divide).divide(x, y)
    for name, w in want.items():
        assert np.array_equal(getattr(got, name), w, equal_nan=True), name


# -- arrays in memory --------------------------------------------------------------------------------------------------
CALLS = {
    "softmax": lambda x: {"x": x},
    "gelu": lambda x: {"x": x, "approximate": "none"},
    "layer_norm": lambda x: {"x": x, "weight": random(x.shape[-1]), "bias": random(x.shape[-1])},
    "linear": lambda x: {"x": x, "weight": random(33, x.shape[-1], seed=2), "bias": random(33), "activation": "none"},
    "product": lambda x: {"a": random(5, x.shape[0]), "b": x.reshape(x.shape[0], -1) if x.flags.c_contiguous else x},
    "first_dim": lambda x: {"x": x},
}


@pytest.mark.parametrize("layout", arrays.LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_layouts_of_inputs(lib: Any, name: str, layout: str) -> None:
    for shape in ((7, 300), (1, 5), (5, 1), (13, 64)):
        dense = random(*shape)
        x = arrays.arranged(dense, layout)
        want = lib[name](**CALLS[name](np.ascontiguousarray(x)))
        got = lib[name](**CALLS[name](x))
        for y, w in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
            assert np.array_equal(y, w)


def test_row_slices_are_read_in_place(lib: Any) -> None:
    x = random(9, 400)
    before = lib.stats["layer_norm"].copies_in
    w, b = random(297), random(297)
    for view in (x[:, 3:300], x[::2, 3:300], x[::-1, 3:300], np.broadcast_to(x[:1, 3:300], (9, 297))):
        assert np.array_equal(lib.layer_norm(view, w, b), lib.layer_norm(view.copy(), w, b))
    assert lib.stats["layer_norm"].copies_in == before
    lib.layer_norm(x.T[3:300].T, w, b)  # the same view
    assert lib.stats["layer_norm"].copies_in == before
    lib.layer_norm(random(297, 9).T, w, b)
    assert lib.stats["layer_norm"].copies_in == before + 1


@pytest.mark.parametrize("layout", [x for x in arrays.LAYOUTS if x != "expanded"])
@pytest.mark.parametrize("name", CALLS)
def test_layouts_of_results(lib: Any, name: str, layout: str) -> None:
    given = CALLS[name](random(7, 300))
    want = lib[name](**given)
    many = isinstance(want, tuple)
    out = tuple(arrays.empty(w.shape, w.dtype, layout) for w in (want if many else (want,)))
    got = lib[name](**given, out=out if many else out[0])
    for y, memory, w in zip(got if many else (got,), out, want if many else (want,)):
        assert y is memory
        assert np.array_equal(y, w)


def test_what_surrounds_a_result_stays(lib: Any) -> None:
    frame = np.full((9, 320), 7, np.float32)
    x = random(7, 300)
    lib.softmax(x, out=frame[1:8, 10:310])
    assert np.array_equal(frame[1:8, 10:310], lib.softmax(x))
    assert frame.sum(dtype=np.float64) == pytest.approx(7 * (9 * 320 - 7 * 300) + 7, rel=1e-5)


@pytest.mark.torch
def test_layouts_of_torch_tensors(torch: ModuleType, lib: Any) -> None:
    x = torch.randn(40, 30)
    for view in (x, x.T, x[:, 3:20], x[::2], x[1:].expand(39, 30), x[:1].expand(7, 30), x.T[::3]):
        y = lib.softmax(view)
        assert torch.equal(y, lib.softmax(view.contiguous()))
        assert (y.double() - torch.softmax(view.double(), -1)).abs().max() < 16 * F32
        out = torch.empty(view.shape[::-1]).T
        assert lib.softmax(view, out=out) is out
        assert torch.equal(out, y)


@pytest.mark.parametrize("layout", ["dense", "transposed", "negative", "stepped", "misaligned"])
def test_an_update_in_place(lib: Any, layout: str) -> None:
    for n in (1, 2, 9, 130):
        start, x = random(n, 21), random(21, seed=1)
        cache = arrays.arranged(start, layout)
        assert lib.shift(cache, x) is None
        assert np.array_equal(cache, np.vstack([start[1:], x]))


def test_an_update_of_a_narrower_type() -> None:
    @og.op
    def widen(x: og.Mut["n"]):
        wide = og.cast(x, "float64") * 2.0
        return og.results(y=wide, x=wide)

    for dtype in ("bfloat16", "float16", "float32"):
        x = arrays.values(np.random.default_rng(0), (67,), dtype)
        start = x.astype(np.float64)
        y = og.compile(widen, dtypes=[dtype]).widen(x)
        assert np.array_equal(y[0] if isinstance(y, tuple) else y, start * 2)
        assert np.array_equal(x.astype(np.float64), start * 2)


def test_positions_are_checked_against_every_table(lib: Any) -> None:
    small, large = random(3, 5), random(7, 5, seed=1)
    ids = np.array([0, 2, 1, 2])
    want = small[ids] + large[ids] + large[np.minimum(ids * 3, 6)]  # a computed position is clamped
    np.testing.assert_allclose(lib.two_tables(ids, small, large), want, rtol=4 * F32, atol=4 * F32)
    for tables in ((small, large), (large, small)):
        for wrong in (3, -1, 2**40):
            with pytest.raises(OpsgenError, match="E4009"):
                lib.two_tables(np.array([0, wrong]), *tables)


def test_a_computed_read_needs_something_to_read(lib: Any) -> None:
    @og.op
    def reversed_rows(x: og.Tensor["n", "m"], y: og.Tensor["k"]):
        return x.at(n=og.index("k") - 1) * y

    reading = og.compile(reversed_rows)
    assert reading.reversed_rows(random(0, 3), random(0)).shape == (0, 3)
    assert reading.reversed_rows(random(2, 3), random(4)).shape == (4, 3)
    with pytest.raises(OpsgenError, match="E4010"):
        reading.reversed_rows(random(0, 3), random(4))


def test_extents_that_can_never_fit_are_refused() -> None:
    @og.op
    def pairs(x: og.Tensor["n"]):
        return og.sum(og.split(x, "n", half=None, two=2), over="two")

    assert og.compile(og.variant(pairs, dims={"n": 6})).pairs(random(6)).shape == (3,)
    with pytest.raises(OpsgenError, match=r"E1010.*n must be a multiple of 2"):
        og.compile(og.variant(pairs, dims={"n": 7}))
    with pytest.raises(OpsgenError, match="E1010"):

        @og.op
        def thirds(x: og.Tensor["n"]):
            return og.split(og.split(x, "n", half=None, two=2), "two", a=None, three=3)


def test_unsigned_integers() -> None:
    @og.op
    def unsigned(x: og.Tensor["n", og.uint8], y: og.Tensor["n", og.uint8]):
        return og.results(
            neg=-x, size=og.abs(x), most=og.max(x, y), over=x // y, rest=x % y, less=x - y, total=og.sum(x, over="n")
        )

    x, y = np.array([0, 1, 200, 255, 7, 9], np.uint8), np.array([3, 255, 1, 2, 0, 9], np.uint8)
    with np.errstate(all="ignore"):
        want = [-x, x, np.maximum(x, y), x // y, x % y, x - y, x.sum(dtype=np.int64)]
    got = og.compile(unsigned).unsigned(x, y)
    assert [np.asarray(g).tolist() for g in got] == [w.tolist() for w in want]


def test_powers_of_integers() -> None:
    @og.op
    def powers(x: og.Tensor["n", og.int64]):
        return og.results(zero=x**0, one=x**1, seven=x**7, many=x**39)

    x = np.array([0, 1, -1, 3, -2])
    got = og.compile(powers).powers(x)
    assert [r.tolist() for r in got] == [(x**n).tolist() for n in (0, 1, 7, 39)]
    with pytest.raises(OpsgenError, match="E1003"):

        @og.op
        def variable(x: og.Tensor["n", og.int64]):
            return x**x


def test_division_of_integers() -> None:
    @og.op
    def divide(a: og.Tensor["n", og.int64], b: og.Tensor["n", og.int64], c: og.Tensor["n", og.int32]):
        return og.results(q=a // b, r=a % b, by_three=c // 3, rest=c % 3, half=og.cast(c, "int8") // -2)

    low = -(2**63)
    a = np.array([7, -7, 7, -7, 0, low, low, 5, -5, low])
    b = np.array([2, 2, -2, -2, 3, -1, 1, 0, 0, 0])
    c = np.arange(-5, 5, dtype=np.int32)
    got = og.compile(divide).divide(a, b, c)
    assert got.q.tolist() == [3, -4, -4, 3, 0, low, low, 0, 0, 0]  # by 0 it is 0, as in numpy
    assert got.r.tolist() == [1, 1, -1, -1, 0, 0, 0, 0, 0, 0]
    assert got.by_three.tolist() == (c // 3).tolist()
    assert got.rest.tolist() == (c % 3).tolist()
    assert got.half.tolist() == (c // -2).tolist()


def test_long_chains_of_choices_compile() -> None:
    @og.op
    def chain(x: og.Tensor["n"], y: og.Tensor["n"]):
        for _ in range(30):
            x = og.max(x * y, og.where(x > 0.5, x * x, x - 1.0))
        return og.concat(x, y, dim="n", into="both")

    @og.op
    def logic(x: og.Tensor["n"], y: og.Tensor["n"]):
        p, q = x < y, x > 0.0
        for _ in range(30):
            p, q = (p & q) | og.logical_not(p | q), og.where(p, q, x > y)
        return og.results(p=p, q=q, r=og.where(p, x, y))

    start = time.perf_counter()
    lib = og.compile([chain, logic])
    assert time.perf_counter() - start < 60
    check(lib, chain, x=random(50), y=random(50, seed=1) * 0.5)
    check(lib, logic, x=random(50), y=random(50, seed=1))


# -- calls -------------------------------------------------------------------------------------------------------------
def test_a_python_float_becomes_no_float64(lib: Any, half_lib: Any) -> None:  # Liger #1350
    x = random(3, 5)
    for factor in (0.1, 3, np.float32(0.1), np.float64(0.1)):
        y = lib.scaled(x, factor=factor)
        assert y.dtype == np.float32
        f = np.float64(np.float32(factor))
        np.testing.assert_allclose(y, x * f + f, rtol=4 * F32, atol=4 * F32)
        half = half_lib.scaled(x.astype(np.float16), factor=factor)
        assert half.dtype == np.float16


def test_two_libraries_with_the_same_op() -> None:  # TVM #18624
    @og.op(name="scaled")
    def other(x: og.Tensor["..."], *, factor: float):
        return x * factor - factor

    one, two = og.compile(scaled), og.compile(other)
    x = random(40)
    for _ in range(2):
        np.testing.assert_allclose(one.scaled(x, factor=2.0), x * 2 + 2, rtol=4 * F32)
        np.testing.assert_allclose(two.scaled(x, factor=2.0), x * 2 - 2, rtol=4 * F32, atol=4 * F32)
    del one
    np.testing.assert_allclose(two.scaled(x, factor=2.0), x * 2 - 2, rtol=4 * F32, atol=4 * F32)


def test_eight_threads_at_once(lib: Any) -> None:
    inputs = [random(64, 500, seed=i) for i in range(8)]
    alone = [lib.softmax(x) for x in inputs]

    def work(i: int) -> bool:
        return all(np.array_equal(lib.softmax(inputs[i]), alone[i]) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def script(lib: Any, tmp_path: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own, with the library loaded as ``lib``."""
    path = tmp_path / "library.so"
    lib.save(path)
    start = f"import os, sys, signal, numpy as np, opsgen as og\nlib = og.load({str(path)!r})\n"
    start += "x = np.random.default_rng(0).standard_normal((256, 4096)).astype(np.float32)\n"
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", start + body], capture_output=True, text=True, timeout=60, env=env)


def test_use_after_fork(lib: Any, tmp_path: Path) -> None:
    body = """
y = lib.softmax(x)
for _ in range(3):
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(lib.softmax(x), y) else 1)
    assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(lib.softmax(x), y)
print("right")
"""
    done = script(lib, tmp_path, body)
    assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("threads", ["1", "3"])
def test_any_number_of_threads_gives_the_same(lib: Any, tmp_path: Path, threads: str) -> None:
    body = """
y = lib.softmax(x), lib.product(x[:50], x.T[:, :70].copy())
sys.stdout.write(str(hash((y[0].tobytes(), y[1].tobytes()))))
"""
    done = [script(lib, tmp_path, body, OMP_NUM_THREADS=n, PYTHONHASHSEED="0") for n in (threads, "2")]
    assert done[0].returncode == 0, done[0].stderr
    assert done[0].stdout == done[1].stdout


def test_ctrl_c_stops_a_loop_of_calls(lib: Any, tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    lib.save(path)
    code = f"""
import signal, numpy as np, opsgen as og
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
lib = og.load({str(path)!r})
x = np.ones((512, 4096), np.float32)
print("started", flush=True)
try:
    while True:
        lib.softmax(x)
except KeyboardInterrupt:
    assert lib.softmax(x).shape == x.shape
    print("stopped")
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "stopped\n"
    assert process.returncode == 0
