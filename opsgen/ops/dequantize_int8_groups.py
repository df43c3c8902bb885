"""Dequantisation of int8: y = (q - zero_point) · scale.

There is a scale, and a zero point, one for each group of neighbours in a row.
Group g of n is the columns from g · columns / n on. It is computed in float32 and
rounded once.
Source: ONNX, DequantizeLinear; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2018 (arXiv:1712.05877).

Preconditions: columns is a multiple of groups; the call checks it before it runs.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._int8 import dequantized, dequantized_reference, torch_dequantized


@og.op
def dequantize_int8_groups(
    q: og.Tensor["...", "columns", og.int8],
    scale: og.Tensor["...", "groups", og.float32],
    zero_point: og.Tensor["...", "groups", og.int8] | None = None,
    *,
    out_dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
) -> og.Tensor:
    """y = (q - zero_point) · scale"""
    grouped = q.split("columns", groups=og.size("groups"), members=None)
    return dequantized(grouped, scale, zero_point, out_dtype).merge("groups", "members", into="columns")


@dequantize_int8_groups.reference
def reference(
    q: NDArray,
    scale: NDArray,
    zero_point: NDArray | None = None,
    *,
    out_dtype: str = "bfloat16",
) -> NDArray:
    each = q.shape[-1] // max(scale.shape[-1], 1)
    scale = np.repeat(scale, each, axis=-1)
    zero_point = None if zero_point is None else np.repeat(zero_point, each, axis=-1)
    return dequantized_reference(q, scale, zero_point)


@dequantize_int8_groups.peer
def peer(q: Any, scale: Any, zero_point: Any = None, *, out_dtype: str = "bfloat16") -> Any:
    grouped = q.unflatten(-1, (scale.shape[-1], -1))
    zero_point = None if zero_point is None else zero_point[..., None]
    return torch_dequantized(grouped, scale[..., None], zero_point, out_dtype).flatten(-2)


dequantize_int8_groups.workload(
    "Llama-3-8B gate weight, groups of 128", rows=14336, columns=4096, groups=32, absent=("zero_point",)
)
dequantize_int8_groups.workload("Llama-3-8B keys, groups of 64", rows=2048, columns=1024, groups=16)
