"""Scatter-add: row t of x is added to row positions[t] of a result that starts at 0.

It is the gradient of an embedding, and what brings the tokens of a mixture of experts back together.
Source: torch.Tensor.index_add_ (documentation of PyTorch).

Preconditions: none; rows whose position lies outside of [0, destinations) go nowhere. ``like`` says how many
destinations there are: any tensor with that dim, of which no element is read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def scatter_add(
    x: og.Tensor["sources", "hidden"], positions: og.Tensor["sources", og.integer], like: og.Tensor["destinations"]
) -> og.Tensor:
    """y[d] = Σ x[t] over all t with positions[t] = d"""
    return og.scatter_add(x, positions, over="sources", into="destinations")


@scatter_add.reference
def reference(x: NDArray, positions: NDArray, like: NDArray) -> NDArray:
    y = np.zeros((len(like), x.shape[1]))
    for row, to in zip(np.asarray(x, np.float64), positions, strict=True):
        if 0 <= to < len(like):
            y[to] += row
    return y


@scatter_add.peer
def peer(x: Any, positions: Any, like: Any) -> Any:
    return x.new_zeros(len(like), x.shape[1]).index_add_(0, positions, x)


scatter_add.workload("gradient of an embedding", sources=16384, hidden=4096, destinations=50000)
scatter_add.workload("mixture of experts, 2 experts a token", sources=32768, hidden=4096, destinations=16384)
