"""Mean pooling of sentence embeddings: y = Σ x where mask / count of mask, over the positions of a sequence.

``mask`` is True for the positions that count, which padding does not. Source: Reimers and Gurevych, Sentence-BERT,
2019 (arXiv:1908.10084).

Preconditions: none. A sequence without any True position gives 0. What x holds at the other positions does not
matter, NaN included.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def masked_mean_pool(
    x: og.Tensor["batch", "length", "hidden"], mask: og.Tensor["batch", "length", og.bool_]
) -> og.Tensor:
    """y = Σ x where mask / max(count of mask, 1), over length"""
    total = og.sum(og.where(mask, x, 0.0), over="length")
    count = og.sum(og.where(mask, 1.0, 0.0), over="length")
    return total / og.max(count, 1.0)


@masked_mean_pool.reference
def reference(x: NDArray, mask: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    out = np.zeros((x.shape[0], x.shape[2]))
    for row, sequence, counted in zip(out, x, np.asarray(mask, bool)):
        if counted.any():
            row[:] = sequence[counted].mean(axis=0)
    return out


@masked_mean_pool.peer
def peer(x: Any, mask: Any) -> Any:
    counted = mask[..., None].to(x.dtype)  # as sentence-transformers pools
    return (x * counted).sum(1) / counted.sum(1).clamp(min=1e-9)


masked_mean_pool.workload("MiniLM-L6", batch=8, length=128, hidden=384)
masked_mean_pool.workload("MiniLM-L6, short", batch=32, length=32, hidden=384)
masked_mean_pool.workload("MPNet-base", batch=8, length=384, hidden=768)
