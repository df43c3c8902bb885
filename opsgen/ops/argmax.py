"""Argmax over the last dim: the position of the first largest element, int64.

Source: torch.argmax (documentation of PyTorch), which leaves open which of equals it gives.

Preconditions: none. A NaN counts as largest, and a row of no elements gives 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def argmax(x: og.Tensor["...", "columns"]) -> og.Tensor:
    """y = the least c with x[c] = max x, over columns"""
    return og.argmax(x, over="columns")


@argmax.reference
def reference(x: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    if not x.shape[-1]:
        return np.zeros(x.shape[:-1], np.int64)
    largest = np.max(x, axis=-1, keepdims=True)
    found = np.where(np.isnan(largest), np.isnan(x), x == largest)
    return np.min(np.where(found, np.arange(x.shape[-1]), x.shape[-1]), axis=-1)


@argmax.peer
def peer(x: Any) -> Any:
    return x.argmax(-1)


argmax.workload("GPT-2 logits", rows=8, columns=50257)
argmax.workload("Llama-3-8B logits, greedy", rows=1, columns=128256)
argmax.workload("ImageNet classes", rows=256, columns=1000)
