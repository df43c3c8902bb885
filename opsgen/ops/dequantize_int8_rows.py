"""Dequantisation of int8: y = (q - zero_point) · scale.

There is a scale, and a zero point, one for each row. It is computed in float32 and
rounded once.
Source: ONNX, DequantizeLinear; B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2018 (arXiv:1712.05877).

Preconditions: none.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._int8 import dequantized, dequantized_reference, torch_dequantized


@og.op
def dequantize_int8_rows(
    q: og.Tensor["...", "columns", og.int8],
    scale: og.Tensor["...", og.float32],
    zero_point: og.Tensor["...", og.int8] | None = None,
    *,
    out_dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
) -> og.Tensor:
    """y = (q - zero_point) · scale"""
    return dequantized(q, scale, zero_point, out_dtype)


@dequantize_int8_rows.reference
def reference(
    q: NDArray,
    scale: NDArray,
    zero_point: NDArray | None = None,
    *,
    out_dtype: str = "bfloat16",
) -> NDArray:
    zero_point = None if zero_point is None else np.asarray(zero_point)[..., None]
    return dequantized_reference(q, np.asarray(scale)[..., None], zero_point)


@dequantize_int8_rows.peer
def peer(q: Any, scale: Any, zero_point: Any = None, *, out_dtype: str = "bfloat16") -> Any:
    zero_point = None if zero_point is None else zero_point[..., None]
    return torch_dequantized(q, scale[..., None], zero_point, out_dtype)


dequantize_int8_rows.workload("Llama-3-8B hidden states, one token", rows=1, columns=4096, absent=("zero_point",))
dequantize_int8_rows.workload("Llama-3-8B hidden states, prefill", rows=2048, columns=4096)
