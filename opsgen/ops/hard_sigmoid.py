"""Hard sigmoid: y = min(max(x + 3, 0), 6) / 6.

Source: Howard et al., Searching for MobileNetV3, 2019 (arXiv:1905.02244).

Preconditions: none. A NaN stays a NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def hard_sigmoid(x: og.Tensor["..."]) -> og.Tensor:
    """y = min(max(x + 3, 0), 6) / 6"""
    return og.min(og.max(x + 3.0, 0.0), 6.0) / 6.0


@hard_sigmoid.reference
def reference(x: NDArray) -> NDArray:
    return np.clip(np.asarray(x, np.float64) / 6 + 0.5, 0, 1)


@hard_sigmoid.peer
def peer(x: Any) -> Any:
    from torch.nn import functional

    return functional.hardsigmoid(x)


hard_sigmoid.workload("MobileNetV3-Large, last squeeze-and-excitation", rows=64 * 960)
hard_sigmoid.workload("PP-LCNet, last squeeze-and-excitation", rows=128 * 512)
