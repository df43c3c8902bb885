"""RMS normalization: y = h / √(mean(h²) + eps) · weight, where h = x + residual.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv:1910.07467).

Preconditions: none. Half types are squared in float32, so |h| above 256 does not overflow in float16.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def rms_norm(
    x: og.Tensor["...", "hidden"],
    weight: og.Tensor["hidden"],
    residual: og.Tensor["...", "hidden"] | None = None,
    *,
    eps: float = 1e-6,
) -> og.Tensor:
    """y = h / √(mean(h², hidden) + eps) · weight, h = x + residual"""
    h = x if residual is None else x + residual
    return h * og.rsqrt(og.mean(h * h, over="hidden") + eps) * weight


@rms_norm.reference
def reference(x: NDArray, weight: NDArray, residual: NDArray | None = None, *, eps: float = 1e-6) -> NDArray:
    h = np.asarray(x, np.float64)
    if residual is not None:
        h = h + residual
    norm = np.sqrt(np.sum(h**2, axis=-1, keepdims=True) / max(h.shape[-1], 1) + eps)
    return h / norm * np.asarray(weight, np.float64)


@rms_norm.peer
def peer(x: Any, weight: Any, residual: Any = None, *, eps: float = 1e-6) -> Any:
    from torch.nn import functional

    h = x if residual is None else x + residual
    return functional.rms_norm(h, h.shape[-1:], weight, eps)


rms_norm.workload("Llama-3-8B, one token", rows=1, hidden=4096, absent=("residual",))
rms_norm.workload("Llama-3-8B, prefill", rows=2048, hidden=4096, absent=("residual",))
rms_norm.workload("Qwen2.5-0.5B", rows=512, hidden=896, absent=("residual",))
rms_norm.workload("T5-base", rows=512, hidden=768)
