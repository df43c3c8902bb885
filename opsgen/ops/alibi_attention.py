"""Causal attention with linear biases (ALiBi): scores = scale · q kᵀ - slope · (query - key).

Each head has a slope. The queries are the last tokens (bottom-right alignment, see `causal_attention`). Heads of q may
share those of k and v in groups. Source: Press, Smith and Lewis, Train Short, Test Long: Attention with Linear Biases
Enables Input Length Extrapolation, 2021 (arXiv:2108.12409).

Preconditions: heads is a multiple of kv_heads. Slopes are float32 for half types too, in which most would be rounded.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import dense_reference, grouped_heads, torch_attention


@og.op
def alibi_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
    v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
    slopes: og.Tensor["heads", og.float32],
    *,
    scale: float,
) -> og.Tensor:
    """y = softmax(scale · q kᵀ - slope · (query - key) where key <= query, over keys) v"""
    k, v = grouped_heads(k, v)
    position = og.index("queries") + (og.size("keys") - og.size("queries"))
    scores = og.dot(q, k, over="head_dim") * scale - slopes * (position - og.index("keys"))
    seen = og.index("keys") <= position
    y = og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys")
    return og.cast(y, q.dtype)


@alibi_attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, slopes: NDArray, *, scale: float) -> NDArray:
    distance = np.arange(k.shape[2] - q.shape[2], k.shape[2])[:, None] - np.arange(k.shape[2])
    bias = np.asarray(slopes, np.float64)[:, None, None] * distance
    return dense_reference(q, k, v, scale=scale, score=lambda s: s - bias, seen=distance >= 0)["y"]


@alibi_attention.peer
def peer(q: Any, k: Any, v: Any, slopes: Any, *, scale: float) -> Any:
    import torch

    keys = k.shape[2]
    distance = torch.arange(keys - q.shape[2], keys, device=q.device)[:, None] - torch.arange(keys, device=q.device)
    bias = (-slopes[:, None, None] * distance).to(q.dtype).masked_fill(distance < 0, float("-inf"))
    return torch_attention(q, k, v, scale=scale, mask=bias)


alibi_attention.workload("BLOOM-560M", batch=1, heads=16, kv_heads=16, queries=512, keys=512, head_dim=64, value_dim=64)
alibi_attention.workload(
    "MPT-7B, one token", batch=1, heads=32, kv_heads=32, queries=1, keys=2048, head_dim=128, value_dim=128
)
