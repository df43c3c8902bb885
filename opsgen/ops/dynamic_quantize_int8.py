"""Dynamic quantisation to int8, row by row: scale = max |x| / 127, q = round(x / scale), x ≈ q · scale.

`round` takes halves to even; q lies in [-127, 127]. Both results go into `int8_linear`. Source: Dettmers et al.,
LLM.int8(), 2022 (arXiv:2208.07339), for absmax quantisation by rows.

Preconditions: none. A row of zeros, or of nothing, has scale 0 and q 0. An infinity in a row gives scale inf and q 0, a
NaN scale NaN and q 0: q · scale is NaN for all of it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def dynamic_quantize_int8(x: og.Tensor["...", "columns"]) -> og.Results:
    """scale = max |x| / 127, over columns; q = clamp(round(x / scale), -127, 127)"""
    scale = og.cast(og.max(og.max(og.abs(x), over="columns"), 0.0), og.float32) / 127.0
    q = og.round(x / scale)
    q = og.where(og.isnan(q), 0.0, q)
    return og.results(q=og.cast(og.min(og.max(q, -127.0), 127.0), og.int8), scale=scale)


@dynamic_quantize_int8.reference
def reference(x: NDArray) -> dict[str, NDArray]:
    x = np.asarray(x, np.float64)
    scale = np.max(np.abs(x), axis=-1, initial=0.0) / 127
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.nan_to_num(np.rint(x / scale[..., None]), nan=0.0)
    return {"q": np.clip(q, -127, 127).astype(np.int8), "scale": scale}


@dynamic_quantize_int8.peer
def peer(x: Any) -> Any:
    import torch

    x = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = (x / scale).round().nan_to_num(0.0).clamp(-127, 127).to(torch.int8)
    return {"q": q, "scale": scale[..., 0]}


dynamic_quantize_int8.workload("Llama-3-8B hidden states, one token", rows=1, columns=4096)
dynamic_quantize_int8.workload("Llama-3-8B hidden states, prefill", rows=2048, columns=4096)
dynamic_quantize_int8.workload("BERT-base hidden states", rows=128, columns=768)
