"""GELU: y = x · Φ(x), Φ the distribution function of the standard normal; or its approximation with tanh.

    none:  y = x/2 · (1 + erf(x / √2))
    tanh:  y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))

Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016 (arXiv:1606.08415). The names of the forms are those
of torch.nn.functional.gelu.

Preconditions: none.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def gelu(x: og.Tensor["..."], *, approximate: Literal["none", "tanh"] = "none") -> og.Tensor:
    """y = x · Φ(x)"""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1.0 + og.tanh(inner))
    return 0.5 * x * (1.0 + og.erf(x * math.sqrt(0.5)))


@gelu.reference
def reference(x: NDArray, *, approximate: str = "none") -> NDArray:
    x = np.asarray(x, np.float64)
    if approximate == "tanh":
        return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(-x / np.sqrt(2))


@gelu.peer
def peer(x: Any, *, approximate: str = "none") -> Any:
    from torch.nn import functional

    return functional.gelu(x, approximate=approximate)


gelu.workload("BERT-base ffn", rows=128 * 3072)
gelu.workload("MiniLM-L6 ffn", rows=256 * 1536)
gelu.workload("GPT-2 ffn", rows=1024 * 3072, attributes={"approximate": "tanh"})
