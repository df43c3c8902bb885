"""Scans and scatters in the language: types, dims, what they are over nothing, and every mistake."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.problem import serialize
from opsgen.dsl.tensor import Scan
from opsgen.errors import DefinitionError


# -- scans -------------------------------------------------------------------------------------------------------------
def test_scans_are_those_of_numpy() -> None:
    @og.op
    def all_of_them(x: og.Tensor["a", "n"]) -> og.Tensor:
        return og.results(
            total=og.cumsum(x, over="n"),
            product=og.cumprod(x, over="a"),
            largest=og.cummax(x, over="n"),
            smallest=og.cummin(x, over="a"),
            before=og.cumsum(x, over="n", exclusive=True),
            behind=og.cumsum(x, over="n", reverse=True),
            after=og.cummax(x, over="a", exclusive=True, reverse=True),
        )

    x = np.random.default_rng(0).standard_normal((3, 5))
    found = all_of_them.evaluate(x)
    np.testing.assert_allclose(found["total"], np.cumsum(x, 1))
    np.testing.assert_allclose(found["product"], np.cumprod(x, 0))
    np.testing.assert_array_equal(found["largest"], np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(found["smallest"], np.minimum.accumulate(x, 0))
    np.testing.assert_allclose(found["before"], np.cumsum(x, 1) - x, atol=1e-15)
    np.testing.assert_allclose(found["behind"], np.cumsum(x[:, ::-1], 1)[:, ::-1])
    np.testing.assert_array_equal(found["after"], [np.maximum(x[1], x[2]), x[2], np.full(5, -np.inf)])


@pytest.mark.parametrize(
    ("dtype", "total", "largest"), [("int32", "int64", "int32"), ("float16", "float16", "float16")]
)
def test_types(dtype: str, total: str, largest: str) -> None:
    kind = getattr(og, dtype)

    @og.op
    def f(x: og.Tensor["n", kind]) -> og.Tensor:
        return og.results(s=og.cumsum(x, over="n"), p=og.cumprod(x, over="n"), m=og.cummax(x, over="n", exclusive=True))

    found = f.evaluate(np.array([3, 1, 4], dtype))
    assert [str(found[k].dtype) for k in "spm"] == [total, total, largest]
    assert found["m"][0] == (np.iinfo(dtype).min if dtype == "int32" else -np.inf)
    assert found["p"].tolist() == [3, 3, 12]


def test_nan_stays_from_where_it_comes() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        return og.results(high=og.cummax(x, over="n"), low=og.cummin(x, over="n", reverse=True))

    found = f.evaluate(np.array([1.0, np.nan, 3.0], np.float32))
    np.testing.assert_array_equal(found["high"], [1, np.nan, np.nan])
    np.testing.assert_array_equal(found["low"], [np.nan, np.nan, 3])


def test_leading_dims_and_dims_of_no_length() -> None:
    @og.op
    def f(x: og.Tensor["...", "n"]) -> og.Tensor:
        return og.cumsum(x, over="n", exclusive=True)

    for shape in ((2, 3, 4), (0,), (3, 0), (0, 3)):
        assert f.evaluate(np.ones(shape, np.float32)).shape == shape


def test_graphs_that_differ_in_a_scan_are_different() -> None:
    texts = set()
    for function in (og.cumsum, og.cumprod):
        for exclusive in (False, True):
            for reverse in (False, True):
                for dim in ("a", "b"):

                    @og.op
                    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
                        return function(x, over=dim, exclusive=exclusive, reverse=reverse)  # noqa: B023

                    texts.add(serialize(f.trace()))
    assert len(texts) == 16


# -- scatters ----------------------------------------------------------------------------------------------------------
def test_a_scatter_is_its_expression() -> None:
    @og.op
    def short(x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], like: og.Tensor["v"]) -> og.Tensor:
        return og.scatter_add(x, i, over="n", into="v")

    @og.op(name="short")
    def long(x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], like: og.Tensor["v"]) -> og.Tensor:
        return og.transpose(og.sum(og.where(i == og.index("v"), x, 0), over="n"), "v", "m")

    assert serialize(short.trace()) == serialize(long.trace())


def test_scatters_are_those_of_numpy() -> None:
    @og.op
    def f(x: og.Tensor["n", "m"], i: og.Tensor["n", og.int32]) -> og.Tensor:
        return og.results(
            total=og.scatter_add(x, i, over="n", into="v", extent=4),
            high=og.scatter_max(x, i, over="n", into="v", extent=4),
            low=og.scatter_min(x, i, over="n", into="v", extent=4),
            count=og.scatter_add(1, i, over="n", into="v", extent=4),
            last=og.scatter_max(og.index("n"), i, over="n", into="v", extent=4),
        )

    rng = np.random.default_rng(1)
    x, i = rng.standard_normal((7, 2)), np.array([0, 3, 3, -1, 4, 0, 3], np.int32)
    found = f.evaluate(x, i)
    wanted = {k: np.full((4, 2), v) for k, v in (("total", 0.0), ("high", -np.inf), ("low", np.inf))}
    for row, to in zip(x, i, strict=True):
        if 0 <= to < 4:
            wanted["total"][to] += row
            wanted["high"][to] = np.maximum(wanted["high"][to], row)
            wanted["low"][to] = np.minimum(wanted["low"][to], row)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value)
    assert found["count"].dtype == np.int64 and found["count"].tolist() == [2, 0, 0, 3]
    assert found["last"].tolist() == [5, np.iinfo(np.int64).min, np.iinfo(np.int64).min, 6]


def test_the_destination_takes_the_place_of_what_is_summed() -> None:
    @og.op
    def f(x: og.Tensor["b", "n", "k", "m"], i: og.Tensor["b", "n", "k", og.int64]) -> og.Tensor:
        return og.scatter_add(x, i, over=("k", "n"), into="v", extent=og.size("m"))

    assert f.trace().results[0].value.dims == ("b", "v", "m")


def test_elements_that_are_set() -> None:
    """Of those with the same position the last one stays; those outside go nowhere."""

    @og.op
    def f(t: og.Tensor["v", "m"], x: og.Tensor["n", "m"], i: og.Tensor["n", og.int32]) -> og.Tensor:
        return og.results(
            rows=og.scatter_set(t, x, i, over="n", into="v"), number=og.scatter_set(t, 7, i, over="n", into="v")
        )

    rng = np.random.default_rng(1)
    t, x, i = rng.standard_normal((4, 2)), rng.standard_normal((7, 2)), np.array([0, 3, 3, -1, 4, 0, 3], np.int32)
    t[2] = np.nan
    found = f.evaluate(t, x, i)
    np.testing.assert_array_equal(found["rows"], [x[5], t[1], t[2], x[6]])
    np.testing.assert_array_equal(found["number"], [[7, 7], t[1], t[2], [7, 7]])


def test_elements_that_are_set_are_rounded_to_the_type_of_the_tensor() -> None:
    @og.op
    def f(
        h: og.Tensor["v", "m", og.float16], x: og.Tensor["n", "m", og.float32], i: og.Tensor["n", og.int64]
    ) -> og.Tensor:
        after = og.scatter_set(h, x, i, over="n", into="v")
        return og.results(after=after, apart=og.cast(after, og.float32))

    x = np.float32([[1 + 2**-14, 1e9]])
    found = f.evaluate(np.zeros((2, 2), np.float16), x, np.int64([1]))
    assert found["after"].dtype == np.float16
    np.testing.assert_array_equal(found["apart"], [[0, 0], [1, np.inf]])


# -- mistakes ----------------------------------------------------------------------------------------------------------
Define = Callable[[og.Tensor, og.Tensor, og.Tensor], og.Tensor]


@pytest.mark.parametrize(
    ("code", "define", "fact"),
    [
        ("E1002", lambda x, i, p: og.cumsum(x, over="k"), "over 'k', but the operand has dims ['n', 'm']"),
        ("E1003", lambda x, i, p: og.cumsum(p, over="n"), "cumsum cannot take bool; it takes numbers"),
        ("E1010", lambda x, i, p: og.cummax(x, over=("n", "m")), "cummax: 2 dims to run along. Merge them first"),
        ("E1010", lambda x, i, p: og.cumsum(x, over="n", reverse=1), "reverse is 1. Pass True or False."),
        ("E1010", lambda x, i, p: og.cumprod(None, over="n"), "cumprod: an operand is None"),
        ("E1003", lambda x, i, p: og.scatter_add(x, x, over="n", into="k"), "positions of type float32"),
        ("E1002", lambda x, i, p: og.scatter_add(x, i, over="m", into="k"), "the operand has dims ['n']"),
        ("E1001", lambda x, i, p: og.scatter_max(x, i, over="n", into="z"), "unknown dim 'z'"),
        ("E1007", lambda x, i, p: og.scatter_add(x, i, over="n", into="m"), "dim 'm' is there twice in scatter_add"),
        ("E1007", lambda x, i, p: og.scatter_add(x, i, over="n", into="k", extent=3), "with extents k and 3"),
        ("E1010", lambda x, i, p: og.scatter_min(x, i, over="n", into="z", extent=0), "the extent of 'z' is 0"),
        ("E1003", lambda x, i, p: og.scatter_add(p, i, over="n", into="k"), "branches that are both numbers"),
        ("E1003", lambda x, i, p: og.scatter_set(x.rename(n="q"), x, x, over="n", into="q"), "positions of type float"),
        (
            "E1003",
            lambda x, i, p: og.scatter_set(i.rename(n="q"), x.at(m=0), i, over="n", into="q"),
            "float32 that goes",
        ),
        ("E1003", lambda x, i, p: og.scatter_set(i.rename(n="q"), 0.5, i, over="n", into="q"), "float32 that"),
        (
            "E1003",
            lambda x, i, p: og.scatter_set(p.rename(n="q"), 1, i, over="n", into="q"),
            "int64 that goes into bool",
        ),
        ("E1002", lambda x, i, p: og.scatter_set(x.rename(n="q"), x, i, over="m", into="q"), "has dims ['n']"),
        ("E1010", lambda x, i, p: og.scatter_set(x, x, i, over="n", into="m"), "the tensor ['n', 'm']"),
        ("E1010", lambda x, i, p: og.scatter_set(i.rename(n="q"), x, i, over="n", into="q"), "x has dims ['n', 'm']"),
        ("E1001", lambda x, i, p: og.scatter_set(x.rename(n="q"), x, i, over="n", into="z"), "unknown dim 'z'"),
    ],
)
def test_mistakes(code: str, define: Define, fact: str) -> None:
    with pytest.raises(DefinitionError) as caught:

        @og.op
        def f(
            x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], p: og.Tensor["n", og.bool_], t: og.Tensor["k"]
        ) -> og.Tensor:
            return define(x, i, p)

    text = str(caught.value)
    assert re.match(rf"{code}: test_scan_and_scatter\.py:\d+ \(", text), text
    assert fact in text


def test_outside_of_a_definition() -> None:
    with pytest.raises(DefinitionError, match=r"E1010: .*cumsum: it is called outside an op's definition"):
        og.cumsum(1.0, over="n")
    with pytest.raises(DefinitionError, match=r"E1010: .*scatter_add: it is called outside an op's definition"):
        og.scatter_add(1.0, 1, over="n", into="m")


def test_a_scan_is_a_node_of_its_own() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        return og.cumsum(x, over="n", reverse=True)

    node = f.trace().results[0].value
    assert isinstance(node, Scan) and node.children() == (node.arg,)
    assert (node.op, node.over, node.exclusive, node.reverse) == ("sum", "n", False, True)
    assert "running sum along n (reverse)" in og.inspect(f)
