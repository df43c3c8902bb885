"""Quantisation to int8: q = clamp(round(x / scale) + zero_point, -128, 127).

There is a scale, and a zero point, one for the whole tensor.
`round` takes halves to even. Without a zero point it is 0, and -127 the least value, so that -q is as good as q.
Source: ONNX, QuantizeLinear; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2018 (arXiv:1712.05877).

Preconditions: none.
x / scale of NaN gives the zero point, an infinite one the value at that end.
"""

from typing import Any

from numpy.typing import NDArray

import opsgen as og

from ._int8 import quantized, quantized_reference, torch_quantized


@og.op
def quantize_int8(
    x: og.Tensor["...", "columns"],
    scale: og.Tensor[og.float32],
    zero_point: og.Tensor[og.int8] | None = None,
) -> og.Tensor:
    """q = clamp(round(x / scale) + zero_point, -128, 127)"""
    return quantized(x, scale, zero_point)


@quantize_int8.reference
def reference(
    x: NDArray,
    scale: NDArray,
    zero_point: NDArray | None = None,
) -> NDArray:
    return quantized_reference(x, scale, zero_point)


@quantize_int8.peer
def peer(x: Any, scale: Any, zero_point: Any = None) -> Any:
    return torch_quantized(x, scale, zero_point)


quantize_int8.workload("Llama-3-8B hidden states, prefill", rows=2048, columns=4096, absent=("zero_point",))
quantize_int8.workload("BERT-base hidden states", rows=128, columns=768)
