"""Product of two tensors of one shape, element by element: z = x · y.

Source: torch.mul (documentation of PyTorch).

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def mul(x: og.Tensor["..."], y: og.Tensor["..."]) -> og.Tensor:
    """z = x · y"""
    return x * y


@mul.reference
def reference(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray(np.multiply(x, y, dtype=np.float64))


@mul.peer
def peer(x: Any, y: Any) -> Any:
    return x * y


mul.workload("Mamba-130M, output gate", rows=2048 * 1536)
mul.workload("Llama-3-8B ffn, one token", rows=14336)
