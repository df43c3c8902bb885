"""Token and learned position embeddings: y[t] = table[ids[t]] + positions[t].

Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762); GPT-2 for learned positions.

Preconditions: each id lies in [0, vocab), and length <= entries; the call checks both before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .embedding import embedding


@og.op
def position_embedding(
    ids: og.Tensor["batch", "length", og.integer],
    table: og.Tensor["vocab", "hidden"],
    positions: og.Tensor["entries", "hidden"],
) -> og.Tensor:
    """y = table[ids] + positions[t], t along length"""
    og.require("length <= entries", "each position has an embedding")
    return embedding(ids, table) + positions.at(entries=og.index("length"))


@position_embedding.reference
def reference(ids: NDArray, table: NDArray, positions: NDArray) -> NDArray:
    found = np.asarray(table, np.float64)[np.asarray(ids)]
    return found + np.asarray(positions, np.float64)[: found.shape[1]]


@position_embedding.peer
def peer(ids: Any, table: Any, positions: Any) -> Any:
    from torch.nn import functional

    return functional.embedding(ids, table) + positions[: ids.shape[1]]


position_embedding.workload("GPT-2, prefill", batch=1, length=1024, vocab=50257, entries=1024, hidden=768)
position_embedding.workload("OPT-1.3B", batch=8, length=256, vocab=50272, entries=2050, hidden=2048)
