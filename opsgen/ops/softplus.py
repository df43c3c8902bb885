"""Softplus: y = log(1 + exp(beta · x)) / beta, and x itself where beta · x > threshold.

The logarithm is taken as max(z, 0) + log(1 + exp(-|z|)), z = beta · x, so no exponential overflows whatever the
threshold is. Source: torch.nn.functional.softplus (documentation of PyTorch).

Preconditions: none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def softplus(x: og.Tensor["..."], *, beta: float = 1.0, threshold: float = 20.0) -> og.Tensor:
    """y = x where beta · x > threshold, else log(1 + exp(beta · x)) / beta"""
    z = x * beta
    return og.where(z > threshold, x, (og.max(z, 0.0) + og.log1p(og.exp(-og.abs(z)))) / beta)


@softplus.reference
def reference(x: NDArray, *, beta: float = 1.0, threshold: float = 20.0) -> NDArray:
    x = np.asarray(x, np.float64)
    return np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta)


@softplus.peer
def peer(x: Any, *, beta: float = 1.0, threshold: float = 20.0) -> Any:
    from torch.nn import functional

    return functional.softplus(x, beta, threshold)


softplus.workload("Mamba-130M, time steps", rows=2048 * 1536)
softplus.workload("Mamba-2.8B, time steps of one token", rows=5120)
