"""Vectors of length 1: y = x / max(√Σ x², eps), over the last dim.

Source: torch.nn.functional.normalize (documentation of PyTorch), as sentence embeddings are normalized.

Preconditions: none. Squares are summed in float32 at least; of float32 rows longer than 1.8e19 they overflow and give
0. A row of zeros gives zeros.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def l2_normalize(x: og.Tensor["...", "hidden"], *, eps: float = 1e-12) -> og.Tensor:
    """y = x / max(√Σ x², eps), over hidden"""
    return x / og.max(og.sqrt(og.sum(x * x, over="hidden")), eps)


@l2_normalize.reference
def reference(x: NDArray, *, eps: float = 1e-12) -> NDArray:
    x = np.asarray(x, np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), eps)


@l2_normalize.peer
def peer(x: Any, *, eps: float = 1e-12) -> Any:
    from torch.nn import functional

    return functional.normalize(x, dim=-1, eps=eps)


l2_normalize.workload("MiniLM-L6 sentences", rows=256, hidden=384)
l2_normalize.workload("BGE-large sentences", rows=32, hidden=1024)
