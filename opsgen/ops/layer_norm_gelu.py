"""Layer normalization and GELU in one pass: y = gelu((x - mean x) / √(var x + eps) · weight + bias).

Source: Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv:1607.06450); Hendrycks and Gimpel, Gaussian Error Linear
Units, 2016 (arXiv:1606.08415). It stands in the upscaling of SAM's mask decoder and in wav2vec 2.0's feature encoder.

Preconditions: none. What lies between norm and activation is not rounded.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .gelu import gelu
from .layer_norm import layer_norm


@og.op
def layer_norm_gelu(
    x: og.Tensor["...", "hidden"],
    weight: og.Tensor["hidden"],
    bias: og.Tensor["hidden"],
    *,
    eps: float = 1e-5,
    approximate: Literal["none", "tanh"] = "none",
) -> og.Tensor:
    """y = gelu((x - mean x) / √(var x + eps) · weight + bias), moments over hidden"""
    return gelu(layer_norm(x, weight, bias, eps=eps), approximate=approximate)


@layer_norm_gelu.reference
def reference(x: NDArray, weight: NDArray, bias: NDArray, *, eps: float = 1e-5, approximate: str = "none") -> NDArray:
    x = np.asarray(x, np.float64)
    count = max(x.shape[-1], 1)
    difference = x - np.einsum("...i->...", x)[..., None] / count
    variance = np.einsum("...i,...i->...", difference, difference)[..., None] / count
    z = difference / np.sqrt(variance + eps) * np.asarray(weight, np.float64) + np.asarray(bias, np.float64)
    if approximate == "tanh":
        return z / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return z * 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(-z / math.sqrt(2))


@layer_norm_gelu.peer
def peer(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5, approximate: str = "none") -> Any:
    from torch.nn import functional

    return functional.gelu(functional.layer_norm(x, x.shape[-1:], weight, bias, eps), approximate=approximate)


layer_norm_gelu.workload("wav2vec 2.0 large, second layer", rows=8000, hidden=512)
layer_norm_gelu.workload("SAM mask decoder", rows=128 * 128, hidden=64)
