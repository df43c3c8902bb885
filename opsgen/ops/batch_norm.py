"""Batch normalization as a trained network applies it: y = act((x - mean) / √(variance + eps) · weight + bias).

x is [batch, channels, pixels]; more pixel dims are one, flattened. Mean and variance are the running ones of training,
numbers of each channel. The activation is none, relu or silu.
Source: Ioffe and Szegedy, Batch Normalization, 2015 (arXiv:1502.03167).

Preconditions: the variance is not negative. What lies between norm and activation is not rounded.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .linear import activated, torch_activated


@og.op
def batch_norm(
    x: og.Tensor["batch", "channels", "pixels"],
    mean: og.Tensor["channels"],
    variance: og.Tensor["channels"],
    weight: og.Tensor["channels"],
    bias: og.Tensor["channels"],
    *,
    eps: float = 1e-5,
    activation: Literal["none", "relu", "silu"] = "none",
) -> og.Tensor:
    """y = act((x - mean) / √(variance + eps) · weight + bias)"""
    return activated((x - mean) * og.rsqrt(variance + eps) * weight + bias, activation)


@batch_norm.reference
def reference(
    x: NDArray,
    mean: NDArray,
    variance: NDArray,
    weight: NDArray,
    bias: NDArray,
    *,
    eps: float = 1e-5,
    activation: str = "none",
) -> NDArray:
    mean, variance, weight, bias = (np.asarray(v, np.float64)[:, None] for v in (mean, variance, weight, bias))
    with np.errstate(invalid="ignore"):  # NaN where a variance is negative
        z = weight * (np.asarray(x, np.float64) - mean) / np.sqrt(variance + eps) + bias
    if activation == "relu":
        return np.maximum(z, 0)
    return z * 0.5 * (1 + np.tanh(z / 2)) if activation == "silu" else z


@batch_norm.peer
def peer(
    x: Any, mean: Any, variance: Any, weight: Any, bias: Any, *, eps: float = 1e-5, activation: str = "none"
) -> Any:
    from torch.nn import functional

    return torch_activated(functional.batch_norm(x, mean, variance, weight, bias, eps=eps), activation)


batch_norm.workload("ResNet-50, first block", batch=32, channels=64, pixels=56 * 56, attributes={"activation": "relu"})
batch_norm.workload("ResNet-50, last block", batch=32, channels=2048, pixels=7 * 7)
batch_norm.workload("EfficientNet-B0", batch=32, channels=96, pixels=112 * 112, attributes={"activation": "silu"})
