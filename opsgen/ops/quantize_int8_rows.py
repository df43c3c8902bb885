"""Quantisation to int8: q = clamp(round(x / scale) + zero_point, -128, 127).

There is a scale, and a zero point, one for each row.
`round` takes halves to even. Without a zero point it is 0, and -127 the least value, so that -q is as good as q.
Source: ONNX, QuantizeLinear; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2018 (arXiv:1712.05877).

Preconditions: none.
x / scale of NaN gives the zero point, an infinite one the value at that end.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._int8 import quantized, quantized_reference, torch_quantized


@og.op
def quantize_int8_rows(
    x: og.Tensor["...", "columns"],
    scale: og.Tensor["...", og.float32],
    zero_point: og.Tensor["...", og.int8] | None = None,
) -> og.Tensor:
    """q = clamp(round(x / scale) + zero_point, -128, 127)"""
    return quantized(x, scale, zero_point)


@quantize_int8_rows.reference
def reference(
    x: NDArray,
    scale: NDArray,
    zero_point: NDArray | None = None,
) -> NDArray:
    zero_point = None if zero_point is None else np.asarray(zero_point)[..., None]
    return quantized_reference(x, np.asarray(scale)[..., None], zero_point)


@quantize_int8_rows.peer
def peer(x: Any, scale: Any, zero_point: Any = None) -> Any:
    zero_point = None if zero_point is None else zero_point[..., None]
    return torch_quantized(x, scale[..., None], zero_point)


quantize_int8_rows.workload("Llama-3-8B hidden states, one token", rows=1, columns=4096, absent=("zero_point",))
quantize_int8_rows.workload("Llama-3-8B hidden states, prefill", rows=2048, columns=4096)
