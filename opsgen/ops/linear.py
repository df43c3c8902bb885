"""A linear layer with what usually follows it: y = act(x · weightᵀ + bias) + residual.

The activations are those of this package: relu, gelu, gelu_tanh (gelu with approximate="tanh") and silu.
Source: torch.nn.functional.linear, for the layout of the weight.

Preconditions: none. Products are summed in float32 for half types, and rounded once, after the residual.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .gelu import gelu
from .relu import relu
from .silu import silu


def activated(y: og.Tensor, activation: str) -> og.Tensor:
    """act(y), for the activations of `linear`; "none" leaves y as it is."""
    if activation == "relu":
        return relu(y)
    if activation == "gelu":
        return gelu(y)
    if activation == "gelu_tanh":
        return gelu(y, approximate="tanh")
    return silu(y) if activation == "silu" else y


@og.op
def linear(
    x: og.Tensor["...", "in_features"],
    weight: og.Tensor["out_features", "in_features"],
    bias: og.Tensor["out_features"] | None = None,
    residual: og.Tensor["...", "out_features"] | None = None,
    *,
    activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu"] = "none",
) -> og.Tensor:
    """y = act(x · weightᵀ + bias) + residual"""
    y = og.dot(x, weight, over="in_features")
    if bias is not None:
        y = y + bias
    y = activated(y, activation)
    return y if residual is None else y + residual


def _times_sigmoid(y: NDArray, u: NDArray) -> NDArray:
    with np.errstate(over="ignore"):  # e^-u is inf far below 0, and y / inf the right 0
        return y / (1 + np.exp(-u))


@linear.reference
def reference(
    x: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    residual: NDArray | None = None,
    *,
    activation: str = "none",
) -> NDArray:
    y = np.asarray(x, np.float64) @ np.asarray(weight, np.float64).T
    if bias is not None:
        y = y + bias
    if activation == "relu":
        y = np.maximum(y, 0)
    elif activation == "gelu":
        y = y * np.vectorize(math.erfc, otypes=[np.float64])(-y / math.sqrt(2)) / 2
    elif activation == "gelu_tanh":
        y = _times_sigmoid(y, math.sqrt(8 / math.pi) * (y + 0.044715 * y**3))  # (1 + tanh u)/2 = sigmoid(2u)
    elif activation == "silu":
        y = _times_sigmoid(y, y)
    return y if residual is None else y + residual


@linear.peer
def peer(x: Any, weight: Any, bias: Any = None, residual: Any = None, *, activation: str = "none") -> Any:
    from torch.nn import functional

    y = torch_activated(functional.linear(x, weight, bias), activation)
    return y if residual is None else y + residual


def torch_activated(y: Any, activation: str) -> Any:
    """What `activated` is in torch."""
    from torch.nn import functional

    if activation in ("gelu", "gelu_tanh"):
        return functional.gelu(y, approximate="tanh" if activation == "gelu_tanh" else "none")
    return y if activation == "none" else getattr(functional, activation)(y)


linear.workload("BERT-base qkv", rows=128, in_features=768, out_features=2304, absent=("residual",))
linear.workload("BERT-base attention output", rows=128, in_features=768, out_features=768)
linear.workload(
    "BERT-base ffn in",
    rows=128,
    in_features=768,
    out_features=3072,
    absent=("residual",),
    attributes={"activation": "gelu"},
)
linear.workload("BERT-base ffn out", rows=128, in_features=3072, out_features=768)
linear.workload(
    "MiniLM-L6 ffn in",
    rows=256,
    in_features=384,
    out_features=1536,
    absent=("residual",),
    attributes={"activation": "gelu"},
)
linear.workload(
    "Llama-3-8B output, one token", rows=1, in_features=4096, out_features=4096, absent=("bias", "residual")
)
linear.workload(
    "Llama-3-8B gate, one token",
    rows=1,
    in_features=4096,
    out_features=14336,
    absent=("bias", "residual"),
    attributes={"activation": "silu"},
)
