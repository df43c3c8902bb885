"""Quantisation to int8: q = clamp(round(x / scale) + zero_point, -128, 127).

There is a scale, and a zero point, one for each group of neighbours in a row.
Group g of n is the columns from g · columns / n on.
`round` takes halves to even. Without a zero point it is 0, and -127 the least value, so that -q is as good as q.
Source: ONNX, QuantizeLinear; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2018 (arXiv:1712.05877).

Preconditions: columns is a multiple of groups; the call checks it before it runs.
x / scale of NaN gives the zero point, an infinite one the value at that end.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._int8 import quantized, quantized_reference, torch_quantized


@og.op
def quantize_int8_groups(
    x: og.Tensor["...", "columns"],
    scale: og.Tensor["...", "groups", og.float32],
    zero_point: og.Tensor["...", "groups", og.int8] | None = None,
) -> og.Tensor:
    """q = clamp(round(x / scale) + zero_point, -128, 127)"""
    grouped = x.split("columns", groups=og.size("groups"), members=None)
    return quantized(grouped, scale, zero_point).merge("groups", "members", into="columns")


@quantize_int8_groups.reference
def reference(
    x: NDArray,
    scale: NDArray,
    zero_point: NDArray | None = None,
) -> NDArray:
    each = x.shape[-1] // max(scale.shape[-1], 1)
    scale = np.repeat(scale, each, axis=-1)
    zero_point = None if zero_point is None else np.repeat(zero_point, each, axis=-1)
    return quantized_reference(x, scale, zero_point)


@quantize_int8_groups.peer
def peer(x: Any, scale: Any, zero_point: Any = None) -> Any:
    grouped = x.unflatten(-1, (scale.shape[-1], -1))
    zero_point = None if zero_point is None else zero_point[..., None]
    return torch_quantized(grouped, scale[..., None], zero_point).flatten(-2)


quantize_int8_groups.workload(
    "Llama-3-8B gate weight, groups of 128", rows=14336, columns=4096, groups=32, absent=("zero_point",)
)
quantize_int8_groups.workload("Llama-3-8B keys, groups of 64", rows=2048, columns=1024, groups=16)
