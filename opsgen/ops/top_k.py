"""Top-k over the last dim: the k largest elements, largest first, and their positions.

Source: torch.topk (documentation of PyTorch), which leaves open which of equals it gives.

Preconditions: there are k elements at least; the call checks it before it runs. NaN counts as largest, -0 and 0 are
equal, and of equals the first goes first. Rows have fewer than 2^32 elements.

How: up to 16 are the maxima of a row, one after the other, of elements with their positions: k passes over a row in one
kernel, in which a router's row (256 experts) stays in registers or in the cache. For more of them, as sampling wants
(50 of 128256), the maxima of blocks of 64 say which k blocks to look at: one pass over the row. The k largest of the
blocks, and then of the elements in them, are what lies above the k-th largest, which is found bit by bit by counting.
So the work grows with the length of a row, with k, and with k² only where the k are sorted.
Many short rows with k above 16 are what this form is not for: it looks at 64 · k elements, however short a row is.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._top_k import largest


@og.op
def top_k(x: og.Tensor["...", "columns"], *, k: int = 2) -> og.Results:
    """values = the k largest of x over columns; indices = where they are"""
    og.require(f"columns >= {k}", "a row has k elements at least")
    position = largest(x, "columns", k, "slots")
    return og.results(values=x.at(columns=position), indices=position)


@top_k.reference
def reference(x: NDArray, *, k: int = 2) -> dict[str, NDArray]:
    x = np.asarray(x, np.float64)
    nan, place = np.isnan(x), np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    found = np.lexsort((place, -np.where(nan, 0, x), ~nan), axis=-1)[..., :k]
    return {"values": np.take_along_axis(x, found, axis=-1), "indices": found}


@top_k.peer
def peer(x: Any, *, k: int = 2) -> Any:
    """Of equals torch gives any."""
    values, indices = x.topk(k, -1)
    return {"values": values, "indices": indices}


top_k.workload("DeepSeek-V3 router", rows=4096, columns=256, attributes={"k": 8})
top_k.workload("Qwen3-30B-A3B router", rows=4096, columns=128, attributes={"k": 8})
top_k.workload("Llama-3-8B sampling", rows=8, columns=128256, attributes={"k": 50})
top_k.workload("GPT-2 sampling", rows=1, columns=50257, attributes={"k": 40})
