"""RMS normalization and SiLU in one pass: y = silu(x / √(mean(x²) + eps) · weight).

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv:1910.07467); Elfwing et al., Sigmoid-
Weighted Linear Units, 2017 (arXiv:1702.03118). The block of video autoencoders such as Wan's: norm, SiLU, convolution.

Preconditions: none. What lies between norm and activation is not rounded.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .rms_norm import rms_norm
from .silu import silu


@og.op
def rms_norm_silu(x: og.Tensor["...", "hidden"], weight: og.Tensor["hidden"], *, eps: float = 1e-6) -> og.Tensor:
    """y = silu(x / √(mean(x², hidden) + eps) · weight)"""
    return silu(rms_norm(x, weight, eps=eps))


@rms_norm_silu.reference
def reference(x: NDArray, weight: NDArray, *, eps: float = 1e-6) -> NDArray:
    x = np.asarray(x, np.float64)
    square = np.einsum("...i,...i->...", x, x)[..., None] / max(x.shape[-1], 1)
    z = x * np.asarray(weight, np.float64) / np.sqrt(square + eps)
    return z * 0.5 * (1 + np.tanh(z / 2))


@rms_norm_silu.peer
def peer(x: Any, weight: Any, *, eps: float = 1e-6) -> Any:
    from torch.nn import functional

    return functional.silu(functional.rms_norm(x, x.shape[-1:], weight, eps))


rms_norm_silu.workload("Wan 2.1 decoder, channels last", rows=104 * 60 * 8, hidden=384)
rms_norm_silu.workload("Wan 2.1 decoder, last blocks", rows=208 * 120 * 8, hidden=192)
