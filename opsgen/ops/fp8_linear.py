"""A linear layer of float8 activations and weights: y = (x · weightᵀ) · scale · x_scale · weight_scale + bias.

Products are summed in float32, the scales are applied in float32, and the result is rounded once, to bfloat16. A number
is its code times its scale: x_scale has one for each row, weight_scale one for each output feature (rowwise scaling),
and scale, in the device's memory, is one for all (the product of both tensors' in tensorwise scaling).
Source: torch._scaled_mm.

Preconditions: none. x and weight are float8_e4m3fn unless compiled for float8_e5m2.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def fp8_linear(
    x: og.Tensor["...", "in_features", og.float8],
    weight: og.Tensor["out_features", "in_features", og.float8],
    scale: og.Tensor[og.float32] | None = None,
    x_scale: og.Tensor["...", og.float32] | None = None,
    weight_scale: og.Tensor["out_features", og.float32] | None = None,
    bias: og.Tensor["out_features", og.bfloat16] | None = None,
) -> og.Tensor:
    """y = (x · weightᵀ) · scale · x_scale · weight_scale + bias"""
    y = og.cast(og.dot(x, weight, over="in_features"), og.float32)
    if scale is not None:
        y = y * scale
    if weight_scale is not None:
        y = y * weight_scale
    if x_scale is not None:
        y = y * x_scale
    if bias is not None:
        y = y + bias
    return og.cast(y, og.bfloat16)


@fp8_linear.reference
def reference(
    x: NDArray,
    weight: NDArray,
    scale: NDArray | None = None,
    x_scale: NDArray | None = None,
    weight_scale: NDArray | None = None,
    bias: NDArray | None = None,
) -> NDArray:
    y = np.asarray(x, np.float64) @ np.asarray(weight, np.float64).T
    if scale is not None:
        y = y * np.asarray(scale, np.float64)
    if weight_scale is not None:
        y = y * np.asarray(weight_scale, np.float64)
    if x_scale is not None:
        y = y * np.asarray(x_scale, np.float64)[..., None]
    return y if bias is None else y + np.asarray(bias, np.float64)


@fp8_linear.peer
def peer(
    x: Any, weight: Any, scale: Any = None, x_scale: Any = None, weight_scale: Any = None, bias: Any = None
) -> Any:
    """torch._scaled_mm, which takes scales of both tensors, or of all rows and columns. float64 stays so."""
    import torch

    if not x.is_cuda or x.dtype == torch.float64:
        y = x.double() @ weight.double().T
        for factor in (scale, weight_scale, None if x_scale is None else x_scale[..., None]):
            y = y if factor is None else y * factor.double()
        return y if bias is None else y + bias.double()
    rows = x.reshape(-1, x.shape[-1])
    one = torch.ones((), device=x.device)
    if x_scale is None and weight_scale is None:
        left, right = one if scale is None else scale, one
    else:
        left = (torch.ones(len(rows), device=x.device) if x_scale is None else x_scale.reshape(-1)).reshape(-1, 1)
        left = left if scale is None else left * scale
        right = (torch.ones(len(weight), device=x.device) if weight_scale is None else weight_scale).reshape(1, -1)
    y = torch._scaled_mm(rows, weight.T, scale_a=left, scale_b=right, bias=bias, out_dtype=torch.bfloat16)
    return y.reshape(*x.shape[:-1], -1)


fp8_linear.workload(
    "Llama-3-8B gate, rowwise", rows=2048, in_features=4096, out_features=14336, absent=("scale", "bias")
)
fp8_linear.workload(
    "Llama-3-8B qkv, one token, tensorwise",
    rows=1,
    in_features=4096,
    out_features=6144,
    absent=("x_scale", "weight_scale", "bias"),
)
fp8_linear.workload("BERT-base ffn in, with a bias", rows=128, in_features=768, out_features=3072, absent=("scale",))
