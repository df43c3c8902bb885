"""Append to a cache of keys or values, in place: row slots[t] of the cache becomes row t of new.

A slot counts rows of the whole cache, as vLLM's slot mapping does: a cache in pages is passed with pages and page_size
as one dim. A slot outside of the cache (-1 for padding) goes nowhere; of rows with the same slot the last stays.
Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention, 2023
(arXiv:2309.06180).

Preconditions: there is a row to append; the call checks it before it runs. What it costs depends on how many rows there
are to append, and not on the size of the cache.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def kv_cache_append(
    cache: og.Mut["entries", "heads", "head_dim"],
    new: og.Tensor["sources", "heads", "head_dim"],
    slots: og.Tensor["sources", og.integer],
) -> og.Results:
    """cache[slots[t]] ← new[t], t along sources"""
    return og.results(cache=og.scatter_set(cache, new, slots, over="sources", into="entries"))


@kv_cache_append.reference
def reference(cache: NDArray, new: NDArray, slots: NDArray) -> dict[str, NDArray]:
    y = np.array(cache, np.float64)
    for row, slot in zip(new, slots, strict=True):
        if 0 <= slot < len(y):
            y[slot] = row
    return {"cache": y}


@kv_cache_append.peer
def peer(cache: Any, new: Any, slots: Any) -> Any:
    """Slots outside of the cache are not there: torch has no place for them."""
    return {"cache": cache.index_copy(0, slots.long(), new)}


kv_cache_append.workload("Llama-3-8B, one token of 8", entries=16384, sources=8, heads=8, head_dim=128)
kv_cache_append.workload("Llama-3-8B, prefill of 512", entries=4096, sources=512, heads=8, head_dim=128)
