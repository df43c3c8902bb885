"""Dequantisation of int8: y = (q - zero_point) · scale.

There is a scale, and a zero point, one for the whole tensor. It is computed in float32 and
rounded once.
Source: ONNX, DequantizeLinear; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2018 (arXiv:1712.05877).

Preconditions: none.
"""

from typing import Any, Literal

from numpy.typing import NDArray

import opsgen as og

from ._int8 import dequantized, dequantized_reference, torch_dequantized


@og.op
def dequantize_int8(
    q: og.Tensor["...", "columns", og.int8],
    scale: og.Tensor[og.float32],
    zero_point: og.Tensor[og.int8] | None = None,
    *,
    out_dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
) -> og.Tensor:
    """y = (q - zero_point) · scale"""
    return dequantized(q, scale, zero_point, out_dtype)


@dequantize_int8.reference
def reference(
    q: NDArray,
    scale: NDArray,
    zero_point: NDArray | None = None,
    *,
    out_dtype: str = "bfloat16",
) -> NDArray:
    return dequantized_reference(q, scale, zero_point)


@dequantize_int8.peer
def peer(q: Any, scale: Any, zero_point: Any = None, *, out_dtype: str = "bfloat16") -> Any:
    return torch_dequantized(q, scale, zero_point, out_dtype)


dequantize_int8.workload("Llama-3-8B hidden states, prefill", rows=2048, columns=4096, absent=("zero_point",))
dequantize_int8.workload("BERT-base hidden states", rows=128, columns=768)
