"""Rotary position embedding without tables: pair p of a head turns by position · frequencies[p] (see `rope`).

The frequencies are base^(-2p / (2 · pairs)), with base 10000 or 500000, or what a scaling for longer texts makes of
them. Angles, cosines and sines are float32. Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position
Embedding, 2021 (arXiv:2104.09864).

Preconditions: 2 · pairs <= head_dim; the call checks it before it runs. A float32 angle is off by up to position ·
frequency · 2^-24 (as in torch).
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .rope import torch_turned, turned, turned_reference


@og.op
def rope_from_frequencies(
    x: og.Tensor["...", "heads", "head_dim"],
    positions: og.Tensor["...", og.integer],
    frequencies: og.Tensor["pairs", og.float32],
    *,
    layout: Literal["half", "interleaved"] = "half",
) -> og.Tensor:
    """y1 = x1 · cos a - x2 · sin a, y2 = x2 · cos a + x1 · sin a, for the pairs of a head, a = position · frequency"""
    angle = og.cast(positions, og.float32) * frequencies
    return og.cast(turned(x, og.cos(angle), og.sin(angle), layout), x.dtype)


@rope_from_frequencies.reference
def reference(x: NDArray, positions: NDArray, frequencies: NDArray, *, layout: str = "half") -> NDArray:
    angle = np.multiply.outer(np.asarray(positions, np.float64), np.asarray(frequencies, np.float64))
    return turned_reference(x, np.cos(angle), np.sin(angle), layout)


@rope_from_frequencies.peer
def peer(x: Any, positions: Any, frequencies: Any, *, layout: str = "half") -> Any:
    import torch

    real = torch.promote_types(x.dtype, torch.float32)
    angle = positions[..., None].to(real) * frequencies.to(real)
    return torch_turned(x, angle.cos(), angle.sin(), layout).to(x.dtype)


rope_from_frequencies.workload("Llama-3-8B q, one token", rows=1, heads=32, head_dim=128, pairs=64)
rope_from_frequencies.workload("Llama-3-8B q, prefill", rows=2048, heads=32, head_dim=128, pairs=64)
rope_from_frequencies.workload("GPT-NeoX-20B q, a quarter of each head", rows=2048, heads=64, head_dim=96, pairs=12)
