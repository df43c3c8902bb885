"""Causal attention, where a query attends the keys up to its own position, with its log-sum-exp.

    top-left:      query i is at position i
    bottom-right:  query i is at position i + keys - queries: the queries are the last tokens, as with a cache of keys

The two differ where the lengths do. ``lse`` = log Σ exp(scale · q kᵀ) over the keys that a query attends, in float32
at least; with it, attention over parts of the keys can be merged. Heads of q may share those of k and v in groups.
Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762); torch.nn.attention.bias, causal_upper_left
and causal_lower_right, for the two forms.

Preconditions: heads is a multiple of kv_heads. A query before the first key gives 0, and lse -inf.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import causal_mask, cudnn_attention, dense_reference, grouped_heads, torch_attention


@og.op
def causal_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
    v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
    *,
    scale: float,
    align: Literal["bottom-right", "top-left"] = "bottom-right",
) -> og.Results:
    """y = softmax(scale · q kᵀ where key <= query, over keys) v"""
    k, v = grouped_heads(k, v)
    scores = og.dot(q, k, over="head_dim") * scale
    position = og.index("queries")
    if align == "bottom-right":
        position = position + (og.size("keys") - og.size("queries"))
    seen = og.index("keys") <= position
    return og.results(
        y=og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys"),
        lse=og.logsumexp(scores, over="keys", where=seen),
    )


@causal_attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, *, scale: float, align: str = "bottom-right") -> dict[str, NDArray]:
    queries, keys = q.shape[2], k.shape[2]
    seen = np.tri(queries, keys, keys - queries if align == "bottom-right" else 0, dtype=bool)
    return dense_reference(q, k, v, scale=scale, seen=seen)


@causal_attention.peer
def peer(q: Any, k: Any, v: Any, *, scale: float, align: str = "bottom-right") -> Any:
    if align == "top-left" or q.shape[2] == k.shape[2]:
        return torch_attention(q, k, v, scale=scale, causal=True)
    seen = None if q.shape[2] == 1 else causal_mask(q.shape[2], k.shape[2], q.device)
    return torch_attention(q, k, v, scale=scale, mask=seen)


@causal_attention.peer(name="cuDNN")
def cudnn(q: Any, k: Any, v: Any, *, scale: float, align: str = "bottom-right") -> Any:
    same = align == "top-left" or q.shape[2] == k.shape[2]
    return cudnn_attention(q, k, v, scale=scale, causal=True) if same else NotImplemented


causal_attention.workload("GPT-2", batch=1, heads=12, kv_heads=12, queries=1024, keys=1024, head_dim=64, value_dim=64)
causal_attention.workload(
    "Llama-3-8B, prefill", batch=1, heads=32, kv_heads=8, queries=2048, keys=2048, head_dim=128, value_dim=128
)
causal_attention.workload(
    "Llama-3-8B, one token", batch=1, heads=32, kv_heads=8, queries=1, keys=4096, head_dim=128, value_dim=128
)
causal_attention.workload(
    "DeepSeek-V3, values of another width",
    batch=1,
    heads=128,
    kv_heads=128,
    queries=512,
    keys=512,
    head_dim=192,
    value_dim=128,
)
