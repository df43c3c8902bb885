"""Ops with a product for each run of rows, as users write them."""

from typing import Any

import numpy as np

import opsgen as og
from tests import arrays


@og.op
def gated(
    x: og.Tensor["tokens", "inner"],
    gate: og.Tensor["experts", "width", "inner"],
    up: og.Tensor["experts", "width", "inner"],
    offsets: og.Tensor["offsets", og.integer],
) -> og.Tensor:
    """silu(x · gateᵀ) · (x · upᵀ), with each token's expert"""
    own = og.segment(offsets, "tokens")
    first, second = (og.dot(x, w.at(experts=own), over="inner") for w in (gate, up))
    return first * og.sigmoid(first) * second


@og.op
def by_sorted_ids(
    x: og.Tensor["tokens", "inner"], weight: og.Tensor["experts", "inner", "width"], ids: og.Tensor["tokens", og.int64]
) -> og.Tensor:
    """x · weight[id], for ids that never fall, and weights that are contiguous along the columns"""
    og.require_sorted(ids)
    return og.dot(x, weight.at(experts=ids), over="inner")


@og.op
def by_any_ids(
    x: og.Tensor["tokens", "inner"], weight: og.Tensor["experts", "inner", "width"], ids: og.Tensor["tokens", og.int64]
) -> og.Tensor:
    """x · weight[id]"""
    return og.dot(x, weight.at(experts=ids), over="inner")


@og.op
def in_runs(
    x: og.Tensor["heads", "tokens", "inner"], weight: og.Tensor["blocks", "width", "heads", "inner"]
) -> og.Tensor:
    """A weight for each head and each seven tokens; in float32"""
    return og.cast(og.dot(x, weight.at(blocks=og.index("tokens") // 7), over="inner"), og.float32)


@og.op
def turned(
    x: og.Tensor["inner", "tokens"],
    weight: og.Tensor["experts", "width", "inner"],
    offsets: og.Tensor["offsets", og.integer],
) -> og.Tensor:
    """(x² · weightᵀ)ᵀ, with what expert each token has; the left factor is contiguous along the tokens"""
    expert = og.segment(offsets, "tokens")
    return og.transpose(og.dot(x * x, weight.at(experts=expert), over="inner") + expert, "width", "tokens")


ALL = (gated, by_sorted_ids, by_any_ids, in_runs, turned)


def calls(dtype: str) -> list[dict[str, Any]]:
    """A few of each op."""
    rng = np.random.default_rng(5)

    def r(*shape: int) -> Any:
        return arrays.values(rng, shape, dtype)

    found: list[dict[str, Any]] = []
    for offsets in ([0, 7, 7, 60], [0, 0, 3], [0, 130, 140, 150]):
        cuts = np.array(offsets)
        n, g = offsets[-1], len(offsets) - 1
        ids = np.repeat(np.arange(g), np.diff(cuts))
        found += [
            {"op": gated, "x": r(n, 33), "gate": r(g, 17, 33), "up": r(g, 17, 33), "offsets": cuts},
            {"op": by_sorted_ids, "x": r(n, 33), "weight": r(g, 33, 70), "ids": ids},
            {"op": by_any_ids, "x": r(n, 33), "weight": r(g, 33, 70), "ids": rng.permutation(ids)},
            {"op": in_runs, "x": r(2, n, 20), "weight": r(n // 7 + 1, 18, 2, 20)},
            {"op": turned, "x": r(20, n), "weight": r(g, 18, 20), "offsets": cuts},
        ]
    return found
