"""One-hot vectors: y[t, c] is 1 where ids[t] = c, and 0 elsewhere.

Source: torch.nn.functional.one_hot (documentation of PyTorch); here in a floating type.

Preconditions: none; an id outside of [0, classes) gives a row of zeros. ``like`` says how many classes there are and
the element type: any tensor with that dim, of which no element is read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def one_hot(ids: og.Tensor["...", og.integer], like: og.Tensor["classes"]) -> og.Tensor:
    """y[c] = 1 if ids = c else 0"""
    return og.cast(og.where(ids == og.index("classes"), 1.0, 0.0), like.dtype)


@one_hot.reference
def reference(ids: NDArray, like: NDArray) -> NDArray:
    return np.asarray(np.asarray(ids)[..., None] == np.arange(len(like)), np.float64)


@one_hot.peer
def peer(ids: Any, like: Any) -> Any:
    from torch.nn import functional

    return functional.one_hot(ids, len(like)).to(like.dtype)


one_hot.workload("labels of ImageNet", rows=16384, classes=1000)
one_hot.workload("router of a mixture of experts", rows=16384, classes=64)
