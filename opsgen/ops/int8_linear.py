"""A linear layer of int8 activations and weights: y = (x · weightᵀ) · scale · x_scale · weight_scale + bias.

Products are summed in int32, exactly; the scales make real numbers of the sum (dequantisation), in float32, and the
result is rounded once. A number is its code times its scale: x_scale has one for each row, weight_scale one for each
output feature, and scale is one for the whole tensor (or the product of both tensors').
Source: torch._int_mm for the product; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference (2018), for the scales, symmetric here (no zero points).

Preconditions: in_features <= 131072, or the sums may wrap.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def int8_linear(
    x: og.Tensor["...", "in_features", og.int8],
    weight: og.Tensor["out_features", "in_features", og.int8],
    weight_scale: og.Tensor["out_features", og.float32],
    x_scale: og.Tensor["...", og.float32] | None = None,
    bias: og.Tensor["out_features", og.float32] | None = None,
    *,
    scale: float = 1.0,
    out_dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
) -> og.Tensor:
    """y = (x · weightᵀ) · scale · x_scale · weight_scale + bias"""
    y = og.cast(og.dot(x, weight, over="in_features"), og.float32) * (weight_scale * scale)
    if x_scale is not None:
        y = y * x_scale
    if bias is not None:
        y = y + bias
    return og.cast(y, out_dtype)


@int8_linear.reference
def reference(
    x: NDArray,
    weight: NDArray,
    weight_scale: NDArray,
    x_scale: NDArray | None = None,
    bias: NDArray | None = None,
    *,
    scale: float = 1.0,
    out_dtype: str = "bfloat16",
) -> NDArray:
    y = np.asarray(x, np.float64) @ np.asarray(weight, np.float64).T  # exact: the sums are integers below 2^53
    y = y * scale * np.asarray(weight_scale, np.float64)
    if x_scale is not None:
        y = y * np.asarray(x_scale, np.float64)[..., None]
    return y if bias is None else y + bias


@int8_linear.peer
def peer(
    x: Any,
    weight: Any,
    weight_scale: Any,
    x_scale: Any = None,
    bias: Any = None,
    *,
    scale: float = 1.0,
    out_dtype: str = "bfloat16",
) -> Any:
    """The sums by torch._int_mm, the rest as its own kernels; in float64 on the CPU."""
    import torch

    exact = not x.is_cuda
    if exact:
        y = x.double() @ weight.double().T
    else:
        y = torch._int_mm(x.reshape(-1, x.shape[-1]), weight.T).reshape(*x.shape[:-1], -1).float()
    y = y * scale * weight_scale.to(y.dtype)
    if x_scale is not None:
        y = y * x_scale.to(y.dtype)[..., None]
    if bias is not None:
        y = y + bias.to(y.dtype)
    return y if exact else y.to(getattr(torch, out_dtype))


int8_linear.workload("BERT-base ffn in", rows=128, in_features=768, out_features=3072)
int8_linear.workload("Llama-3-8B qkv, one token", rows=1, in_features=4096, out_features=6144, absent=("bias",))
int8_linear.workload(
    "Llama-3-8B gate, static scales", rows=2048, in_features=4096, out_features=14336, absent=("bias", "x_scale")
)
