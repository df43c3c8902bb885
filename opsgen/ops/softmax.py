"""Softmax over the last dim: y = exp(x - max x) / Σ exp(x - max x).

The maximum is subtracted so that no exponential overflows; it cancels.
Source: Bridle, Training Stochastic Model Recognition Algorithms as Networks can Lead to Maximum Mutual Information
Estimation of Parameters, 1989.

Preconditions: none. A row of -inf alone has no softmax and gives NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def softmax(x: og.Tensor["...", "columns"]) -> og.Tensor:
    """y = exp(x - max x) / Σ exp(x - max x), over columns"""
    return og.softmax(x, over="columns")


@softmax.reference
def reference(x: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True, initial=-np.inf))
        return e / np.sum(e, axis=-1, keepdims=True)


@softmax.peer
def peer(x: Any) -> Any:
    return x.softmax(-1)


softmax.workload("BERT-base attention scores", rows=12 * 512, columns=512)
softmax.workload("GPT-2 logits", rows=8, columns=50257)
softmax.workload("Llama-3-8B logits", rows=1, columns=128256)
