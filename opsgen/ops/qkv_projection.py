"""The three projections of attention in one call: q, k and v, by head.

    q = x · q_weightᵀ + q_bias, and so k and v

Keys and values may have fewer heads than queries, and values vectors of their own length. Source: Vaswani et al.,
Attention Is All You Need, 2017 (arXiv:1706.03762); Ainslie et al., GQA, 2023 (arXiv:2305.13245).

Preconditions: none. Products are summed in float32 for half types, and rounded once, after the bias.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def qkv_projection(
    x: og.Tensor["...", "hidden"],
    q_weight: og.Tensor["heads", "head_dim", "hidden"],
    k_weight: og.Tensor["key_heads", "head_dim", "hidden"],
    v_weight: og.Tensor["key_heads", "value_dim", "hidden"],
    q_bias: og.Tensor["heads", "head_dim"] | None = None,
    k_bias: og.Tensor["key_heads", "head_dim"] | None = None,
    v_bias: og.Tensor["key_heads", "value_dim"] | None = None,
) -> og.Results:
    """q = x · q_weightᵀ + q_bias, k = x · k_weightᵀ + k_bias, v = x · v_weightᵀ + v_bias"""
    q, k, v = (og.dot(x, w, over="hidden") for w in (q_weight, k_weight, v_weight))
    return og.results(
        q=q if q_bias is None else q + q_bias,
        k=k if k_bias is None else k + k_bias,
        v=v if v_bias is None else v + v_bias,
    )


@qkv_projection.reference
def reference(
    x: NDArray,
    q_weight: NDArray,
    k_weight: NDArray,
    v_weight: NDArray,
    q_bias: NDArray | None = None,
    k_bias: NDArray | None = None,
    v_bias: NDArray | None = None,
) -> dict[str, NDArray]:
    found = {}
    for name, weight, bias in (("q", q_weight, q_bias), ("k", k_weight, k_bias), ("v", v_weight, v_bias)):
        y = np.tensordot(np.asarray(x, np.float64), np.asarray(weight, np.float64), ((-1,), (2,)))
        found[name] = y if bias is None else y + bias
    return found


@qkv_projection.peer
def peer(
    x: Any, q_weight: Any, k_weight: Any, v_weight: Any, q_bias: Any = None, k_bias: Any = None, v_bias: Any = None
) -> Any:
    from torch.nn import functional

    found = {}
    for name, weight, bias in (("q", q_weight, q_bias), ("k", k_weight, k_bias), ("v", v_weight, v_bias)):
        y = functional.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
        found[name] = y.unflatten(-1, weight.shape[:2])
    return found


qkv_projection.workload("BERT-base", rows=128, hidden=768, heads=12, key_heads=12, head_dim=64, value_dim=64)
qkv_projection.workload(
    "Llama-3-8B, prefill",
    rows=2048,
    hidden=4096,
    heads=32,
    key_heads=8,
    head_dim=128,
    value_dim=128,
    absent=("q_bias", "k_bias", "v_bias"),
)
