"""Rotary position embedding: pairs of elements of a head turn by an angle that grows with the token's position.

    y1 = x1 · cos - x2 · sin,  y2 = x2 · cos + x1 · sin

The tables hold cosines and sines by position and pair. Pair p is of the elements p and p + pairs (layout "half", as in
GPT-NeoX and Llama's checkpoints at Hugging Face), or 2p and 2p + 1 ("interleaved", as in GPT-J and Meta's Llama). The
first 2 · pairs elements of a head turn, those behind them stay as they are.
Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021 (arXiv:2104.09864).

Preconditions: 2 · pairs <= head_dim; each position lies in [0, entries); the call checks both before it runs.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og


def turned(x: og.Tensor, cos: og.Tensor, sin: og.Tensor, layout: str) -> og.Tensor:
    """x with its first 2 · pairs elements along head_dim turned; cos and sin have the dim pairs."""
    og.require("2 * pairs <= head_dim", "a pair is of two elements of a head")
    d, pairs = og.index("head_dim"), og.size("pairs")
    if layout == "half":
        pair, second = d % pairs, d >= pairs
        partner = og.where(second, d - pairs, d + pairs)
    else:
        pair, second = d // 2, d % 2 == 1
        partner = og.where(second, d - 1, d + 1)
    other = x.at(head_dim=partner)
    y = x * cos.at(pairs=pair) + og.where(second, other, -other) * sin.at(pairs=pair)
    return og.where(d < 2 * pairs, y, x)


@og.op
def rope(
    x: og.Tensor["...", "heads", "head_dim"],
    positions: og.Tensor["...", og.integer],
    cos: og.Tensor["entries", "pairs"],
    sin: og.Tensor["entries", "pairs"],
    *,
    layout: Literal["half", "interleaved"] = "half",
) -> og.Tensor:
    """y1 = x1 · cos - x2 · sin, y2 = x2 · cos + x1 · sin, for the pairs (x1, x2) of a head"""
    return turned(x, cos.at(entries=positions), sin.at(entries=positions), layout)


def turned_reference(x: NDArray, cos: NDArray, sin: NDArray, layout: str) -> NDArray:
    """As complex numbers; cos and sin have the leading dims of x and the pairs."""
    x, pairs = np.asarray(x, np.float64), cos.shape[-1]
    first, second = (
        (slice(0, pairs), slice(pairs, 2 * pairs))
        if layout == "half"
        else (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    )
    z = (x[..., first] + 1j * x[..., second]) * (cos + 1j * sin)[..., None, :]
    y = x.copy()
    y[..., first], y[..., second] = z.real, z.imag
    return y


@rope.reference
def reference(x: NDArray, positions: NDArray, cos: NDArray, sin: NDArray, *, layout: str = "half") -> NDArray:
    cos, sin = (np.asarray(t, np.float64)[np.asarray(positions)] for t in (cos, sin))
    return turned_reference(x, cos, sin, layout)


def torch_turned(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    """As models at Hugging Face do it; cos and sin have the leading dims of x and the pairs."""
    import torch

    cos, sin = cos[..., None, :], sin[..., None, :]
    turning, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    if layout == "half":
        x1, x2 = turning.chunk(2, -1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest), -1)
    x1, x2 = turning[..., ::2], turning[..., 1::2]
    return torch.cat((torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1).flatten(-2), rest), -1)


@rope.peer
def peer(x: Any, positions: Any, cos: Any, sin: Any, *, layout: str = "half") -> Any:
    return torch_turned(x, cos[positions], sin[positions], layout)


rope.workload("Llama-3-8B q, one token", rows=1, heads=32, head_dim=128, entries=8192, pairs=64)
rope.workload("Llama-3-8B q, prefill", rows=2048, heads=32, head_dim=128, entries=8192, pairs=64)
rope.workload("GPT-NeoX-20B q, a quarter of each head", rows=2048, heads=64, head_dim=96, entries=2048, pairs=12)
rope.workload(
    "GPT-J-6B q",
    rows=2048,
    heads=16,
    head_dim=256,
    entries=2048,
    pairs=32,
    attributes={"layout": "interleaved"},
)
