"""What the int8 operators share: quantising, its inverse, and both in numpy and in torch.

A number is (q - zero_point) · scale. Source of the rounding: ONNX, QuantizeLinear and DequantizeLinear.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


def quantized(x: og.Tensor, scale: og.Tensor, zero_point: og.Tensor | None) -> og.Tensor:
    """clamp(round(x / scale) + zero_point, -128, 127), of a NaN the zero point; -127 is the least without one."""
    q, zero, least = og.round(x / scale), og.cast(0.0, og.float32), -127.0
    if zero_point is not None:
        zero, least = og.cast(zero_point, og.float32), -128.0
        q = q + zero
    # Not og.max and og.min, which look at their operands for NaN again each time.
    q = og.where(og.isnan(q), zero, og.where(q > 127.0, 127.0, og.where(q < least, least, q)))
    return og.cast(q, og.int8)


def dequantized(q: og.Tensor, scale: og.Tensor, zero_point: og.Tensor | None, dtype: str) -> og.Tensor:
    """(q - zero_point) · scale"""
    y = og.cast(q, og.float32)
    if zero_point is not None:
        y = y - og.cast(zero_point, og.float32)
    return og.cast(y * scale, dtype)


def quantized_reference(x: NDArray, scale: NDArray, zero_point: NDArray | None) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        real = np.asarray(x, np.float64) / np.asarray(scale, np.float64)
    offset, least = (0, -127) if zero_point is None else (np.asarray(zero_point, np.int64), -128)
    whole = np.rint(np.clip(np.nan_to_num(real, nan=0.0), -1000, 1000)).astype(np.int64) + offset
    return np.clip(whole, least, 127).astype(np.int8)


def dequantized_reference(q: NDArray, scale: NDArray, zero_point: NDArray | None) -> NDArray:
    whole = np.asarray(q, np.int64) - (0 if zero_point is None else np.asarray(zero_point, np.int64))
    return whole * np.asarray(scale, np.float64)


def torch_quantized(x: Any, scale: Any, zero_point: Any) -> Any:
    """In float64 for float64, else in float32."""
    import torch

    q = (x.to(torch.promote_types(x.dtype, torch.float32)) / scale).round().nan_to_num(0.0)
    if zero_point is None:
        return q.clamp(-127, 127).to(torch.int8)
    return (q + zero_point).clamp(-128, 127).to(torch.int8)


def torch_dequantized(q: Any, scale: Any, zero_point: Any, dtype: str) -> Any:
    """In float64 on the CPU, else in float32 and rounded once."""
    import torch

    real = torch.float32 if q.is_cuda else torch.float64
    y = q.to(real) if zero_point is None else q.to(real) - zero_point.to(real)
    y = y * scale.to(real)
    return y.to(getattr(torch, dtype)) if q.is_cuda else y
