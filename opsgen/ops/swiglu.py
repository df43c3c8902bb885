"""SwiGLU's gate: y = silu(gate) · up.

Source: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv:2002.05202). The two projections that give ``gate`` and
``up`` are `linear`'s.

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def swiglu(gate: og.Tensor["..."], up: og.Tensor["..."]) -> og.Tensor:
    """y = gate · sigmoid(gate) · up"""
    return gate * og.sigmoid(gate) * up


@swiglu.reference
def reference(gate: NDArray, up: NDArray) -> NDArray:
    gate, up = np.asarray(gate, np.float64), np.asarray(up, np.float64)
    with np.errstate(over="ignore"):  # e^-x is inf far below 0, and x / inf the right 0
        return gate / (1 + np.exp(-gate)) * up


@swiglu.peer
def peer(gate: Any, up: Any) -> Any:
    from torch.nn import functional

    return functional.silu(gate) * up


swiglu.workload("Llama-3-8B ffn, one token", rows=14336)
swiglu.workload("SmolLM2-135M ffn, prefill", rows=512 * 1536)
