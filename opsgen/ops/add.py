"""Sum of two tensors of one shape, element by element: z = x + y.

Source: torch.add (documentation of PyTorch).

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def add(x: og.Tensor["..."], y: og.Tensor["..."]) -> og.Tensor:
    """z = x + y"""
    return x + y


@add.reference
def reference(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray(np.add(x, y, dtype=np.float64))


@add.peer
def peer(x: Any, y: Any) -> Any:
    return x + y


add.workload("Llama-3-8B, residual of one token", rows=4096)
add.workload("BERT-base, word and position embeddings", rows=512 * 768)
