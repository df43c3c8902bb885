"""ReGLU's gate: y = max(gate, 0) · up.

Source: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv:2002.05202). The two projections that give ``gate`` and
``up`` are `linear`'s; `gated_linear` is all three.

Preconditions: none. A NaN stays a NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .relu import relu


@og.op
def reglu(gate: og.Tensor["..."], up: og.Tensor["..."]) -> og.Tensor:
    """y = max(gate, 0) · up"""
    return relu(gate) * up


@reglu.reference
def reference(gate: NDArray, up: NDArray) -> NDArray:
    gate, up = np.asarray(gate, np.float64), np.asarray(up, np.float64)
    return np.where(gate < 0, 0.0, gate) * up


@reglu.peer
def peer(gate: Any, up: Any) -> Any:
    return gate.relu() * up


reglu.workload("ProSparse-Llama-2-7B ffn, one token", rows=11008)
reglu.workload("TurboSparse-Mistral-7B ffn, prefill", rows=512 * 14336)
