"""A residual sum with a factor for the residual: y = x + alpha · residual.

Source: Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022 (arXiv:2203.00555).

Preconditions: none. Half types are rounded once, after the sum.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def residual_scale(x: og.Tensor["..."], residual: og.Tensor["..."], *, alpha: float = 1.0) -> og.Tensor:
    """y = x + alpha · residual"""
    return x + residual * alpha


@residual_scale.reference
def reference(x: NDArray, residual: NDArray, *, alpha: float = 1.0) -> NDArray:
    return np.asarray(x, np.float64) + alpha * np.asarray(residual, np.float64)


@residual_scale.peer
def peer(x: Any, residual: Any, *, alpha: float = 1.0) -> Any:
    import torch

    return torch.add(x, residual, alpha=alpha)


residual_scale.workload("GLM-130B, a layer's sum", rows=512 * 12288)
residual_scale.workload("DeepNet, a layer's sum", rows=1024 * 1024)
