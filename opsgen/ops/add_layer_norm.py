"""The pre-norm step of a Transformer block with layer norm: sum = x + residual, out = layer_norm(sum).

The sum goes on as the next residual, the normalized one into the next sublayer. Source: Xiong et al., On Layer
Normalization in the Transformer Architecture, 2020 (arXiv:2002.04745).

Preconditions: none. In half types ``out`` comes from the sum before it is rounded.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .layer_norm import layer_norm


@og.op
def add_layer_norm(
    x: og.Tensor["...", "hidden"],
    residual: og.Tensor["...", "hidden"],
    weight: og.Tensor["hidden"],
    bias: og.Tensor["hidden"] | None = None,
    *,
    eps: float = 1e-5,
) -> og.Results:
    """sum = x + residual; out = layer_norm(sum)"""
    total = x + residual
    return og.results(out=layer_norm(total, weight, bias, eps=eps), sum=total)


@add_layer_norm.reference
def reference(
    x: NDArray, residual: NDArray, weight: NDArray, bias: NDArray | None = None, *, eps: float = 1e-5
) -> dict[str, NDArray]:
    total = np.asarray(x, np.float64) + np.asarray(residual, np.float64)
    length = max(total.shape[-1], 1)
    centered = total - total.sum(axis=-1, keepdims=True) / length
    deviation = np.sqrt((centered**2).sum(axis=-1, keepdims=True) / length + eps)
    out = centered / deviation * np.asarray(weight, np.float64)
    return {"out": out if bias is None else out + bias, "sum": total}


@add_layer_norm.peer
def peer(x: Any, residual: Any, weight: Any, bias: Any = None, *, eps: float = 1e-5) -> Any:
    from torch.nn import functional

    total = x + residual
    return {"out": functional.layer_norm(total, total.shape[-1:], weight, bias, eps), "sum": total}


add_layer_norm.workload("GPT-2", rows=1024, hidden=768)
add_layer_norm.workload("OPT-1.3B", rows=512, hidden=2048)
add_layer_norm.workload("ViT-L/16", rows=577, hidden=1024)
