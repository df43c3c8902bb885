"""Causal attention with scores held below a cap: scores = cap · tanh(scale · q kᵀ / cap).

The queries are the last tokens (bottom-right alignment, see `causal_attention`). Heads of q may share those of k and v
in groups. Source: Gemma Team, Gemma 2: Improving Open Language Models at a Practical Size, 2024 (arXiv:2408.00118).

Preconditions: heads is a multiple of kv_heads; cap is not 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import causal_mask, dense_reference, grouped_heads


@og.op
def softcap_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
    v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
    *,
    scale: float,
    cap: float,
) -> og.Tensor:
    """y = softmax(cap · tanh(scale · q kᵀ / cap) where key <= query, over keys) v"""
    k, v = grouped_heads(k, v)
    scores = cap * og.tanh(og.dot(q, k, over="head_dim") * scale / cap)
    seen = og.index("keys") <= og.index("queries") + (og.size("keys") - og.size("queries"))
    return og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys")


@softcap_attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, *, scale: float, cap: float) -> NDArray:
    seen = np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool)
    return dense_reference(q, k, v, scale=scale, score=lambda s: cap * np.tanh(s / cap), seen=seen)["y"]


@softcap_attention.peer
def peer(q: Any, k: Any, v: Any, *, scale: float, cap: float) -> Any:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = cap * (q @ k.mT * (scale / cap)).tanh()
    seen = causal_mask(q.shape[2], k.shape[2], q.device)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v


softcap_attention.workload(
    "Gemma-2-2B, prefill",
    batch=1,
    heads=8,
    kv_heads=4,
    queries=1024,
    keys=1024,
    head_dim=256,
    value_dim=256,
    scalars={"cap": 50.0},
)
softcap_attention.workload(
    "Gemma-2-9B, one token",
    batch=1,
    heads=16,
    kv_heads=8,
    queries=1,
    keys=4096,
    head_dim=256,
    value_dim=256,
    scalars={"cap": 50.0},
)
