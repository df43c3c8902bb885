"""The first token's vector stands for a sequence: y = x[first].

Source: Devlin et al., BERT, 2018 (arXiv:1810.04805).

Preconditions: sequences have a position; the call checks it before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def cls_pool(x: og.Tensor["batch", "length", "hidden"]) -> og.Tensor:
    """y = x[0], of length"""
    og.require("length > 0", "a sequence has a first position")
    return x.at(length=0)


@cls_pool.reference
def reference(x: NDArray) -> NDArray:
    return np.take(np.asarray(x, np.float64), 0, axis=1)


@cls_pool.peer
def peer(x: Any) -> Any:
    return x[:, 0].contiguous()


cls_pool.workload("BERT-base", batch=8, length=128, hidden=768)
cls_pool.workload("BGE-large", batch=32, length=512, hidden=1024)
