"""GEGLU's gate: y = gelu(gate) · up, GELU in its exact form or the one with tanh.

Source: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv:2002.05202). The two projections that give ``gate`` and
``up`` are `linear`'s; `gated_linear` is all three.

Preconditions: none.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .gelu import gelu


@og.op
def geglu(gate: og.Tensor["..."], up: og.Tensor["..."], *, approximate: Literal["none", "tanh"] = "none") -> og.Tensor:
    """y = gelu(gate) · up"""
    return gelu(gate, approximate=approximate) * up


@geglu.reference
def reference(gate: NDArray, up: NDArray, *, approximate: str = "none") -> NDArray:
    gate, up = np.asarray(gate, np.float64), np.asarray(up, np.float64)
    if approximate == "tanh":
        u = math.sqrt(8 / math.pi) * (gate + 0.044715 * gate**3)  # (1 + tanh(u/2)) / 2 = sigmoid(u)
        with np.errstate(over="ignore"):
            return gate * up / (1 + np.exp(-u))
    return gate * up * np.vectorize(math.erfc, otypes=[np.float64])(-gate / math.sqrt(2)) / 2


@geglu.peer
def peer(gate: Any, up: Any, *, approximate: str = "none") -> Any:
    from torch.nn import functional

    return functional.gelu(gate, approximate=approximate) * up


geglu.workload("T5-v1.1-base ffn", rows=512 * 2048, attributes={"approximate": "tanh"})
geglu.workload("Gemma-2B ffn, one token", rows=16384, attributes={"approximate": "tanh"})
geglu.workload("ModernBERT-base ffn", rows=512 * 1152)
