"""Router of a mixture of experts whose experts take no more than so many tokens: who goes where, and to which place.

    expert   = the experts of a token with the largest logits, largest first
    weight   = softmax(logits)[expert]; of several, divided by their sum
    position = how many earlier tokens have chosen the expert, or -1 from ``capacity`` on: such a token is dropped
    load     = how many tokens each expert takes

A token that an expert drops has the weight 0 there, and its other weights stay as they are. The token of an expert and
a position is its place in the batch [experts, capacity] that the expert computes. Without a capacity none is dropped.

Source: Lepikhin et al., GShard, 2020 (arXiv:2006.16668); Fedus et al., Switch Transformers, 2021 (arXiv:2101.03961).
An expert fills up in the order of the tokens, whatever their choice; GShard lets first choices go before second ones.

Preconditions: there are as many experts as choices; the call checks it before it runs. Of equal logits the first goes
first. Logits of -inf or NaN give no weights: experts and positions are in range, and nothing else is promised. The work
is tokens times experts.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._top_k import largest


@og.op
def moe_capacity_router(
    logits: og.Tensor["tokens", "experts"], capacity: og.Tensor[og.int64] | None = None, *, top: int = 2
) -> og.Results:
    """expert = the top of logits; position = how many earlier tokens chose it, if that is below capacity"""
    og.require(f"experts >= {top}", "a token has as many experts as it chooses")
    expert = largest(logits, "experts", top, "slots")
    chosen_logit = logits.at(experts=expert)
    if top == 1:
        weight = og.exp(chosen_logit - og.logsumexp(logits, over="experts"))
    else:
        weight = og.softmax(chosen_logit, over="slots")  # of several, divided by their sum, that over all cancels
    chosen = og.scatter_add(1, expert, over="slots", into="experts")
    position = og.cumsum(chosen, over="tokens", exclusive=True).at(experts=expert)
    load = og.sum(chosen, over="tokens")
    if capacity is not None:
        position = og.where(position < capacity, position, -1)
        weight = og.where(position < 0, 0.0, weight)
        load = og.min(load, og.max(capacity, 0))
    return og.results(expert=expert, weight=og.cast(weight, logits.dtype), position=position, load=load)


@moe_capacity_router.reference
def reference(logits: NDArray, capacity: NDArray | None = None, *, top: int = 2) -> dict[str, NDArray]:
    logits = np.asarray(logits, np.float64)
    expert = np.argsort(-logits, axis=-1, kind="stable")[:, :top]
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weight = np.take_along_axis(e / e.sum(axis=-1, keepdims=True), expert, axis=-1)
    weight = weight / weight.sum(axis=-1, keepdims=True) if top > 1 else weight
    position, load = np.full(expert.shape, -1), np.zeros(logits.shape[1], np.int64)
    for t, s in np.ndindex(*expert.shape):
        if capacity is None or load[expert[t, s]] < capacity:
            position[t, s] = load[expert[t, s]]
            load[expert[t, s]] += 1
    return {"expert": expert, "weight": np.where(position < 0, 0, weight), "position": position, "load": load}


@moe_capacity_router.peer
def peer(logits: Any, capacity: Any = None, *, top: int = 2) -> Any:
    import torch

    weight, expert = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).topk(top, -1)
    if top > 1:
        weight = weight / weight.sum(-1, keepdim=True)
    chosen = torch.zeros_like(logits, dtype=torch.int64).scatter_(1, expert, 1)
    position, load = (chosen.cumsum(0) - chosen).gather(1, expert), chosen.sum(0)
    if capacity is not None:
        position = torch.where(position < capacity, position, -1)
        weight, load = weight.masked_fill(position < 0, 0), torch.minimum(load, capacity.clamp(min=0))
    return {"expert": expert, "weight": weight.to(logits.dtype), "position": position, "load": load}


moe_capacity_router.workload("Switch-Base-64", tokens=2048, experts=64, attributes={"top": 1})
moe_capacity_router.workload("Mixtral-8x7B, prefill", tokens=2048, experts=8)
moe_capacity_router.workload("Qwen3-30B-A3B", tokens=2048, experts=128, attributes={"top": 8}, absent=("capacity",))
