"""The pre-norm step of a Transformer block with RMS norm: sum = x + residual, out = rms_norm(sum).

The sum goes on as the next residual, the normalized one into the next sublayer. Source: Zhang and Sennrich, Root
Mean Square Layer Normalization, 2019 (arXiv:1910.07467); Xiong et al., On Layer Normalization in the Transformer
Architecture, 2020 (arXiv:2002.04745), for the place of the norm.

Preconditions: none. In half types ``out`` comes from the sum before it is rounded.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .rms_norm import rms_norm


@og.op
def add_rms_norm(
    x: og.Tensor["...", "hidden"],
    residual: og.Tensor["...", "hidden"],
    weight: og.Tensor["hidden"],
    *,
    eps: float = 1e-6,
) -> og.Results:
    """sum = x + residual; out = rms_norm(sum)"""
    total = x + residual
    return og.results(out=rms_norm(total, weight, eps=eps), sum=total)


@add_rms_norm.reference
def reference(x: NDArray, residual: NDArray, weight: NDArray, *, eps: float = 1e-6) -> dict[str, NDArray]:
    total = np.asarray(x, np.float64) + np.asarray(residual, np.float64)
    squares = np.sum(np.square(total), axis=-1, keepdims=True) / max(total.shape[-1], 1)
    return {"out": total / np.sqrt(squares + eps) * np.asarray(weight, np.float64), "sum": total}


@add_rms_norm.peer
def peer(x: Any, residual: Any, weight: Any, *, eps: float = 1e-6) -> Any:
    from torch.nn import functional

    total = x + residual
    return {"out": functional.rms_norm(total, total.shape[-1:], weight, eps), "sum": total}


add_rms_norm.workload("Llama-3-8B, one token", rows=1, hidden=4096)
add_rms_norm.workload("Llama-3-8B, prefill", rows=2048, hidden=4096)
add_rms_norm.workload("Qwen2.5-0.5B", rows=512, hidden=896)
