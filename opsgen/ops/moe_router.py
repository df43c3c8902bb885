"""Router of a mixture of experts: the k experts of each token with the largest logits, and their weights.

    top 1:  weight = softmax(logits)[expert], as in the Switch Transformer
    top 2:  the two of softmax(logits), divided by their sum, as in Mixtral

Source: Fedus et al., Switch Transformers, 2021 (arXiv:2101.03961); Jiang et al., Mixtral of Experts, 2024
(arXiv:2401.04088).

Preconditions: there are k experts at least; the call checks it before it runs. Of equal logits the first goes first.
Logits of -inf or NaN give no router: what comes of them is in range, and nothing else is promised.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def moe_router(logits: og.Tensor["...", "experts"], *, top: Literal[1, 2] = 2) -> og.Results:
    """expert = the top of logits; weight = softmax(logits)[expert], of two divided by their sum"""
    if top == 1:
        og.require("experts > 0", "a token has an expert")
        slot = og.compute(lambda slots: slots, slots=1)
        first = og.argmax(logits, over="experts")
        weight = og.max(og.softmax(logits, over="experts"), over="experts")
        return og.results(expert=og.where(slot == 0, first, first), weight=og.where(slot == 0, weight, weight))
    og.require("experts > 1", "a token has two experts")
    slot = og.compute(lambda slots: slots, slots=2)
    first = og.argmax(logits, over="experts")
    rest = og.where(og.index("experts") == first, float("-inf"), logits)
    second = og.argmax(rest, over="experts")
    # Of two, divided by their sum, the sum over all experts cancels: 1 / (1 + e^(other - this)).
    less = og.max(rest, over="experts") - og.max(logits, over="experts")
    weight = og.where(slot == 0, og.sigmoid(-less), og.sigmoid(less))
    return og.results(expert=og.where(slot == 0, first, second), weight=weight)


@moe_router.reference
def reference(logits: NDArray, *, top: int = 2) -> dict[str, NDArray]:
    logits = np.asarray(logits, np.float64)
    expert = np.argsort(-logits, axis=-1, kind="stable")[..., :top]
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weight = np.take_along_axis(e / e.sum(axis=-1, keepdims=True), expert, axis=-1)
    return {"expert": expert, "weight": weight / weight.sum(axis=-1, keepdims=True) if top > 1 else weight}


@moe_router.peer
def peer(logits: Any, *, top: int = 2) -> Any:
    import torch

    weight, expert = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).topk(top, -1)
    if top > 1:
        weight = weight / weight.sum(-1, keepdim=True)
    return {"expert": expert, "weight": weight.to(logits.dtype)}


moe_router.workload("Mixtral-8x7B, prefill", rows=2048, experts=8)
moe_router.workload("Mixtral-8x7B, 16 tokens", rows=16, experts=8)
moe_router.workload("Switch-Base-64", rows=2048, experts=64, attributes={"top": 1})
