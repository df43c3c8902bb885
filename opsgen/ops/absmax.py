"""The largest magnitude: of a whole tensor, of each row or of each column, as scales of quantisation come from it.

Source: Dettmers et al., LLM.int8(), 2022 (arXiv:2208.07339), for absmax quantisation.

Preconditions: none. Of nothing it is 0; a NaN wins.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def absmax(x: og.Tensor["length", "columns"], *, of: Literal["tensor", "row", "column"] = "tensor") -> og.Tensor:
    """y = max |x|, over what `of` names"""
    over: tuple[str, ...] = {"tensor": ("length", "columns"), "row": ("columns",), "column": ("length",)}[of]
    return og.max(og.max(og.abs(x), over=over), 0.0)


@absmax.reference
def reference(x: NDArray, *, of: str = "tensor") -> NDArray:
    x = np.asarray(x, np.float64)
    axis = {"tensor": (0, 1), "row": (1,), "column": (0,)}[of]
    return np.asarray(np.maximum(np.max(x, axis=axis, initial=0), -np.min(x, axis=axis, initial=0)))


@absmax.peer
def peer(x: Any, *, of: str = "tensor") -> Any:
    return x.abs().amax({"tensor": (0, 1), "row": 1, "column": 0}[of])


absmax.workload("Llama-3-8B hidden states, prefill", length=2048, columns=4096)
absmax.workload("Llama-3-8B gate weight, rows", length=14336, columns=4096, attributes={"of": "row"})
absmax.workload("Llama-3-8B hidden states, channels", length=2048, columns=4096, attributes={"of": "column"})
