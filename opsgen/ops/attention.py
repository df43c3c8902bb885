"""Scaled dot-product attention: y = softmax(scale · q kᵀ) v.

Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762). There scale is 1/√head_dim; here it is a
run-time argument.

Preconditions: none. The head dim of v may differ from that of q and k. No keys give 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import cudnn_attention, torch_attention


@og.op
def attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "heads", "keys", "head_dim"],
    v: og.Tensor["batch", "heads", "keys", "value_dim"],
    *,
    scale: float,
) -> og.Tensor:
    """y = softmax(scale · q kᵀ, over keys) v"""
    scores = og.dot(q, k, over="head_dim") * scale
    return og.dot(og.softmax(scores, over="keys"), v, over="keys")


@attention.reference
def reference(q: NDArray, k: NDArray, v: NDArray, *, scale: float) -> NDArray:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * scale
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(axis=-1, keepdims=True), v)


@attention.peer
def peer(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    return torch_attention(q, k, v, scale=scale)


@attention.peer(name="cuDNN")
def cudnn(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    return cudnn_attention(q, k, v, scale=scale)


attention.workload("BERT-base", batch=1, heads=12, queries=128, keys=128, head_dim=64, value_dim=64)
attention.workload("BERT-large", batch=1, heads=16, queries=512, keys=512, head_dim=64, value_dim=64)
attention.workload("MiniLM-L6", batch=8, heads=12, queries=128, keys=128, head_dim=32, value_dim=32)
attention.workload("GPT-2, one token", batch=1, heads=12, queries=1, keys=1024, head_dim=64, value_dim=64)
