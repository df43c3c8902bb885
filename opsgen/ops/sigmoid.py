"""The logistic function: y = 1 / (1 + e⁻ˣ).

Source: torch.sigmoid (documentation of PyTorch).

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def sigmoid(x: og.Tensor["..."]) -> og.Tensor:
    """y = 1 / (1 + e⁻ˣ)"""
    return og.sigmoid(x)


@sigmoid.reference
def reference(x: NDArray) -> NDArray:
    with np.errstate(over="ignore"):  # e^-x is inf far below 0, and 1 / inf the right 0
        return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


@sigmoid.peer
def peer(x: Any) -> Any:
    return x.sigmoid()


sigmoid.workload("DeepSeek-V3 router", rows=2048 * 256)
sigmoid.workload("Qwen3-Next output gate of attention", rows=2048 * 4096)
