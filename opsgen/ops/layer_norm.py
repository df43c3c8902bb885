"""Layer normalization: y = (h - mean h) / √(mean((h - mean h)²) + eps) · weight + bias, where h = x + residual.

Source: Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv:1607.06450). The form with a residual is the post-
norm block of the original Transformer.

Preconditions: none. The variance is the mean of squared differences: mean(h²) - mean(h)² would cancel where the
mean is large beside the spread.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def layer_norm(
    x: og.Tensor["...", "hidden"],
    weight: og.Tensor["hidden"],
    bias: og.Tensor["hidden"] | None = None,
    residual: og.Tensor["...", "hidden"] | None = None,
    *,
    eps: float = 1e-5,
) -> og.Tensor:
    """y = (h - mean h) / √(var h + eps) · weight + bias over hidden, h = x + residual"""
    h = x if residual is None else x + residual
    centered = h - og.mean(h, over="hidden")
    variance = og.mean(centered * centered, over="hidden")
    y = centered * og.rsqrt(variance + eps) * weight
    return y if bias is None else y + bias


@layer_norm.reference
def reference(
    x: NDArray, weight: NDArray, bias: NDArray | None = None, residual: NDArray | None = None, *, eps: float = 1e-5
) -> NDArray:
    h = np.asarray(x, np.float64)
    if residual is not None:
        h = h + residual
    if h.size == 0:  # numpy warns of a mean over nothing
        return h
    y = (h - h.mean(axis=-1, keepdims=True)) / np.sqrt(h.var(axis=-1, keepdims=True) + eps)
    y = y * np.asarray(weight, np.float64)
    return y if bias is None else y + bias


@layer_norm.peer
def peer(x: Any, weight: Any, bias: Any = None, residual: Any = None, *, eps: float = 1e-5) -> Any:
    from torch.nn import functional

    h = x if residual is None else x + residual
    return functional.layer_norm(h, h.shape[-1:], weight, bias, eps)


layer_norm.workload("BERT-base", rows=128, hidden=768)
layer_norm.workload("BERT-large", rows=512, hidden=1024)
layer_norm.workload("MiniLM-L6", rows=256, hidden=384)
layer_norm.workload("GPT-2", rows=1024, hidden=768, absent=("residual",))
