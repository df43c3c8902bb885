"""Embedding: row ids[...] of a table for each id.

Source: Bengio et al., A Neural Probabilistic Language Model, 2003.

Preconditions: each id lies in [0, vocab); the call checks it before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def embedding(ids: og.Tensor["...", og.integer], table: og.Tensor["vocab", "hidden"]) -> og.Tensor:
    """y = table[ids]"""
    return table.at(vocab=ids)


@embedding.reference
def reference(ids: NDArray, table: NDArray) -> NDArray:
    return np.asarray(table, np.float64)[np.asarray(ids)]


@embedding.peer
def peer(ids: Any, table: Any) -> Any:
    from torch.nn import functional

    return functional.embedding(ids, table)


embedding.workload("BERT-base", rows=128, vocab=30522, hidden=768)
embedding.workload("MiniLM-L6", rows=256, vocab=30522, hidden=384)
embedding.workload("Llama-3-8B", rows=2048, vocab=128256, hidden=4096)
