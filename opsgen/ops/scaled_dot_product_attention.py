"""Attention with a bias or a mask for each pair of query and key: y = softmax(scale · q kᵀ + bias where mask) v.

``bias`` is added to the scores, as relative positions are; -inf in it masks. ``mask`` is True where a query may attend
a key. Both can be views that are expanded (stride 0) along the dims that they do not depend on. Heads of q may share
those of k and v in groups. Source: torch.nn.functional.scaled_dot_product_attention, whose attn_mask is one of the
two and whose is_causal is the op `causal_attention`.

Preconditions: heads is a multiple of kv_heads. A query that may attend no key gives 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import cudnn_attention, dense_reference, grouped_heads, torch_attention


@og.op
def scaled_dot_product_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
    v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
    bias: og.Tensor["batch", "heads", "queries", "keys"] | None = None,
    mask: og.Tensor["batch", "heads", "queries", "keys", og.bool_] | None = None,
    *,
    scale: float,
) -> og.Tensor:
    """y = softmax(scale · q kᵀ + bias where mask and bias is not -inf, over keys) v"""
    k, v = grouped_heads(k, v)
    scores, seen = og.dot(q, k, over="head_dim") * scale, mask
    if bias is not None:
        scores = scores + bias
        there = bias != float("-inf")
        seen = there if mask is None else mask & there
    return og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys")


@scaled_dot_product_attention.reference
def reference(
    q: NDArray, k: NDArray, v: NDArray, bias: NDArray | None = None, mask: NDArray | None = None, *, scale: float
) -> NDArray:
    added = 0.0 if bias is None else np.asarray(bias, np.float64)
    seen = (True if mask is None else np.asarray(mask)) & ~np.isneginf(added)
    return dense_reference(q, k, v, scale=scale, score=lambda s: s + added, seen=seen)["y"]


@scaled_dot_product_attention.peer
def peer(q: Any, k: Any, v: Any, bias: Any = None, mask: Any = None, *, scale: float) -> Any:
    both = bias is not None and mask is not None
    return torch_attention(
        q, k, v, scale=scale, mask=bias.masked_fill(~mask, float("-inf")) if both else mask if bias is None else bias
    )


@scaled_dot_product_attention.peer(name="cuDNN")
def cudnn(q: Any, k: Any, v: Any, bias: Any = None, mask: Any = None, *, scale: float) -> Any:
    return NotImplemented if mask is not None or bias is not None else cudnn_attention(q, k, v, scale=scale)


scaled_dot_product_attention.workload(
    "T5-base", batch=1, heads=12, kv_heads=12, queries=512, keys=512, head_dim=64, value_dim=64, absent=("mask",)
)
scaled_dot_product_attention.workload(
    "Qwen2.5-0.5B", batch=1, heads=14, kv_heads=2, queries=512, keys=512, head_dim=64, value_dim=64, absent=("bias",)
)
scaled_dot_product_attention.workload(
    "Whisper-base, cross",
    batch=1,
    heads=8,
    kv_heads=8,
    queries=4,
    keys=1500,
    head_dim=64,
    value_dim=64,
    absent=("bias", "mask"),
)
