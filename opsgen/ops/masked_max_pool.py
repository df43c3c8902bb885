"""Max pooling of sentence embeddings: y = max x where mask, over the positions of a sequence.

``mask`` is True for the positions that count, which padding does not. Source: Reimers and Gurevych, Sentence-BERT,
2019 (arXiv:1908.10084).

Preconditions: none. A sequence without any True position gives 0. What x holds at the other positions does not
matter, NaN included; a NaN at one that counts wins.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def masked_max_pool(
    x: og.Tensor["batch", "length", "hidden"], mask: og.Tensor["batch", "length", og.bool_]
) -> og.Tensor:
    """y = max x where mask, over length; 0 where none is"""
    largest = og.max(og.where(mask, x, float("-inf")), over="length")
    count = og.sum(og.where(mask, 1.0, 0.0), over="length")
    return og.where(count > 0.0, largest, 0.0)


@masked_max_pool.reference
def reference(x: NDArray, mask: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    out = np.zeros((x.shape[0], x.shape[2]))
    for row, sequence, counted in zip(out, x, np.asarray(mask, bool)):
        if counted.any():
            row[:] = sequence[counted].max(axis=0)
    return out


@masked_max_pool.peer
def peer(x: Any, mask: Any) -> Any:
    largest = x.masked_fill(~mask[..., None], float("-inf")).amax(1)
    return largest.masked_fill(~mask.any(1, keepdim=True), 0.0)


masked_max_pool.workload("MiniLM-L6", batch=8, length=128, hidden=384)
masked_max_pool.workload("MPNet-base", batch=8, length=384, hidden=768)
