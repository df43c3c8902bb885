"""Group normalization: y = act((x - mean) / √(var + eps) · weight + bias), moments over a group of channels.

x is [batch, channels, pixels]; more pixel dims are one, flattened. The activation is none or silu.
Source: Wu and He, Group Normalization, 2018 (arXiv:1803.08494).

Preconditions: channels is a multiple of groups. The variance is the mean of squared differences, as in `layer_norm`.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .silu import silu


@og.op
def group_norm(
    x: og.Tensor["batch", "channels", "pixels"],
    weight: og.Tensor["channels"] | None = None,
    bias: og.Tensor["channels"] | None = None,
    *,
    groups: int = 32,
    eps: float = 1e-5,
    activation: Literal["none", "silu"] = "none",
) -> og.Tensor:
    """y = act((x - mean x) / √(var x + eps) · weight + bias), mean and var over channels / groups and pixels"""
    over = ("member", "pixels")
    h = x.split("channels", group=groups, member=None)
    mean = og.mean(h, over=over)
    scale = og.rsqrt(og.mean((h - mean) * (h - mean), over=over) + eps)
    # Only the moments are kept for each group, and x is read again: a merge of h would be a copy of it.
    group = og.index("channels") // og.size("member")
    y = (x - mean.at(group=group)) * scale.at(group=group)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return silu(y) if activation == "silu" else y


@group_norm.reference
def reference(
    x: NDArray,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
    *,
    groups: int = 32,
    eps: float = 1e-5,
    activation: str = "none",
) -> NDArray:
    x = np.asarray(x, np.float64)
    y = np.zeros(x.shape)
    size = x.shape[1] // groups
    for start in range(0, x.shape[1] if x.size else 0, max(size, 1)):
        part = x[:, start : start + size]
        mean, variance = part.mean((1, 2), keepdims=True), part.var((1, 2), keepdims=True)
        y[:, start : start + size] = (part - mean) / np.sqrt(variance + eps)
    y = y if weight is None else y * np.asarray(weight)[:, None]
    y = y if bias is None else y + np.asarray(bias)[:, None]
    with np.errstate(over="ignore"):  # e^-y is inf far below 0, and y / inf the right 0
        return y / (1 + np.exp(-y)) if activation == "silu" else y


@group_norm.peer
def peer(
    x: Any, weight: Any = None, bias: Any = None, *, groups: int = 32, eps: float = 1e-5, activation: str = "none"
) -> Any:
    from torch.nn import functional

    y = functional.group_norm(x, groups, weight, bias, eps)
    return functional.silu(y) if activation == "silu" else y


group_norm.workload(
    "Stable Diffusion 1.5, first blocks", batch=2, channels=320, pixels=64 * 64, attributes={"activation": "silu"}
)
group_norm.workload("Stable Diffusion 1.5, attention", batch=2, channels=1280, pixels=16 * 16)
group_norm.workload(
    "Stable Diffusion decoder, last blocks", batch=1, channels=128, pixels=512 * 512, attributes={"activation": "silu"}
)
