"""The experts' outputs of each token, weighted and summed: y[t] = Σ weights[t, k] · x[positions[t, k]].

``positions`` says where the output of the token's k-th expert lies among all outputs, which are sorted by expert (see
`grouped_linear`). Source: Shazeer et al., Outrageously Large Neural Networks, 2017 (arXiv:1701.06538).

Preconditions: positions lie in [0, sources); the call checks it before it runs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def moe_combine(
    x: og.Tensor["sources", "hidden"],
    positions: og.Tensor["tokens", "slots", og.integer],
    weights: og.Tensor["tokens", "slots"],
) -> og.Tensor:
    """y = Σ weights · x[positions], over slots"""
    return og.sum(weights * x.at(sources=positions), over="slots")


@moe_combine.reference
def reference(x: NDArray, positions: NDArray, weights: NDArray) -> NDArray:
    y = np.zeros((len(positions), x.shape[1]))
    for t, k in np.ndindex(*positions.shape):
        y[t] += np.float64(weights[t, k]) * np.asarray(x[positions[t, k]], np.float64)
    return y


@moe_combine.peer
def peer(x: Any, positions: Any, weights: Any) -> Any:
    return (weights[..., None] * x[positions]).sum(1)


moe_combine.workload("Mixtral-8x7B, prefill", sources=4096, tokens=2048, slots=2, hidden=4096)
moe_combine.workload("Mixtral-8x7B, 16 tokens", sources=32, tokens=16, slots=2, hidden=4096)
