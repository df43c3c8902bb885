"""Attention over the keys that a mask allows: y = softmax(scale · q kᵀ where mask) v.

``mask`` is True where a key may be attended, for all heads and queries alike: the padding mask of a batch of
sequences. Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762).

Preconditions: none. A sequence without any allowed key gives 0. What k and v hold at the other keys does not
matter, NaN included.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import dense_reference, torch_attention


@og.op
def masked_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "heads", "keys", "head_dim"],
    v: og.Tensor["batch", "heads", "keys", "value_dim"],
    mask: og.Tensor["batch", "keys", og.bool_],
    *,
    scale: float,
) -> og.Tensor:
    """y = softmax(scale · q kᵀ where mask, over keys) v"""
    scores = og.dot(q, k, over="head_dim") * scale
    return og.dot(og.softmax(scores, over="keys", where=mask), og.where(mask, v, 0.0), over="keys")


@masked_attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, mask: NDArray, *, scale: float) -> NDArray:
    return dense_reference(q, k, v, scale=scale, seen=np.asarray(mask)[:, None, None, :])["y"]


@masked_attention.peer
def peer(q: Any, k: Any, v: Any, mask: Any, *, scale: float) -> Any:
    return torch_attention(q, k, v, scale=scale, mask=mask[:, None, None, :])


masked_attention.workload("BERT-base", batch=8, heads=12, queries=128, keys=128, head_dim=64, value_dim=64)
masked_attention.workload("MiniLM-L6", batch=8, heads=12, queries=128, keys=128, head_dim=32, value_dim=32)
masked_attention.workload("MiniLM-L6, short", batch=32, heads=12, queries=32, keys=32, head_dim=32, value_dim=32)
