"""Which expressions are scans and scatters, and what lies in their groups."""

from collections.abc import Callable
from typing import Any

import pytest

import opsgen as og
from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.analysis.partition import partition
from opsgen.analysis.scatter import Scatter, scatter_of
from opsgen.compiler.inspect import formula
from opsgen.dsl import Op
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.tensor import Reduce
from opsgen.ops import all_ops
from tests import scans_and_scatters as made


def groups(op: Op) -> list[Group]:
    return list(partition(op.trace()).groups)


def patterns(op: Op) -> list[str]:
    return [g.pattern for g in groups(op)]


# -- scans -------------------------------------------------------------------------------------------------------------
def test_the_ops_of_the_library() -> None:
    ops = all_ops()
    assert patterns(ops["cumulative_sum"]) == ["scan"]
    assert patterns(ops["scatter_add"]) == ["scatter"]
    assert patterns(ops["gather"]) == patterns(ops["one_hot"]) == ["map"]


def test_scans_of_the_same_values_share_a_group_with_the_maps_around_them() -> None:
    (group,) = groups(made.rows)
    assert (group.pattern, group.space, group.over) == ("scan", ("rows", "n"), ("n",))
    assert len(group.scans) == 2 and len(group.stored) == 3


def test_scans_that_run_another_way_have_groups_of_their_own() -> None:
    @og.op
    def f(x: og.Tensor["a", "n"]) -> og.Tensor:
        return og.results(
            forward=og.cumsum(x, over="n"), backward=og.cumsum(x, over="n", reverse=True), down=og.cumsum(x, over="a")
        )

    assert patterns(f) == ["scan", "scan", "scan"]


def test_a_scan_of_a_scan_comes_after_it() -> None:
    @og.op
    def f(x: og.Tensor["a", "n"]) -> og.Tensor:
        return og.cumsum(og.cumsum(x, over="n") * 2.0, over="n") + x

    first, second = groups(f)
    assert first.pattern == second.pattern == "scan"
    assert len(first.stored) == len(second.stored) == 1
    assert second.needs(first)


def test_what_is_read_at_other_positions_is_stored() -> None:
    found = groups(made.after_a_norm)
    assert [g.pattern for g in found] == ["row_reduction", "scan", "scan", "row_reduction", "map"]
    assert [len(g.stored) for g in found] == [1, 1, 1, 1, 1]


def test_a_scan_between_two_reductions_breaks_their_chain() -> None:
    @og.op
    def f(q: og.Tensor["a", "d"], k: og.Tensor["b", "d"], v: og.Tensor["b", "e"]) -> og.Tensor:
        scores = og.cumsum(og.dot(q, k, over="d"), over="b")
        return og.dot(og.softmax(scores, over="b"), v, over="b")

    assert patterns(f) == ["contraction", "scan", "row_reduction", "contraction"]
    pytest.importorskip("sympy")

    @og.op
    def g(x: og.Tensor["a", "n"]) -> og.Tensor:
        return og.sum(og.cumsum(x - og.max(x, over="n"), over="n"), over="n")

    assert "an earlier result is used through a scan, which needs it finished" in og.inspect(g, "proof")


def test_a_scan_costs_one_flop_an_element() -> None:
    graph = made.columns.trace()
    assert formula(cost.flops(graph), graph.extents) == "n*m"


# -- scatters ----------------------------------------------------------------------------------------------------------
Define = Callable[..., og.Tensor]


def scatter(define: Define) -> Scatter | None:
    @og.op
    def f(
        x: og.Tensor["n", "m"], i: og.Tensor["n", og.int32], p: og.Tensor["n", og.bool_], t: og.Tensor["v"]
    ) -> og.Tensor:
        return define(x, i, p, og.index("v"))

    node = f.trace().results[0].value
    assert isinstance(node, Reduce)
    return scatter_of(node)


@pytest.mark.parametrize(
    "define",
    [
        lambda x, i, p, v: og.sum(og.where(i == v, x, 0), over="n"),
        lambda x, i, p, v: og.sum(og.where(v == i, x, 0.0), over="n"),
        lambda x, i, p, v: og.sum(og.where(v != i, 0, x), over="n"),
        lambda x, i, p, v: og.sum(og.where(~(v == i), 0, x), over="n"),
        lambda x, i, p, v: og.sum(og.where(p, og.where(i == v, x, 0), 0), over="n"),
        lambda x, i, p, v: og.sum(og.where((i == v) & p, x * x, 0), over="n"),
        lambda x, i, p, v: og.max(og.where(i == v, x, float("-inf")), over="n"),
        lambda x, i, p, v: og.min(og.where(i == v, i, 2**31 - 1), over="n"),
        lambda x, i, p, v: og.prod(og.where(i // 2 - 1 == v, x, 1), over="n"),
        lambda x, i, p, v: og.sum(og.where(i == v, x, 0), over=("n", "m")),
    ],
)
def test_what_is_a_scatter(define: Define) -> None:
    found = scatter(define)
    assert found is not None
    assert found.destinations == ("v",) and found.source == ("n",)


@pytest.mark.parametrize(
    "define",
    [
        lambda x, i, p, v: og.sum(og.where(i == v, x, 1), over="n"),  # others add something too
        lambda x, i, p, v: og.max(og.where(i == v, x, 0), over="n"),
        lambda x, i, p, v: og.max(og.where(i == v, x, float("inf")), over="n"),
        lambda x, i, p, v: og.sum(og.where(i <= v, x, 0), over="n"),
        lambda x, i, p, v: og.sum(og.where((i == v) | p, x, 0), over="n"),
        lambda x, i, p, v: og.sum(og.where(i == v, x * v, 0), over="n"),  # what is summed depends on the destination
        lambda x, i, p, v: og.sum(og.where(i + v == v, x, 0), over="n"),
        lambda x, i, p, v: og.sum(og.where((i == v) & (v > 3), x, 0), over="n"),
        lambda x, i, p, v: og.sum(og.where(i * 0.5 == v, x, 0), over="n"),  # no whole position
        lambda x, i, p, v: og.sum(og.where(i == v, x, 0), over="m"),  # every source is a row of its own
        lambda x, i, p, v: og.sum(og.where(og.index("n") == v, x, 0), over="v"),
        lambda x, i, p, v: og.argmax(og.where(i == v, x, 0), over="n"),
        lambda x, i, p, v: og.sum(og.where(i == v, 1.0, 0.0) * x, over="n"),  # 0 · inf is NaN
    ],
)
def test_what_is_none(define: Define) -> None:
    assert scatter(define) is None


def test_the_parts_of_a_scatter() -> None:
    (group,) = groups(made.masked)
    found = group.scatter
    assert found is not None and group.pattern == "scatter"
    assert (found.batch, found.destinations, found.columns) == (("b",), ("v",), ("m",))
    assert (found.source, found.rest) == (("n", "s"), ())
    assert [c.dims for c in found.linked] == [("b", "n")] and [c.dims for c in found.others] == [("n", "m")]
    first, second = groups(made.two_positions)
    assert first.scatter is not None and second.scatter is not None
    assert set(first.scatter.destinations) == {"p", "q"} and first.scatter.columns == ("m",)
    assert (second.scatter.source, second.scatter.rest) == (("n",), ("m",))


def test_positions_that_another_group_finds_are_stored() -> None:
    @og.op
    def routed(x: og.Tensor["n", "m"], gate: og.Tensor["n", "e"]) -> og.Tensor:
        return og.scatter_add(og.softmax(x, over="m"), og.argmax(gate, over="e"), over="n", into="e") * 2.0

    found = groups(routed)
    assert [g.pattern for g in found] == ["row_reduction", "row_reduction", "scatter"]
    assert [len(g.stored) for g in found] == [1, 1, 1]


def test_conditions_of_other_groups_are_stored_too() -> None:
    @og.op
    def kept(x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], t: og.Tensor["v"]) -> og.Tensor:
        small = og.max(x, over="m") < 0.5
        return og.sum(og.where(small, 0, og.where(i == og.index("v"), x, 0)), over="n")

    first, second = groups(kept)
    assert (first.pattern, second.pattern) == ("row_reduction", "scatter") and second.needs(first)
    assert [s.dims for s in first.stored] == [("n",)]


def test_a_scatter_costs_what_its_sources_do() -> None:
    @og.op
    def f(x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], t: og.Tensor["v"]) -> Any:
        return og.scatter_add(x, i, over="n", into="v")

    graph = f.trace()
    assert formula(cost.flops(graph), graph.extents) == "n*m"


# -- updates of rows ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("rows_set", ["update"]),
        ("set_and_read", ["update", "row_reduction"]),
        ("number_set", ["update"]),
        ("two_set", ["row_reduction", "update", "map", "update"]),
        ("set_from_itself", ["scatter", "map", "map"]),
        ("old_and_new", ["scatter", "map", "row_reduction", "map"]),
        ("set_in_a_copy", ["scatter", "map"]),
    ],
)
def test_what_is_an_update_of_rows(name: str, wanted: list[str], dtype: str) -> None:
    [op] = [op for op in made.SETS if op.name == name]
    found = partition(op.trace(DTYPES[dtype])).groups
    assert sorted(g.pattern for g in found) == sorted(wanted)
    if name == "set_and_read":  # what it reads is there when it runs
        assert found[1].needs(found[0]) and not found[0].needs(found[1])
    if name == "two_set":  # nobody reads the cache after it was overwritten
        update = {g.update.old.name: g for g in found if g.update is not None}
        readers = [g for g in found if g.pattern in ("map", "row_reduction")]
        assert all(update["k"].needs(g) for g in readers) and update["k"].update.scatter.linked


Choose = Callable[[Any, Any, Any, Any], Any]


@pytest.mark.parametrize(
    ("choose", "is_one"),
    [
        (lambda last, x, i, c: og.where(last >= 0, x.at(n=last), c), True),
        (lambda last, x, i, c: og.where(last < 0, c, x.at(n=last)), True),
        (lambda last, x, i, c: og.where(last >= 0, 1.0, c), True),
        (lambda last, x, i, c: og.where(last >= 0, (x * 2 + 1).at(n=last), c), True),
        (lambda last, x, i, c: og.where(last >= 1, x.at(n=last), c), False),  # source 0 goes nowhere
        (lambda last, x, i, c: og.where(last >= 0, x.at(n=last), c * 2), False),  # the others change, too
        (lambda last, x, i, c: og.where(last >= 0, x.at(n=last) * og.index("v"), c), False),
        (lambda last, x, i, c: og.where(last >= 0, x.at(n=last // 2), c), False),
        (lambda last, x, i, c: og.where(last >= 0, x.at(n=og.max(last, 0)) + c, c), False),
        (lambda last, x, i, c: og.where(last >= 0, c, x.at(n=last)), False),
    ],
)
def test_what_an_update_of_rows_looks_like(choose: Choose, is_one: bool) -> None:
    @og.op
    def f(c: og.Mut["v", "m"], x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64]) -> Any:
        last = og.scatter_max(og.index("n"), i, over="n", into="v")
        return og.results(c=choose(last, x, i, c))

    assert ("update" in patterns(f)) == is_one


def test_an_update_costs_what_its_rows_do() -> None:
    graph = made.rows_set.trace()
    assert formula(cost.bytes_moved(graph), graph.extents) == "8*h*m*n + 8*n"
    graph = made.old_and_new.trace()
    assert formula(cost.bytes_moved(graph), graph.extents) == "8*v*m + 8*m*n + 8*n"  # the old one is read
