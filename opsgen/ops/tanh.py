"""Hyperbolic tangent: y = (eˣ - e⁻ˣ) / (eˣ + e⁻ˣ).

Source: torch.tanh (documentation of PyTorch).

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def tanh(x: og.Tensor["..."]) -> og.Tensor:
    """y = tanh(x)"""
    return og.tanh(x)


@tanh.reference
def reference(x: NDArray) -> NDArray:
    e = np.expm1(-2 * np.abs(np.asarray(x, np.float64)))  # accurate near 0, and cannot overflow
    return np.copysign(-e / (e + 2), x)


@tanh.peer
def peer(x: Any) -> Any:
    return x.tanh()


tanh.workload("BERT-base pooler", rows=32 * 768)
tanh.workload("Gemma-2-2B, capped logits of one token", rows=256000)
