"""A function of a half type as a table of its results: y = table[bits of x].

``x`` is given as its bits: ``x.view(np.int16)`` in numpy, ``x.view(torch.int16)`` in torch. The table has an entry for
each of the 65536 patterns of bits, in their order as unsigned numbers: ``f(np.arange(65536, dtype=np.uint16).view(
np.float16))``. What the function costs, and how exactly it is computed, no longer matters; docs/functions.md says when
this is faster than computing it.

Source: numpy.take with mode="clip" (documentation of NumPy).

Preconditions: the table has an entry at least; bits beyond its end get its last one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def table_lookup(x: og.Tensor["...", og.int16], table: og.Tensor["entries"]) -> og.Tensor:
    """y = table[x as an unsigned number]"""
    return table.at(entries=og.cast(x, og.int32) & 0xFFFF)


@table_lookup.reference
def reference(x: NDArray, table: NDArray) -> NDArray:
    numbers = np.asarray(x, np.int16).astype(np.uint16)
    return np.asarray(table, np.float64)[np.minimum(numbers, len(table) - 1)]


@table_lookup.peer
def peer(x: Any, table: Any) -> Any:
    return table[(x.int() & 0xFFFF).clamp_max(len(table) - 1)]


table_lookup.workload("BERT-base ffn", rows=128 * 3072, entries=65536)
table_lookup.workload("Llama-3-8B ffn, one token", rows=14336, entries=65536)
