"""Logarithm of softmax over the last dim: y = (x - max x) - log Σ exp(x - max x).

The maximum is subtracted before the logarithm is, so logits that are large beside their spread lose nothing.
Source: torch.nn.functional.log_softmax (documentation of PyTorch).

Preconditions: none. A row of -inf alone, or one with inf, has no softmax and gives NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def log_softmax(x: og.Tensor["...", "columns"]) -> og.Tensor:
    """y = (x - max x) - log Σ exp(x - max x), over columns"""
    shifted = x - og.max(x, over="columns")
    return shifted - og.log(og.sum(og.exp(shifted), over="columns"))


@log_softmax.reference
def reference(x: NDArray) -> NDArray:
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):
        return x - np.logaddexp.reduce(x, axis=-1, keepdims=True, initial=-np.inf)


@log_softmax.peer
def peer(x: Any) -> Any:
    return x.log_softmax(-1)


log_softmax.workload("GPT-2 logits", rows=8, columns=50257)
log_softmax.workload("Llama-3-8B logits, one token", rows=1, columns=128256)
log_softmax.workload("Whisper, log-probabilities of a beam", rows=5, columns=51865)
