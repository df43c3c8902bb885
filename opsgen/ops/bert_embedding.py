"""BERT's embeddings: y[t] = table[ids[t]] + positions[t] + segments[segment_ids[t]].

The layer norm that follows in BERT is `layer_norm`. Source: Devlin et al., BERT, 2018 (arXiv:1810.04805).

Preconditions: each id lies in its table, and length <= entries; the call checks both before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .position_embedding import position_embedding


@og.op
def bert_embedding(
    ids: og.Tensor["batch", "length", og.integer],
    segment_ids: og.Tensor["batch", "length", og.integer],
    table: og.Tensor["vocab", "hidden"],
    positions: og.Tensor["entries", "hidden"],
    segments: og.Tensor["kinds", "hidden"],
) -> og.Tensor:
    """y = table[ids] + positions[t] + segments[segment_ids], t along length"""
    return position_embedding(ids, table, positions) + segments.at(kinds=segment_ids)


@bert_embedding.reference
def reference(ids: NDArray, segment_ids: NDArray, table: NDArray, positions: NDArray, segments: NDArray) -> NDArray:
    y = np.zeros((*ids.shape, table.shape[1]))
    for b, t in np.ndindex(*ids.shape):
        y[b, t] = np.asarray(table[ids[b, t]], np.float64) + positions[t] + segments[segment_ids[b, t]]
    return y


@bert_embedding.peer
def peer(ids: Any, segment_ids: Any, table: Any, positions: Any, segments: Any) -> Any:
    from torch.nn import functional

    y = functional.embedding(ids, table) + positions[: ids.shape[1]]
    return y + functional.embedding(segment_ids, segments)


bert_embedding.workload("BERT-base", batch=1, length=128, vocab=30522, entries=512, kinds=2, hidden=768)
bert_embedding.workload("MiniLM-L6", batch=8, length=128, vocab=30522, entries=512, kinds=2, hidden=384)
