"""Dropout for training: each element is 0 with probability p, and else x / (1 - p); plus a residual, if there is one.

    u[i] = upper 24 bits of word i % 4 of Philox4x32-10(counter (i // 4, offset), key seed), times 2^-24
    y[i] = (0 if u[i] < p else x[i] / (1 - p)) + residual[i],  i the position of the element in the whole tensor

Source: Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 2014; Salmon et al.,
Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011 (Philox).

Preconditions: 0 ≤ p ≤ 1; p is taken as a float32. Nothing is dropped at p = 0, and everything at p = 1. What is dropped
is 0, whatever x holds.

Seed and offset decide the mask, with the position alone: it is the same on every target, for every dtype, and in the
backward pass, which is dropout of the gradient with the same seed and offset (and no residual). Calls that are to be
independent take other offsets. In evaluation there is nothing to compute.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._philox import torch_uniform, uniform


@og.op
def dropout(
    x: og.Tensor["..."],
    seed: og.Tensor[og.int64],
    offset: og.Tensor[og.int64],
    residual: og.Tensor["..."] | None = None,
    *,
    p: float = 0.1,
) -> og.Tensor:
    """y = (0 if u < p else x / (1 - p)) + residual"""
    u = og.random_uniform(og.index("..."), seed, offset)
    one = og.cast(1.0, x.dtype)  # what is made of numbers alone is float32, beside float64 too
    y = og.where(u < p, 0.0, x * (one / (one - p)))
    return y if residual is None else y + residual


@dropout.reference
def reference(x: NDArray, seed: Any, offset: Any, residual: Any = None, *, p: float = 0.1) -> NDArray:
    x = np.asarray(x, np.float64)
    u = uniform(np.arange(x.size).reshape(x.shape), seed, offset)
    kept = u >= float(np.float32(p))
    y = np.divide(x, 1 - p, out=np.zeros_like(x), where=kept)
    return y if residual is None else y + residual


@dropout.peer
def peer(x: Any, seed: Any, offset: Any, residual: Any = None, *, p: float = 0.1) -> Any:
    """The same mask, made by torch's arithmetic on integers."""
    import torch

    u = torch_uniform(torch.arange(x.numel(), device=x.device).reshape(x.shape), seed, offset)
    y = (x * (1 / (1 - p) if p < 1 else 0.0)).masked_fill(u < p, 0.0)  # as float32, which u is
    return y if residual is None else y + residual


@dropout.peer(name="torch's own mask")
def own_mask(x: Any, seed: Any, offset: Any, residual: Any = None, *, p: float = 0.1) -> Any:
    """What is written for it in torch, whose generator has other numbers."""
    from torch.nn import functional

    y = functional.dropout(x, p, training=True)
    return y if residual is None else y + residual


dropout.workload("BERT-base, hidden", rows=32 * 512 * 768)
dropout.workload("GPT-2, residual", rows=8 * 1024 * 1024)
