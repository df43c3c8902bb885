"""The three projections of attention as one product, with a weight that holds all three: y = x · weightᵀ + bias.

y is [..., 3, heads, head_dim]: queries, keys and values of a head are y[..., 0, h], y[..., 1, h] and y[..., 2, h],
which are views of it. The weight is [3, heads, head_dim, hidden], which one of [3 · hidden, hidden] is, too, once it
is reshaped, without a copy. For fewer heads of keys and values than of queries see `qkv_projection`.

Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762); the layout is that of
torch.nn.MultiheadAttention (in_proj_weight) and of FlashAttention's packed calls.

Preconditions: the first dim of weight and bias is 3; the call checks it before it runs. Products are summed in float32
for half types, and rounded once, after the bias.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def packed_qkv_projection(
    x: og.Tensor["...", "hidden"],
    weight: og.Tensor["parts", "heads", "head_dim", "hidden"],
    bias: og.Tensor["parts", "heads", "head_dim"] | None = None,
) -> og.Tensor:
    """y = x · weightᵀ + bias, over hidden"""
    og.require("parts == 3", "the weight is that of queries, of keys and of values")
    y = og.dot(x, weight, over="hidden")
    return y if bias is None else y + bias


@packed_qkv_projection.reference
def reference(x: NDArray, weight: NDArray, bias: NDArray | None = None) -> NDArray:
    parts = [np.einsum("...i,hdi->...hd", np.asarray(x, np.float64), w.astype(np.float64)) for w in weight]
    y = np.stack(parts, axis=-3)
    return y if bias is None else y + np.asarray(bias, np.float64)


@packed_qkv_projection.peer
def peer(x: Any, weight: Any, bias: Any = None) -> Any:
    from torch.nn import functional

    y = functional.linear(x, weight.flatten(0, 2), None if bias is None else bias.flatten())
    return y.unflatten(-1, weight.shape[:3])


packed_qkv_projection.workload("BERT-base", rows=128, hidden=768, parts=3, heads=12, head_dim=64)
packed_qkv_projection.workload("GPT-2, prefill", rows=1024, hidden=768, parts=3, heads=12, head_dim=64)
packed_qkv_projection.workload(
    "Llama-2-7B, prefill", rows=2048, hidden=4096, parts=3, heads=32, head_dim=128, absent=("bias",)
)
