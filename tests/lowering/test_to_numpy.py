"""The numpy lowering, node by node: each map and reduction against numpy or torch called directly."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opsgen as og
from opsgen.errors import CallError, CompileError
from tests import float8

Array = NDArray[Any]

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-3, 30.0, -30.0, np.inf, -np.inf, np.nan])
ERF = np.vectorize(math.erf, otypes=[np.float64])

UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": ERF,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "abs": np.abs,
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_unary_maps(name: str, dtype: str) -> None:
    @og.op
    def f(x: og.Tensor["..."]) -> og.Tensor:
        return getattr(og, name)(x)

    x = np.concatenate([SPECIAL, np.random.default_rng(0).standard_normal(100) * 3]).astype(dtype)
    with np.errstate(all="ignore"):
        wanted = UNARY[name](x.astype(np.float64))
    y = f.evaluate(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, wanted, rtol=4 * np.finfo(dtype).eps, atol=2 * np.finfo(dtype).tiny)


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = {
    "+": (lambda a, b: a + b, np.add),
    "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply),
    "/": (lambda a, b: a / b, np.divide),
    "//": (lambda a, b: a // b, np.floor_divide),
    "%": (lambda a, b: a % b, np.mod),
    "**": (lambda a, b: a**b, np.power),
    "max": (lambda a, b: og.max(a, b), np.maximum),
    "min": (lambda a, b: og.min(a, b), np.minimum),
    "<": (lambda a, b: a < b, np.less),
    "<=": (lambda a, b: a <= b, np.less_equal),
    ">": (lambda a, b: a > b, np.greater),
    ">=": (lambda a, b: a >= b, np.greater_equal),
    "==": (lambda a, b: a == b, np.equal),
    "!=": (lambda a, b: a != b, np.not_equal),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_maps_broadcast_by_name(name: str) -> None:
    ours, numpys = BINARY[name]

    @og.op
    def f(a: og.Tensor["rows", "columns"], b: og.Tensor["columns", "depth"]) -> og.Tensor:
        return ours(a, b)

    a = np.resize(SPECIAL, (4, 13))
    b = np.resize(SPECIAL[::-1], (13, 3))
    with np.errstate(all="ignore"):
        wanted = numpys(a[:, :, None], b[None])
    np.testing.assert_array_equal(f.evaluate(a, b), wanted, strict=True)


@pytest.mark.parametrize("name", ["+", "-", "*", "//", "%", "max", "min", "<", "=="])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_binary_maps_of_integers(name: str, dtype: str) -> None:
    ours, numpys = BINARY[name]

    @og.op
    def f(a: og.Tensor["n", og.integer], b: og.Tensor["n", og.integer]) -> og.Tensor:
        return ours(a, b)

    a = np.array([7, -7, 7, -7, 0, 5], dtype)
    b = np.array([3, 3, -3, -3, 2, 5], dtype)
    np.testing.assert_array_equal(f.evaluate(a, b), numpys(a, b), strict=True)


def test_numbers_on_the_left() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Results:
        return og.results(sub=1.0 - x, div=1.0 / x, pow=2.0**x, floordiv=7.0 // x, mod=7.0 % x, neg=-x, pos=+x)

    x = np.array([0.5, -3.0, 4.0])
    found = f.evaluate(x)
    wanted = {"sub": 1 - x, "div": 1 / x, "pow": 2**x, "floordiv": 7 // x, "mod": 7 % x, "neg": -x, "pos": x}
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_logic_where_and_isnan() -> None:
    @og.op
    def f(x: og.Tensor["n"], y: og.Tensor["n"]) -> og.Results:
        p, q = x > 0, y > 0
        return og.results(
            both=p & q, either=p | q, neither=og.logical_not(p | q), flipped=~p, pick=og.where(p, x, y), nan=og.isnan(x)
        )

    x, y = SPECIAL, np.roll(SPECIAL, 3)
    found = f.evaluate(x, y)
    with np.errstate(invalid="ignore"):
        p, q = x > 0, y > 0
    wanted = {
        "both": p & q,
        "either": p | q,
        "neither": ~(p | q),
        "flipped": ~p,
        "pick": np.where(p, x, y),
        "nan": np.isnan(x),
    }
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name, strict=True)


def test_casts() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Results:
        half = og.cast(x, og.float16)
        return og.results(half=half, through=half.cast("float32"), whole=x.cast(og.int32), flag=x.cast(og.bool_))

    x = np.array([0.1, -2.7, 0.0, 1000.3], np.float32)
    found = f.evaluate(x)
    assert found["half"].dtype == np.float16
    np.testing.assert_array_equal(found["through"], x.astype(np.float16).astype(np.float32), strict=True)
    np.testing.assert_array_equal(found["whole"], x.astype(np.int32), strict=True)
    np.testing.assert_array_equal(found["flag"], x != 0, strict=True)


# -- reductions --------------------------------------------------------------------------------------------------------
REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
}
OVER = [("a",), ("b",), ("c",), ("a", "c"), ("c", "a"), ("b", "c"), ("a", "b", "c")]


def _reduction(name: str, over: tuple[str, ...]) -> og.Op:
    @og.op
    def f(x: og.Tensor["a", "b", "c"]) -> og.Tensor:
        return getattr(og, name)(x, over=over if len(over) > 1 else over[0])

    return f


@pytest.mark.parametrize("over", OVER, ids=lambda over: "".join(over))
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_any_dims(name: str, over: tuple[str, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 7))
    axes = tuple("abc".index(d) for d in over)
    y = _reduction(name, over).evaluate(x)
    np.testing.assert_allclose(y, REDUCTIONS[name](x, axis=axes), rtol=1e-13, atol=1e-13, strict=True)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_positions_of_extremes(name: str, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 7))
    y = _reduction(name, ("abc"[axis],)).evaluate(x)
    np.testing.assert_array_equal(y, getattr(np, name)(x, axis=axis), strict=True)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_ties_and_nan_in_positions_of_extremes(torch: ModuleType, name: str) -> None:
    rows = np.array(
        [[1, 3, 3, 1], [2, 2, 2, 2], [1, np.nan, 5, 0], [np.nan, 9, np.nan, -9], [np.inf, np.inf, -np.inf, -np.inf]]
    )
    y = _reduction(name, ("c",)).evaluate(rows[None])
    first = {"argmax": [1, 0, 1, 0, 0], "argmin": [0, 0, 1, 0, 2]}[name]
    np.testing.assert_array_equal(y, [first])
    # torch promises no particular one of several equal elements, so only rows without ties are compared.
    assert [int(getattr(torch, name)(torch.from_numpy(rows[i]))) for i in (2,)] == [first[2]]


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("position", [0, 3, 6])
def test_nan_wins_in_extremes(name: str, position: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7))
    x[1, 2, position] = np.nan
    y = _reduction(name, ("c",)).evaluate(x)
    wanted = REDUCTIONS[name](x, axis=2)
    assert np.isnan(wanted[1, 2])
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min"])
def test_infinities_in_reductions(name: str) -> None:
    x = np.array([[[1, np.inf], [-np.inf, np.inf], [-np.inf, 0]]])
    with np.errstate(invalid="ignore"):
        wanted = REDUCTIONS[name](x, axis=2)
        y = _reduction(name, ("c",)).evaluate(x)
    np.testing.assert_array_equal(y, wanted)


NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "argmax": 0, "argmin": 0}


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_reduction_over_nothing_is_neutral(name: str) -> None:
    y = _reduction(name, ("b",)).evaluate(np.zeros((3, 0, 2)))
    np.testing.assert_array_equal(y, np.full((3, 2), NEUTRAL[name]), strict=True)


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_reduction_of_nothing_is_empty(name: str) -> None:
    assert _reduction(name, ("b",)).evaluate(np.zeros((3, 5, 0))).shape == (3, 0)


def test_two_nested_reductions() -> None:
    """Adaptive average pooling of 3×4 to 2×2, one dim after the other, then one reduction inside another's operand."""

    @og.op
    def pool(x: og.Tensor["height", "width"]) -> og.Tensor:
        low = og.compute(lambda p, height: og.where((height >= p) & (height < p + 2), 1.0, 0.0), p=2)
        left = og.compute(lambda q, width: og.where(width // 2 == q, 1.0, 0.0), q=2)
        rows = og.sum(x * low, over="height") / og.sum(low, over="height")
        return og.transpose(og.sum(rows * left, over="width") / og.sum(left, over="width"), "p", "q")

    x = np.random.default_rng(0).standard_normal((3, 4))
    wanted = [[x[p : p + 2, 2 * q : 2 * q + 2].mean() for q in range(2)] for p in range(2)]
    np.testing.assert_allclose(pool.evaluate(x), wanted, rtol=1e-14)

    @og.op
    def largest_row_sum(x: og.Tensor["height", "width"]) -> og.Tensor:
        return og.max(og.sum(x, over="width"), over="height")

    np.testing.assert_allclose(largest_row_sum.evaluate(x), x.sum(1).max(), rtol=1e-14)


def test_integer_reductions_are_wide() -> None:
    @og.op
    def f(x: og.Tensor["n", og.int8]) -> og.Results:
        return og.results(
            sum=og.sum(x, over="n"), prod=og.prod(x, over="n"), max=og.max(x, over="n"), mean=og.mean(x, over="n")
        )

    x = np.full(9, 100, np.int8)
    found = f.evaluate(x)
    assert found["sum"] == 900 and found["sum"].dtype == np.int64
    assert found["prod"] == 100**9 and found["prod"].dtype == np.int64
    assert found["max"] == 100 and found["max"].dtype == np.int8
    assert found["mean"] == 100 and found["mean"].dtype == np.float32
    assert f.evaluate(np.zeros(0, np.int8))["max"] == -128


def test_dot_is_einsum() -> None:
    @og.op
    def f(a: og.Tensor["batch", "m", "k", "l"], b: og.Tensor["n", "l", "batch", "k"]) -> og.Tensor:
        return og.dot(a, b, over=("k", "l"))

    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 3, 5, 7)), random.standard_normal((4, 7, 2, 5))
    np.testing.assert_allclose(f.evaluate(a, b), np.einsum("zmkl,nlzk->zmn", a, b), rtol=1e-12)


# -- types -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_types_compute_in_float32_and_round_once(kind: str) -> None:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, kind)) if kind == "bfloat16" else np.dtype(kind)

    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        return og.sum(x * x, over="n") * 1e-6

    x = np.full(4096, 300, dtype)  # x² is beyond float16, and a sum of equal halves stalls at 2048 terms
    y = f.evaluate(x)
    assert y.dtype == dtype
    wanted = np.float64(x[0]) ** 2 * 4096 * 1e-6
    assert abs(float(y) - wanted) <= float(ml_dtypes.finfo(dtype).eps) / 2 * wanted * (1 + 1e-3)


def test_float64_mode_computes_in_double_and_returns_double() -> None:
    @og.op
    def f(x: og.Tensor["n"], *, eps: float = 0.1) -> og.Tensor:
        return og.sum(x, over="n") * 0.1 + eps

    x = np.array([1, 2**-40], np.float32)
    y = f.evaluate(x, dtype="float64")
    assert y.dtype == np.float64
    assert y == (1 + 2**-40) * 0.1 + 0.1
    assert f.evaluate(x).dtype == np.float32


def test_numbers_beside_float64_inputs_are_not_rounded_to_float32() -> None:
    @og.op
    def f(x: og.Tensor["n"], *, eps: float = 0.1) -> og.Tensor:
        return x * 0.1 + eps

    assert f.evaluate(np.ones(1)) == np.float64(0.1) + np.float64(0.1)


def test_a_python_float_does_not_widen_float32() -> None:
    @og.op
    def f(x: og.Tensor["n"], *, eps: float) -> og.Tensor:
        return x + eps

    y = f.evaluate(np.ones(1, np.float32), eps=1e-3)
    assert y.dtype == np.float32 and y == np.float32(1) + np.float32(1e-3)


# -- binding -----------------------------------------------------------------------------------------------------------
def test_leading_dims_are_any_number() -> None:
    @og.op
    def f(x: og.Tensor["...", "n"]) -> og.Results:
        return og.results(sum=og.sum(x, over="n"), turned=og.transpose(x * 1.0, "...", "n"))

    for lead in [(), (4,), (2, 3), (0, 3), (2, 1, 2)]:
        x = np.random.default_rng(0).standard_normal((*lead, 5))
        found = f.evaluate(x)
        np.testing.assert_allclose(found["sum"], x.sum(-1), rtol=1e-13, atol=1e-13, strict=True)
        np.testing.assert_array_equal(found["turned"], x, strict=True)


def test_a_dim_may_be_called_rows() -> None:
    @og.op
    def f(x: og.Tensor["rows", "n"]) -> og.Tensor:
        return og.sum(x, over="rows")

    np.testing.assert_array_equal(f.evaluate(np.ones((3, 2))), [3, 3])


def test_strided_inputs() -> None:
    @og.op
    def f(x: og.Tensor["...", "n"]) -> og.Tensor:
        return x * 2.0

    base = np.random.default_rng(0).standard_normal((6, 8))
    for x in (base.T, base[::-1, ::-2], np.broadcast_to(base[:1], (5, 8)), base[:, 1:]):
        np.testing.assert_array_equal(f.evaluate(x), x * 2)


def test_shapes_that_disagree() -> None:
    @og.op
    def f(x: og.Tensor["...", "n"], y: og.Tensor["...", "n"], w: og.Tensor["n"]) -> og.Tensor:
        return x + y * w

    x = np.zeros((2, 3))
    with pytest.raises(CallError, match=r"E4005: f: argument 'w' has n=4 \(shape \(4,\)\); wanted 3"):
        f.evaluate(x, x, np.zeros(4))
    with pytest.raises(CallError, match=r"E4005: f: argument 'y' has \.\.\.=\(1,\)"):
        f.evaluate(x, np.zeros((1, 3)), np.zeros(3))
    with pytest.raises(CallError, match=r"E4004: f: argument 'w' has 2 dims"):
        f.evaluate(x, x, x)
    with pytest.raises(CallError, match=r"E4004: f: argument 'x' has 0 dims"):
        f.evaluate(np.zeros(()), x, np.zeros(3))


def test_types_that_a_parameter_does_not_take() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        return x

    for dtype in ("int32", "bool", "complex128"):
        with pytest.raises(CompileError, match=rf"E3002: op 'f', parameter 'x': dtype {dtype}"):
            f.evaluate(np.zeros(3, dtype))


def test_conditions_on_dims_are_checked() -> None:
    @og.op
    def f(x: og.Tensor["hidden"], y: og.Tensor["parts"]) -> og.Tensor:
        heads = x.split("hidden", heads=None, head_dim=4)
        og.require("parts * heads == 12 and max(parts, 2) > 2", "12 heads over all parts")
        return og.sum(heads, over=("heads", "head_dim")) + og.sum(y, over="parts")

    assert f.evaluate(np.ones(16), np.ones(3)) == 19
    with pytest.raises(CallError, match=r"E4010: f: .*hidden must be a multiple of 4"):
        f.evaluate(np.ones(15), np.ones(3))
    with pytest.raises(CallError, match=r"E4010: f: .*12 heads over all parts"):
        f.evaluate(np.ones(20), np.ones(3))
    with pytest.raises(CallError, match=r"E4010: f: .*12 heads over all parts"):
        f.evaluate(np.ones(24), np.ones(2))


# -- positions ---------------------------------------------------------------------------------------------------------
def test_positions_outside_are_clamped() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        return x.at(n=og.index("n") * 2 - 1)

    np.testing.assert_array_equal(f.evaluate(np.arange(4.0)), [0, 1, 3, 3])


def test_reading_from_nothing_gives_zeros() -> None:
    @og.op
    def f(x: og.Tensor["n"], ids: og.Tensor["m", og.int64]) -> og.Tensor:
        return x.at(n=ids)

    np.testing.assert_array_equal(f.evaluate(np.zeros(0), np.zeros(2, np.int64)), [0, 0])
    assert f.evaluate(np.zeros(3), np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("kind", float8.FORMATS)
def test_float8_rounds_as_its_definition_says(kind: str) -> None:
    pytest.importorskip("ml_dtypes")
    x = float8.numbers()
    found = {"float8_e4m3fn": float8.to_e4m3fn, "float8_e5m2": float8.to_e5m2}[kind].evaluate(x=x)
    wanted = float8.decoded(kind)[float8.encoded(x, kind)]
    np.testing.assert_array_equal(found.astype(np.float64), wanted)
    within = float8.through.evaluate(x=x)[kind.removeprefix("float8_")]
    np.testing.assert_array_equal(within, (wanted * 3).astype(np.float32))
