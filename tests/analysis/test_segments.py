"""Which indices never fall along the rows, and which products are grouped for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.analysis.monotone import never_falls
from opsgen.analysis.partition import partition
from opsgen.dsl import Op
from opsgen.dsl.trace import current
from opsgen.ops.grouped_linear import grouped_linear

Position = Callable[[Any, Any], Any]
"""Of the rows' ids and of offsets."""


def index_op(position: Position) -> Op:
    @og.op
    def value(ids: og.Tensor["n", og.int64], offsets: og.Tensor["m", og.int64]) -> og.Tensor:
        return position(ids, offsets)

    return value


def count(offsets: Any) -> Any:
    return og.sum(og.where(offsets <= og.index("n"), 1, 0), over="m")


RISING: dict[str, Position] = {
    "segment": lambda ids, offsets: og.segment(offsets, "n"),
    "count the other way": lambda ids, offsets: og.sum(og.where(og.index("n") < offsets, 0, 1), over="m"),
    "count of what is not": lambda ids, offsets: og.sum(og.where(~(offsets > og.index("n")), 3, -2), over="m"),
    "equal runs": lambda ids, offsets: og.index("n") // 16,
    "equal runs by a size": lambda ids, offsets: og.index("n") * og.size("m") // og.size("n"),
    "from the end": lambda ids, offsets: -(og.size("n") - og.index("n")),
    "clamped": lambda ids, offsets: og.min(og.max(count(offsets) - 1, 0), 3),
    "the last that began": lambda ids, offsets: og.max(og.where(offsets <= og.index("n"), 5, 0), over="m"),
    "two conditions": lambda ids, offsets: og.where((og.index("n") > 3) & (og.index("n") >= 2), 1, 0),
    "narrower inputs": lambda ids, offsets: og.cast(og.cast(offsets, og.int32), og.int64) + og.index("n"),
}
NOT_RISING: dict[str, Position] = {
    "any ids": lambda ids, offsets: ids,
    "to the end": lambda ids, offsets: og.size("n") - og.index("n"),
    "in turns": lambda ids, offsets: og.index("n") % 4,
    "falling count": lambda ids, offsets: og.sum(og.where(offsets <= og.index("n"), 0, 1), over="m"),
    "products of signs": lambda ids, offsets: og.index("n") * ids,
    "square": lambda ids, offsets: (og.index("n") - 4) * (og.index("n") - 4),
    "equal": lambda ids, offsets: og.where(offsets.at(m=og.index("n")) <= og.index("n"), 1, 0),
    "below zero": lambda ids, offsets: og.index("n") * -1,
    "wraps": lambda ids, offsets: og.cast(og.cast(og.index("n"), og.int8), og.int64),
    "divided by what falls below zero": lambda ids, offsets: og.index("n") // -3,
    "between": lambda ids, offsets: og.where((og.index("n") > 3) & (og.index("n") < 6), 1, 0),
}


def proved(position: Position) -> bool:
    graph = index_op(position).trace()
    return never_falls(graph.results[0].value, "n", {c.input for c in graph.checks if c.kind == "sorted"})


@pytest.mark.parametrize("position", RISING.values(), ids=RISING)
def test_what_is_proved_to_rise(position: Position) -> None:
    assert proved(position)


@pytest.mark.parametrize("position", NOT_RISING.values(), ids=NOT_RISING)
def test_what_is_not_proved(position: Position) -> None:
    assert not proved(position)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-9, 30), min_size=1, max_size=6), st.sampled_from(sorted(RISING)))
def test_what_is_proved_is_true_of_any_input(offsets: list[int], name: str) -> None:
    ids = np.arange(20)[::-1].copy()
    found = index_op(RISING[name]).evaluate(ids, np.array(offsets))
    assert np.all(np.diff(found) >= 0), found


def test_sorted_inputs_rise_where_the_op_says_so() -> None:
    def stated(ids: Any, offsets: Any) -> Any:
        og.require_sorted(ids)
        assert [c.kind for c in current().checks] == ["sorted"]
        return ids + 1

    assert proved(stated)
    assert not proved(lambda ids, offsets: ids + 1)


# -- what is grouped -----------------------------------------------------------------------------------------------
def product(position: Position, turned: bool = False) -> Op:
    @og.op
    def of_groups(
        x: og.Tensor["n", "k"],
        w: og.Tensor["g", "c", "k"],
        ids: og.Tensor["n", og.int64],
        offsets: og.Tensor["m", og.int64],
    ) -> og.Tensor:
        own = w.at(g=position(ids, offsets))
        return og.dot(own, x, over="k") if turned else og.dot(x, own, over="k")

    return of_groups


def patterns(op: Op, **choices: Any) -> list[str]:
    return [g.pattern for g in partition(op.trace(**choices)).groups]


def test_an_index_that_rises_makes_groups() -> None:
    segment = RISING["segment"]
    assert patterns(product(segment)) == ["row_reduction", "grouped_contraction"]
    assert patterns(product(segment, turned=True)) == ["row_reduction", "grouped_contraction"]
    assert patterns(product(RISING["equal runs"])) == ["grouped_contraction"]

    def stated(ids: Any, offsets: Any) -> Any:
        og.require_sorted(ids)
        return ids

    assert patterns(product(stated)) == ["grouped_contraction"]


@pytest.mark.parametrize("name", ["any ids", "in turns", "to the end"])
def test_an_index_that_may_fall_makes_none(name: str) -> None:
    assert patterns(product(NOT_RISING[name])) == ["row_reduction"]


def test_the_parts_are_found_by_what_they_are() -> None:
    [_, group] = partition(product(RISING["segment"], turned=True).trace()).groups
    parts = group.segments
    assert parts is not None
    assert (parts.groups, parts.rows, parts.left.dims, parts.right.dims) == ("g", "n", ("n", "k"), ("g", "c", "k"))
    assert group.after and group.after[0].stored == [parts.position]


def test_what_follows_joins_the_product() -> None:
    assert patterns(grouped_linear, attributes={"activation": "gelu"}) == ["row_reduction", "grouped_contraction"]


def test_a_gated_pair_is_two_products() -> None:
    @og.op
    def gated(
        x: og.Tensor["n", "k"],
        gate: og.Tensor["g", "c", "k"],
        up: og.Tensor["g", "c", "k"],
        offsets: og.Tensor["m", og.int64],
    ) -> og.Tensor:
        own = og.segment(offsets, "n")
        first, second = (og.dot(x, w.at(g=own), over="k") for w in (gate, up))
        return first * og.sigmoid(first) * second

    assert patterns(gated) == ["row_reduction", "grouped_contraction", "grouped_contraction"]


def test_a_vector_for_each_group_is_no_product_of_matrices() -> None:
    @og.op
    def vectors(x: og.Tensor["n", "k"], w: og.Tensor["g", "k"], offsets: og.Tensor["m", og.int64]) -> og.Tensor:
        return og.dot(x, w.at(g=og.segment(offsets, "n")), over="k")

    assert "grouped_contraction" not in patterns(vectors)


def test_rows_that_have_more_than_one_dim_are_no_run() -> None:
    @og.op
    def wide(x: og.Tensor["n", "r", "k"], w: og.Tensor["g", "c", "k"], offsets: og.Tensor["m", og.int64]) -> og.Tensor:
        return og.dot(x, w.at(g=og.segment(offsets, "n")), over="k")

    assert "grouped_contraction" not in patterns(wide)


def test_a_left_factor_that_costs_something_is_computed_once() -> None:
    @og.op
    def heavy(x: og.Tensor["n", "k"], w: og.Tensor["g", "c", "k"], offsets: og.Tensor["m", og.int64]) -> og.Tensor:
        return og.dot(og.exp(x), w.at(g=og.segment(offsets, "n")), over="k")

    assert sorted(patterns(heavy)) == ["grouped_contraction", "map", "row_reduction"]
