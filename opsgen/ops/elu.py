"""ELU: y = x where x > 0, else alpha · (eˣ - 1).

eˣ - 1 cancels near 0. Here it is 2t / (1 - t), t = tanh(x/2), which below 0 does not.
Source: Clevert, Unterthiner and Hochreiter, Fast and Accurate Deep Network Learning by Exponential Linear Units, 2015
(arXiv:1511.07289).

Preconditions: none. A NaN stays a NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def elu(x: og.Tensor["..."], *, alpha: float = 1.0) -> og.Tensor:
    """y = x where x > 0, else alpha · (eˣ - 1)"""
    t = og.tanh(x * 0.5)
    return og.where(x > 0, x, 2.0 * t / (1.0 - t) * alpha)


@elu.reference
def reference(x: NDArray, *, alpha: float = 1.0) -> NDArray:
    x = np.asarray(x, np.float64)
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@elu.peer
def peer(x: Any, *, alpha: float = 1.0) -> Any:
    from torch.nn import functional

    return functional.elu(x, alpha)


elu.workload("GAT, Cora, hidden layer", rows=2708 * 64)
elu.workload("linear attention, feature map of queries", rows=1024 * 12 * 64)
