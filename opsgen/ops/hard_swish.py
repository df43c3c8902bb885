"""Hard swish: y = x · min(max(x + 3, 0), 6) / 6.

Source: Howard et al., Searching for MobileNetV3, 2019 (arXiv:1905.02244).

Preconditions: none. -inf gives NaN, as -inf · 0 does; a NaN stays a NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def hard_swish(x: og.Tensor["..."]) -> og.Tensor:
    """y = x · min(max(x + 3, 0), 6) / 6"""
    return x * (og.min(og.max(x + 3.0, 0.0), 6.0) / 6.0)


@hard_swish.reference
def reference(x: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):
        return x * np.clip(x / 6 + 0.5, 0, 1)


@hard_swish.peer
def peer(x: Any) -> Any:
    from torch.nn import functional

    return functional.hardswish(x)


hard_swish.workload("MobileNetV3-Large, first layer", rows=64 * 16 * 112 * 112)
hard_swish.workload("LeViT-256, first stage", rows=64 * 196 * 512)
