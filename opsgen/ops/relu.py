"""ReLU: y = max(x, 0).

Source: Nair and Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines, 2010.

Preconditions: none. A NaN stays a NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def relu(x: og.Tensor["..."]) -> og.Tensor:
    """y = max(x, 0)"""
    return og.max(x, 0.0)


@relu.reference
def reference(x: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    return np.where(x < 0, 0.0, x)


@relu.peer
def peer(x: Any) -> Any:
    return x.relu()


relu.workload("T5-base ffn", rows=512 * 3072)
relu.workload("OPT-1.3B ffn", rows=2048 * 8192)
