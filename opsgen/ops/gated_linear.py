"""The gated half of a Transformer's feed-forward layer: y = act(x · Wgᵀ + bg) · (x · Wuᵀ + bu).

With silu it is SwiGLU, with gelu or gelu_tanh (gelu with approximate="tanh") GEGLU, with relu ReGLU.
Source: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv:2002.05202).

Preconditions: none. Both products are summed in float32 for half types, and rounded once, after the gate.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from .linear import activated, linear, torch_activated


@og.op
def gated_linear(
    x: og.Tensor["...", "in_features"],
    gate_weight: og.Tensor["out_features", "in_features"],
    up_weight: og.Tensor["out_features", "in_features"],
    gate_bias: og.Tensor["out_features"] | None = None,
    up_bias: og.Tensor["out_features"] | None = None,
    *,
    activation: Literal["silu", "gelu", "gelu_tanh", "relu"] = "silu",
) -> og.Tensor:
    """y = act(x · gate_weightᵀ + gate_bias) · (x · up_weightᵀ + up_bias)"""
    gate = og.dot(x, gate_weight, over="in_features")
    if gate_bias is not None:
        gate = gate + gate_bias
    up = og.dot(x, up_weight, over="in_features")
    if up_bias is not None:
        up = up + up_bias
    return activated(gate, activation) * up


@gated_linear.reference
def reference(
    x: NDArray,
    gate_weight: NDArray,
    up_weight: NDArray,
    gate_bias: NDArray | None = None,
    up_bias: NDArray | None = None,
    *,
    activation: str = "silu",
) -> NDArray:
    gate = linear.expected(x, gate_weight, gate_bias, activation=activation)
    return np.asarray(gate * linear.expected(x, up_weight, up_bias))


@gated_linear.peer
def peer(
    x: Any, gate_weight: Any, up_weight: Any, gate_bias: Any = None, up_bias: Any = None, *, activation: str = "silu"
) -> Any:
    from torch.nn import functional

    gate = torch_activated(functional.linear(x, gate_weight, gate_bias), activation)
    return gate * functional.linear(x, up_weight, up_bias)


gated_linear.workload(
    "Llama-3-8B ffn, one token", rows=1, in_features=4096, out_features=14336, absent=("gate_bias", "up_bias")
)
gated_linear.workload(
    "SmolLM2-135M ffn, prefill", rows=512, in_features=576, out_features=1536, absent=("gate_bias", "up_bias")
)
gated_linear.workload(
    "T5-v1.1-base ffn",
    rows=512,
    in_features=768,
    out_features=2048,
    absent=("gate_bias", "up_bias"),
    attributes={"activation": "gelu_tanh"},
)
