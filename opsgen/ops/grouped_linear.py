"""A linear layer with a weight for each group of rows (mixture of experts): y = act(x · weightᵀ + bias) · scale.

The tokens are sorted by expert: those of expert e are offsets[e] to offsets[e + 1], without the last. ``scale`` is a
number for each token, such as its router's weight. The activations are those of `linear`.

Offsets have an entry more than there are experts, as those of `varlen_attention` do (torch._grouped_mm takes the
last entries of them), so that an expert's both ends stand side by side.
Source: Gale et al., MegaBlocks: Efficient Sparse Training with Mixture-of-Experts, 2022 (arXiv:2211.15841), for
products of groups of any size; torch._grouped_mm.

Preconditions: offsets start at 0, never fall and end at the number of tokens; a call on the CPU checks it before it
runs. On a GPU they are not read beforehand: there tokens before the first offset are computed with the first expert's
weight, and those behind the last with the last expert's. Experts may have no tokens.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .linear import activated, torch_activated
from .linear import reference as linear_reference


@og.op
def grouped_linear(
    x: og.Tensor["tokens", "in_features"],
    weight: og.Tensor["experts", "out_features", "in_features"],
    offsets: og.Tensor["offsets", og.integer],
    bias: og.Tensor["experts", "out_features"] | None = None,
    scale: og.Tensor["tokens"] | None = None,
    *,
    activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu"] = "none",
) -> og.Tensor:
    """y = act(x · weight[expert]ᵀ + bias[expert]) · scale, with each token's expert"""
    og.require("offsets == experts + 1", "an offset for each expert and one for the end")
    expert = og.segment(offsets, "tokens")
    y = og.dot(x, weight.at(experts=expert), over="in_features")
    if bias is not None:
        y = y + bias.at(experts=expert)
    y = activated(y, activation)
    return y if scale is None else y * scale


@grouped_linear.reference
def reference(
    x: NDArray,
    weight: NDArray,
    offsets: NDArray,
    bias: NDArray | None = None,
    scale: NDArray | None = None,
    *,
    activation: str = "none",
) -> NDArray:
    y = np.zeros((x.shape[0], weight.shape[1]))
    for e in range(weight.shape[0]):
        own = slice(offsets[e], offsets[e + 1])
        y[own] = linear_reference(x[own], weight[e], None if bias is None else bias[e], activation=activation)
    return y if scale is None else y * np.asarray(scale, np.float64)[:, None]


@grouped_linear.peer
def peer(x: Any, weight: Any, offsets: Any, bias: Any = None, scale: Any = None, *, activation: str = "none") -> Any:
    """torch._grouped_mm where it has kernels (half types on GPUs), and a product for each expert elsewhere."""
    import torch

    if x.is_cuda and x.dtype in (torch.bfloat16, torch.float16):
        y = torch._grouped_mm(x, weight.transpose(1, 2), offs=offsets[1:].int())
    else:
        ends = offsets.tolist()
        y = torch.cat([x[a:b] @ w.T for w, a, b in zip(weight, ends, ends[1:], strict=False)])
    if bias is not None:
        y = y + bias.repeat_interleave(offsets.diff(), 0, output_size=x.shape[0])
    y = torch_activated(y, activation)
    return y if scale is None else y * scale[:, None]


grouped_linear.workload(
    "Mixtral-8x7B gate", tokens=16384, in_features=4096, out_features=14336, experts=8, offsets=9,
    absent=("bias", "scale"), attributes={"activation": "silu"},
)  # fmt: skip
grouped_linear.workload(
    "Qwen3-30B-A3B down, 512 tokens of 8 experts each", tokens=4096, in_features=768, out_features=2048, experts=128,
    offsets=129, absent=("bias",),
)  # fmt: skip
grouped_linear.workload(
    "DeepSeek-V2-Lite up, 1024 tokens of 6 experts each", tokens=6144, in_features=2048, out_features=1408, experts=64,
    offsets=65, absent=("bias", "scale"),
)  # fmt: skip
