"""Leaky ReLU: y = x where x > 0, else negative_slope · x.

Source: Maas, Hannun and Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models, 2013.

Preconditions: none. A NaN stays a NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def leaky_relu(x: og.Tensor["..."], *, negative_slope: float = 0.01) -> og.Tensor:
    """y = x where x > 0, else negative_slope · x"""
    return og.where(x > 0, x, x * negative_slope)


@leaky_relu.reference
def reference(x: NDArray, *, negative_slope: float = 0.01) -> NDArray:
    y = np.array(x, np.float64)
    y[~(y > 0)] *= negative_slope
    return y


@leaky_relu.peer
def peer(x: Any, *, negative_slope: float = 0.01) -> Any:
    from torch.nn import functional

    return functional.leaky_relu(x, negative_slope)


leaky_relu.workload("GAT, Cora, scores of edges", rows=10556 * 8)
leaky_relu.workload("DCGAN discriminator, first layer", rows=128 * 64 * 32 * 32)
