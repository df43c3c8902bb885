"""Layer scale with the residual sum around it: y = x · scale + residual, a scale for each channel.

Source: Touvron et al., Going Deeper with Image Transformers (CaiT), 2021 (arXiv:2103.17239).

Preconditions: none. Half types are rounded once, after the sum.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def layer_scale(
    x: og.Tensor["...", "hidden"], scale: og.Tensor["hidden"], residual: og.Tensor["...", "hidden"]
) -> og.Tensor:
    """y = x · scale + residual"""
    return x * scale + residual


@layer_scale.reference
def reference(x: NDArray, scale: NDArray, residual: NDArray) -> NDArray:
    return np.asarray(x, np.float64) * np.asarray(scale, np.float64) + np.asarray(residual, np.float64)


@layer_scale.peer
def peer(x: Any, scale: Any, residual: Any) -> Any:
    return residual + x * scale


layer_scale.workload("DINOv2 ViT-B/14", rows=8 * 257, hidden=768)
layer_scale.workload("DINOv2 ViT-L/14", rows=8 * 257, hidden=1024)
layer_scale.workload("CaiT-S24", rows=32 * 196, hidden=384)
