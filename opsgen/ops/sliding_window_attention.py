"""Causal attention in a window: a query attends its own position and the window - 1 keys before it.

The queries are the last tokens (bottom-right alignment, see `causal_attention`). Heads of q may share those of k and v
in groups. Source: Beltagy et al., Longformer: The Long-Document Transformer, 2020 (arXiv:2004.05150); Jiang et al.,
Mistral 7B, 2023 (arXiv:2310.06825), for the causal form.

Preconditions: heads is a multiple of kv_heads; window is a whole number, which a call may choose (above 2²⁴ it is
rounded to the nearest float32). A query that sees no key gives 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import causal_mask, dense_reference, grouped_heads, torch_attention


@og.op
def sliding_window_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
    v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
    *,
    scale: float,
    window: float,
) -> og.Tensor:
    """y = softmax(scale · q kᵀ where query - window < key <= query, over keys) v"""
    k, v = grouped_heads(k, v)
    scores = og.dot(q, k, over="head_dim") * scale
    position = og.index("queries") + (og.size("keys") - og.size("queries"))
    seen = (og.index("keys") > position - og.cast(window, og.int64)) & (og.index("keys") <= position)
    return og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys")


@sliding_window_attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, *, scale: float, window: float) -> NDArray:
    distance = np.arange(k.shape[2] - q.shape[2], k.shape[2])[:, None] - np.arange(k.shape[2])
    return dense_reference(q, k, v, scale=scale, seen=(distance >= 0) & (distance < window))["y"]


@sliding_window_attention.peer
def peer(q: Any, k: Any, v: Any, *, scale: float, window: float) -> Any:
    seen = causal_mask(q.shape[2], k.shape[2], q.device, int(window))
    return torch_attention(q, k, v, scale=scale, mask=seen)


sliding_window_attention.workload(
    "Mistral-7B, prefill",
    batch=1,
    heads=32,
    kv_heads=8,
    queries=2048,
    keys=2048,
    head_dim=128,
    value_dim=128,
    scalars={"window": 4096.0},
)
sliding_window_attention.workload(
    "Gemma-2-2B, one token",
    batch=1,
    heads=8,
    kv_heads=4,
    queries=1,
    keys=4096,
    head_dim=256,
    value_dim=256,
    scalars={"window": 4096.0},
)
