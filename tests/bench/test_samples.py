"""Results at some positions are those of the whole, value and bound, for every op; and positions are well chosen."""

from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.analysis import samples
from opsgen.dsl import Op
from opsgen.dsl.op import variants
from opsgen.lowering.error_bounds import bounds_at
from opsgen.ops import all_ops
from tests import arrays, attention_inputs, grouped_inputs

SIZES = {
    "rows": 9, "hidden": 33, "columns": 33, "vocab": 5, "in_features": 17, "out_features": 33, "batch": 2, "heads": 6,
    "kv_heads": 3, "queries": 7, "keys": 19, "head_dim": 8, "value_dim": 6, "length": 7,
    "tokens": 20, "experts": 4, "offsets": 5, "entries": 5, "destinations": 4, "classes": 6, "sources": 7, "wanted": 3,
    "channels": 64, "pixels": 5,
}  # fmt: skip


WHOLE = ("relu", "gelu", "absmax", "abs_percentile", "moe_capacity_router")
"""Each result depends on all positions along each dim, or there is no named one."""


def call(op: Op, absent: frozenset[str]) -> dict[str, Any]:
    if "attention" in op.name:
        given = attention_inputs.arguments(op, SIZES)
        return {n: x for n, x in given.items() if n not in absent}
    if op.name == "grouped_linear":
        return grouped_inputs.arguments([0, 4, 4, 9], 33, 17, "float64", tuple(absent))
    own = arrays.SIZES_OF.get(op.name)  # sizes that must fit together
    return arrays.arguments(op, absent, (SIZES["rows"],), own[1] if own else SIZES, "float64")


@pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)
def test_positions_have_the_values_and_bounds_of_the_whole(op: Op) -> None:
    random = np.random.default_rng(0)
    for absent in variants(op):
        given = call(op, absent)
        block = {"block_size": attention_inputs.BLOCK} if op.name == "block_sparse_attention" else {}
        graph = op.trace(og.float64, absent=absent, attributes=block)
        sizes = {d: n for i in graph.inputs for d, n in zip(i.dims, given[i.name].shape)}
        leaves = {i.name: given[i.name] for i in graph.inputs} | {s.name: given[s.name] for s in graph.scalars}
        whole = bounds_at(graph, sizes, leaves)
        dims = samples.independent_dims(graph)
        assert dims or op.name in WHOLE, "something can be cut down"
        positions = {d: np.flatnonzero(random.random(sizes[d]) < 0.5) for d in dims}
        some = {
            i.name: given[i.name][np.ix_(*(positions.get(d, np.arange(sizes[d])) for d in i.dims))]
            for i in graph.inputs
        }
        found = bounds_at(graph, sizes, {**leaves, **some}, positions)
        for r in graph.results:
            at = np.ix_(*(positions.get(d, np.arange(n)) for d, n in zip(r.value.dims, whole[r.name].value.shape)))
            # numpy's order of a sum depends on the shape.
            np.testing.assert_allclose(found[r.name].value, whole[r.name].value[at], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(found[r.name].bound, whole[r.name].bound[at], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("softmax", {"rows"}),
        ("linear", {"rows", "out_features"}),
        ("causal_attention", {"batch", "heads", "queries", "value_dim"}),
        ("paged_attention", {"batch", "queries", "heads", "value_dim"}),
        ("embedding", {"rows", "hidden"}),
        ("masked_mean_pool", {"batch", "hidden"}),
    ],
)
def test_dims_that_can_be_cut_down(name: str, wanted: set[str]) -> None:
    assert set(samples.independent_dims(all_ops()[name].trace())) == wanted


def test_dims_whose_extents_make_others_stay_whole() -> None:
    @og.op
    def halves(x: og.Tensor["n", "m"]):
        return og.sum(og.split(x, "n", half=None, pair=2), over="pair")

    @og.op
    def joined(x: og.Tensor["n", "m"], y: og.Tensor["k", "m"]):
        return og.concat(x, y, dim=("n", "k"), into="both")

    assert samples.independent_dims(joined.trace()) == ("m",)
    assert samples.independent_dims(halves.trace()) == ("m",)


def test_choice_keeps_every_value_small_and_holds_the_ends() -> None:
    graph = all_ops()["linear"].trace(absent=frozenset({"bias", "residual"}))
    extents = {"rows": 4096, "in_features": 1000, "out_features": 11008}
    chosen = samples.choose(graph, extents, 1 << 20)
    counts = {d: len(p) for d, p in chosen.items()}
    assert samples.largest_node(graph, {**extents, **counts}) <= 1 << 20
    assert counts["rows"] * counts["out_features"] > 250  # not far fewer than fit
    for d, positions in chosen.items():
        assert positions[0] == 0 and positions[-1] == extents[d] - 1
        assert (np.diff(positions) > 0).all()
        assert np.diff(positions).max() <= 2 * extents[d] / len(positions) + 1  # spread over the dim
    assert samples.choose(graph, {"rows": 3, "in_features": 5, "out_features": 7}, 1 << 20) == {}
