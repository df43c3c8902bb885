"""SiLU, also called swish: y = x · sigmoid(x).

Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units for Neural Network Function Approximation, 2017
(arXiv:1702.03118).

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def silu(x: og.Tensor["..."]) -> og.Tensor:
    """y = x · sigmoid(x)"""
    return x * og.sigmoid(x)


@silu.reference
def reference(x: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    with np.errstate(over="ignore"):  # e^-x is inf far below 0, and x / inf the right 0
        return x / (1 + np.exp(-x))


@silu.peer
def peer(x: Any) -> Any:
    from torch.nn import functional

    return functional.silu(x)


silu.workload("Llama-3-8B ffn, one token", rows=14336)
silu.workload("Llama-3-8B ffn, prefill", rows=2048 * 14336)
