"""Cumulative sum along the last dim: y[i] = x[0] + … + x[i].

``exclusive`` leaves x[i] out, ``reverse`` sums from the last element.
Source: Blelloch, Prefix Sums and Their Applications, 1990.

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def cumulative_sum(x: og.Tensor["...", "columns"], *, exclusive: bool = False, reverse: bool = False) -> og.Tensor:
    """y[i] = Σ x[0 … i], over columns"""
    return og.cumsum(x, over="columns", exclusive=exclusive, reverse=reverse)


@cumulative_sum.reference
def reference(x: NDArray, exclusive: bool = False, reverse: bool = False) -> NDArray:
    x = np.asarray(x, np.float64)
    x = x[..., ::-1] if reverse else x
    y = np.cumsum(x, axis=-1)
    y = y - x if exclusive else y
    return y[..., ::-1] if reverse else y


@cumulative_sum.peer
def peer(x: Any, *, exclusive: bool = False, reverse: bool = False) -> Any:
    turned = x.flip(-1) if reverse else x
    y = turned.cumsum(-1)
    y = y - turned if exclusive else y
    return y.flip(-1) if reverse else y


cumulative_sum.workload("top-p sampling, Llama-3-8B", rows=16, columns=128256)
cumulative_sum.workload("state-space model, chunks of 256", rows=16384, columns=256)
cumulative_sum.workload("one long row", rows=1, columns=10_000_000)
