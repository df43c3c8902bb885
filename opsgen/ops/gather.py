"""Gather: row positions[t] of x for each t.

Source: torch.index_select (documentation of PyTorch). For leading dims of any number, see embedding.

Preconditions: each position lies in [0, entries); the call checks it before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def gather(x: og.Tensor["entries", "hidden"], positions: og.Tensor["wanted", og.integer]) -> og.Tensor:
    """y[t] = x[positions[t]]"""
    return x.at(entries=positions)


@gather.reference
def reference(x: NDArray, positions: NDArray) -> NDArray:
    return np.asarray(x, np.float64)[np.asarray(positions)]


@gather.peer
def peer(x: Any, positions: Any) -> Any:
    return x.index_select(0, positions)


gather.workload("mixture of experts, 2 experts a token", entries=16384, hidden=4096, wanted=32768)
gather.workload("beam search, keys of a layer", entries=64, hidden=131072, wanted=64)
