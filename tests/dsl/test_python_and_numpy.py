"""Python and numpy in a definition: what is taken, and what is refused with the line and the function to use."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.dsl.tensor import walk
from opsgen.errors import DefinitionError


def _define(body: Callable[[og.Tensor], Any]) -> og.Op:
    @og.op
    def f(x: og.Tensor["a"]) -> Any:
        return body(x)

    return f


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        (lambda x: np.exp(x), "Use og.exp."),
        (lambda x: np.absolute(x), "Use og.abs."),
        (lambda x: np.maximum(x, 0), "Use og.max."),
        (lambda x: np.maximum(0, x), "Use og.max."),
        (lambda x: np.add.reduce(x), "Use og.sum."),
        (lambda x: np.add.accumulate(x), "Use og.cumsum."),
        (lambda x: np.maximum.accumulate(x), "Use og.cummax."),
        (lambda x: np.cumsum(x), "Use og.cumsum."),
        (lambda x: np.cumprod(x, axis=0), "Use og.cumprod."),
        (lambda x: np.sum(x), "Use og.sum."),
        (lambda x: np.mean(x, axis=0), "Use og.mean."),
        (lambda x: np.where(x > 0, x, 0), "Use og.where."),
        (lambda x: np.concatenate([x, x]), "Use og.concat."),
        (lambda x: np.arctan2(x, x), "Use the functions and operators of opsgen."),
        (lambda x: np.add(x, x, out=np.ones(3)), "Use the functions and operators of opsgen."),
        (lambda x: x @ x, "og.dot(x, y, over='dim')"),
        (lambda x: 2 @ x, "og.dot(x, y, over='dim')"),
        (lambda x: np.ones(3) @ x, "Use og.dot."),
        (lambda x: x * np.ones(3), "make it a parameter"),
        (lambda x: np.ones(3) * x, "make it a parameter"),
        (lambda x: og.where(x > 0, x, np.ones(3)), "an operand is an array (numpy.ndarray)"),
    ],
)
def test_numpy_is_refused(body: Callable[[og.Tensor], Any], remedy: str) -> None:
    with pytest.raises(DefinitionError, match=r"E1010: test_python_and_numpy\.py:\d+ \(") as caught:
        _define(body)
    assert remedy in str(caught.value)
    assert "cast" not in str(caught.value)


def test_numpy_scalars_on_either_side() -> None:
    x = np.arange(4, dtype=np.float32)
    f = _define(lambda x: np.float32(2) * x - np.int64(1) + np.float64(1) / (x + np.float32(1)) + np.array(2.0) ** x)
    assert np.allclose(f.evaluate(x), 2 * x - 1 + 1 / (x + 1) + 2**x)
    assert np.array_equal(_define(lambda x: np.float32(2) < x).evaluate(x), x > 2)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (lambda x: x * missing, "NameError: name 'missing'"),
        (lambda x: x * (1 // 0), "ZeroDivisionError: integer"),
        (lambda x: x * int("a"), "ValueError: invalid literal"),
        (lambda x: x * {}["a"], "KeyError: 'a'"),
        (lambda x: x * [][0], "IndexError: list"),
        (lambda x: x * len(3), "object of type 'int' has no len()"),
    ],
)
def test_python_errors_have_the_line(body: Callable[[og.Tensor], Any], found: str) -> None:
    with pytest.raises(DefinitionError, match=r"E1010: test_python_and_numpy\.py:\d+ \(.*\): f: ") as caught:
        _define(body)
    assert found in str(caught.value)
    assert "lambda" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_endless_recursion_has_the_line() -> None:
    def again(x: og.Tensor) -> og.Tensor:
        return again(x)

    with pytest.raises(DefinitionError, match=r"E1010: test_python_and_numpy\.py:\d+ \(.*\): f: RecursionError"):
        _define(again)


def test_deep_definitions_are_traced() -> None:
    def deep(x: og.Tensor) -> og.Tensor:
        y = x
        for i in range(5000):
            y = og.where(x > i, y, float(i))
        return y

    seen: list[og.Tensor] = []
    walk(_define(deep).trace().outputs(), seen.append)
    assert len(seen) > 5000


@pytest.mark.parametrize("value", [1.5, 3, True, np.float32(1.5), np.int64(3)])
def test_constant_results(value: float) -> None:
    """``return 1.5`` and ``og.results(y=1.5)`` are alike: a result without dims."""
    wanted = {float: "float32", int: "int64", bool: "bool"}[type(np.asarray(value).item())]
    one, named = _define(lambda x: value), _define(lambda x: og.results(y=value))
    x = np.ones(3, np.float32)
    lib = og.compile([one], target="x86", dtypes=["float32"])
    for y in (one.evaluate(x), named.evaluate(x)["y"], lib.f(x)):
        assert (y.shape, y.dtype.name, y.item()) == ((), wanted, value)


def test_an_inlined_op_may_return_a_number() -> None:
    two = _define(lambda x: 2)
    f = _define(lambda x: x * two(x))
    assert np.array_equal(f.evaluate(np.ones(3, np.float32)), np.full(3, 2, np.float32))


def test_extents_are_integers_of_numpy_too() -> None:
    f = _define(lambda x: x.split("a", b=np.int64(2), c=None))
    assert f.evaluate(np.arange(6, dtype=np.float32)).shape == (2, 3)
    g = _define(lambda x: x * og.compute(lambda taps: taps * 1.0, taps=np.int32(3)))
    assert g.evaluate(np.ones(2, np.float32)).shape == (2, 3)


@pytest.mark.parametrize("extent", [2.5, 0, -1, True, "3", np.float32(3), np.ones(2, np.int64)])
def test_other_extents_are_refused(extent: Any) -> None:
    with pytest.raises(DefinitionError, match=r"E1010: .*: split: the extent of 'b' is"):
        _define(lambda x: x.split("a", b=extent, c=None))
    with pytest.raises(DefinitionError, match=r"E1010: .*: compute: the extent of 'b' is"):
        _define(lambda x: x * og.compute(lambda b: b * 1.0, b=extent))


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64"), og.float64])
def test_element_types_of_numpy(dtype: Any) -> None:
    assert _define(lambda x: og.cast(x, dtype)).trace().results[0].dtype == og.float64
    assert _define(lambda x: x.cast(dtype)).trace().results[0].dtype == og.float64
    assert _define(lambda x: x.cast("float64")).trace().results[0].dtype == og.float64

    @og.op
    def f(x: og.Tensor["a", dtype]) -> og.Tensor:
        return x

    assert f.trace().inputs[0].dtype == og.float64


@pytest.mark.parametrize("dtype", [np.complex64, np.dtype(">f4"), object, None])
def test_other_element_types_are_refused(dtype: Any) -> None:
    with pytest.raises(DefinitionError, match=r"E1003: .*cast cannot take dtype"):
        _define(lambda x: og.cast(x, dtype))
    with pytest.raises(DefinitionError, match=r"E1005: .* is no dim name"):
        og.Tensor["a", dtype]


def test_bools_of_numpy() -> None:
    assert _define(lambda x: og.cast(x, np.bool_)).trace().results[0].dtype == og.bool_
