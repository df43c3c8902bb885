"""Attention over the keys that a mask allows: y = softmax(scale · q kᵀ where mask) v.

``mask`` is True where a key may be attended, for all heads and queries alike: the padding mask of a batch of
sequences. Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762).

Preconditions: none. A sequence without any allowed key gives 0. What k and v hold at the other keys does not
matter, NaN included.
"""

import numpy as np
from numpy.typing import NDArray

import opsgen as og

# Below every score that occurs, and finite: the maximum of a row without any allowed key can be subtracted, where -inf
# would give -inf - (-inf) = NaN.
_MASKED = -1e30


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
    scores = og.where(mask, og.dot(q, k, over="head_dim") * scale, _MASKED)
    return og.dot(og.softmax(scores, over="keys"), og.where(mask, v, 0.0), over="keys")


@masked_attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, mask: NDArray, *, scale: float) -> NDArray:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, allowed in enumerate(np.asarray(mask, bool)):
        if allowed.any():
            scores = np.einsum("hqd,hkd->hqk", q[b], k[b][:, allowed]) * scale
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[b] = np.einsum("hqk,hkd->hqd", weights / weights.sum(axis=-1, keepdims=True), v[b][:, allowed])
    return out


masked_attention.workload("BERT-base", batch=8, heads=12, queries=128, keys=128, head_dim=64, value_dim=64)
masked_attention.workload("MiniLM-L6", batch=8, heads=12, queries=128, keys=128, head_dim=32, value_dim=32)
masked_attention.workload("MiniLM-L6, short", batch=32, heads=12, queries=32, keys=32, head_dim=32, value_dim=32)
