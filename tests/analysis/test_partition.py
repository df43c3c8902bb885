"""Into which groups ops fall, what each stores, and the order in which they run."""

from typing import Any

import opsgen as og
from opsgen.analysis.groups import Partition
from opsgen.analysis.partition import partition
from opsgen.dsl import Op
from opsgen.ops import all_ops


def parts(op: Op, **choices: Any) -> Partition:
    return partition(op.trace(**choices))


def patterns(op: Op, **choices: Any) -> list[str]:
    return [g.pattern for g in parts(op, **choices).groups]


OPS = all_ops()


# -- the standard ops --------------------------------------------------------------------------------------------------
def test_norms_are_one_row_reduction() -> None:
    for name in ("layer_norm", "rms_norm", "softmax"):
        assert patterns(OPS[name]) == ["row_reduction"], name


def test_layer_norm_has_both_reductions_in_its_group() -> None:
    (group,) = parts(OPS["layer_norm"]).groups
    assert len(group.reductions) == 2
    assert group.over == ("hidden",)
    assert group.space == ("rows",)


def test_an_add_before_a_norm_is_stored_by_the_norm() -> None:
    for name in ("add_rms_norm", "add_layer_norm"):
        (group,) = parts(OPS[name]).groups
        assert group.pattern == "row_reduction"
        assert len(group.stored) == 2, name


def test_linear_with_all_that_follows_it_is_one_contraction() -> None:
    for activation in ("none", "relu", "gelu", "gelu_tanh", "silu"):
        assert patterns(OPS["linear"], attributes={"activation": activation}) == ["contraction"]
    (group,) = parts(OPS["linear"], attributes={"activation": "gelu"}).groups
    assert len(group.stored) == 1
    assert group.over == ("in_features",)


def test_attention_is_one_chain_or_two_contractions_around_a_row_reduction() -> None:
    assert patterns(OPS["attention"]) == ["online_chain"]
    assert patterns(OPS["masked_attention"]) == [
        "map",
        "online_chain",
    ]  # what the mask leaves of the values comes first
    for name in ("attention", "masked_attention"):
        unfused = partition(OPS[name].trace(), chains=False).groups
        assert [g.pattern for g in unfused] == ["contraction", "row_reduction", "contraction"], name


def test_elementwise_ops_and_gathers_are_maps() -> None:
    for name in ("gelu", "relu", "silu", "embedding"):
        assert patterns(OPS[name]) == ["map"], name


def test_sums_over_the_same_dim_that_share_an_input_share_a_group() -> None:
    @og.op
    def moments(x: og.Tensor["...", "n"]) -> og.Tensor:
        return og.results(first=og.sum(x, over="n"), second=og.sum(x * x, over="n"), largest=og.max(x, over="n"))

    (group,) = parts(moments).groups
    assert len(group.reductions) == 3


def test_sums_of_different_inputs_have_groups_of_their_own() -> None:
    @og.op
    def two(x: og.Tensor["m", "n"], y: og.Tensor["m", "n"]) -> og.Tensor:
        return og.results(a=og.sum(x, over="n"), b=og.sum(y, over="n"))

    assert patterns(two) == ["row_reduction", "row_reduction"]


# -- what is a contraction ---------------------------------------------------------------------------------------------
def test_a_product_with_a_vector_is_a_row_reduction() -> None:
    @og.op
    def matrix_vector(a: og.Tensor["m", "k"], x: og.Tensor["k"]) -> og.Tensor:
        return og.dot(a, x, over="k")

    assert patterns(matrix_vector) == ["row_reduction"]


def test_integers_are_no_contraction() -> None:
    @og.op
    def product(a: og.Tensor["m", "k", og.int64], b: og.Tensor["k", "n", og.int64]) -> og.Tensor:
        return og.dot(a, b, over="k")

    assert patterns(product) == ["row_reduction"]


def test_swiglu() -> None:
    @og.op
    def block(
        x: og.Tensor["...", "k"], gate: og.Tensor["n", "k"], up: og.Tensor["n", "k"], down: og.Tensor["k2", "n"]
    ) -> og.Tensor:
        h = og.dot(x, gate, over="k")
        return og.dot(h * og.sigmoid(h) * og.dot(x, up, over="k"), down, over="n")

    found = parts(block)
    assert [g.pattern for g in found.groups] == ["contraction", "contraction", "contraction"]
    assert [len(g.stored) for g in found.groups] == [1, 1, 1]


def test_work_on_the_left_operand_is_done_once_and_on_the_right_one_while_it_is_packed() -> None:
    @og.op
    def left(x: og.Tensor["m", "k"], w: og.Tensor["n", "k"]) -> og.Tensor:
        return og.dot(og.tanh(x), w, over="k")

    @og.op
    def right(x: og.Tensor["m", "k"], w: og.Tensor["n", "k"]) -> og.Tensor:
        return og.dot(x, og.tanh(w), over="k")

    assert patterns(left) == ["map", "contraction"]
    assert patterns(right) == ["contraction"]


# -- what is stored between groups -------------------------------------------------------------------------------------
def test_a_value_read_at_other_positions_is_stored_first() -> None:
    @og.op
    def neighbours(x: og.Tensor["n", "m"]) -> og.Tensor:
        total = og.sum(x, over="m")
        return total - total.at(n=og.index("n") + 1)

    first, second = parts(neighbours).groups
    assert first.pattern == "row_reduction"
    assert len(first.stored) == 1
    assert second.needs(first)


def test_free_values_read_at_other_positions_are_computed_there() -> None:
    @og.op
    def shifted(x: og.Tensor["n"]) -> og.Tensor:
        return og.tanh(x).at(n=og.index("n") + 1)

    assert patterns(shifted) == ["map"]


def test_nested_reductions_are_two_groups() -> None:
    @og.op
    def pool(x: og.Tensor["n", "h", "w"]) -> og.Tensor:
        tiles = og.split(og.split(x, "h", h2=None, dh=3), "w", w2=None, dw=4)
        return og.sum(og.max(tiles, over=("dh", "dw")), over=("h2", "w2"))

    assert patterns(pool) == ["row_reduction", "row_reduction"]


def test_a_free_result_is_no_memory_that_others_read() -> None:
    @og.op
    def both(x: og.Tensor["n", "m"]) -> og.Tensor:
        y = og.split(x, "n", a=None, b=2)
        return og.results(total=og.sum(og.sum(y, over="b") * y, over="a"), y=y)

    found = parts(both)
    y = found.graph.results[1].value
    (owner,) = [g for g in found.groups if any(s is y for s in g.stored)]
    for group in found.groups[: owner.index]:
        assert found.read_from(group, y) is None, "it has not been written by then"


# -- updates -----------------------------------------------------------------------------------------------------------
def order(found: Partition) -> list[set[str]]:
    return [{r.name for r in found.graph.results if any(s is r.value for s in g.stored)} for g in found.groups]


def test_an_update_runs_after_those_who_read_the_old_value() -> None:
    @og.op
    def exchange(cache: og.Mut["n"], x: og.Tensor["n"]) -> og.Tensor:
        return og.results(cache=x, old=cache.at(n=og.index("n") + 1))

    assert order(parts(exchange)) == [{"old"}, {"cache"}]


def test_an_update_in_place_needs_no_memory_of_its_own() -> None:
    @og.op
    def decay(cache: og.Mut["n", "m"], x: og.Tensor["n", "m"]) -> og.Tensor:
        return og.results(cache=cache * 0.5 + x)

    assert patterns(decay) == ["map"]


def test_an_update_that_reads_other_elements_goes_through_memory() -> None:
    @og.op
    def shift(cache: og.Mut["n"]) -> og.Tensor:
        return og.results(cache=cache.at(n=og.index("n") + 1))

    first, second = parts(shift).groups
    assert second.needs(first)


def test_an_update_whose_readers_need_the_new_value_goes_through_memory() -> None:
    @og.op
    def mix(cache: og.Mut["n"]) -> og.Tensor:
        total = og.sum(cache, over="n")
        return og.results(spread=cache.at(n=og.index("n") + 1) - total, cache=cache / total)

    assert order(parts(mix))[-1] == {"cache"}


def test_two_updates_that_read_each_other() -> None:
    @og.op
    def swap(a: og.Mut["n"], b: og.Mut["n"]) -> og.Tensor:
        return og.results(a=b.at(n=og.index("n") + 1), b=a.at(n=og.index("n") + 1))

    written = [i for i, names in enumerate(order(parts(swap))) if names]
    assert min(written) > 0, "one of the old values must be kept before either is overwritten"
