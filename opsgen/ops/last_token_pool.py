"""The last token's vector stands for a sequence, as embedding models of decoders have it: y = x[lengths - 1].

``lengths`` says how many positions of each sequence are there; padding is at the end. Source: Wang et al., Improving
Text Embeddings with Large Language Models, 2023 (arXiv:2401.00368).

Preconditions: lengths lie in [0, length]; the call checks it before it runs. A length of 0 gives 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og


@og.op
def last_token_pool(x: og.Tensor["batch", "length", "hidden"], lengths: og.Tensor["batch", og.integer]) -> og.Tensor:
    """y = x[lengths - 1], of length; 0 where lengths is 0"""
    og.require("length > 0", "a sequence has a position to be the last")
    og.require_lengths(lengths, "length")
    return og.where(lengths > 0, x.at(length=lengths - 1), 0.0)


@last_token_pool.reference
def reference(x: NDArray, lengths: NDArray) -> NDArray:
    rows = [s[n - 1] if n else np.zeros(s.shape[1]) for s, n in zip(np.asarray(x, np.float64), lengths)]
    return np.array(rows).reshape(x.shape[0], x.shape[2])


@last_token_pool.peer
def peer(x: Any, lengths: Any) -> Any:
    import torch

    last = x[torch.arange(len(x), device=x.device), (lengths - 1).clamp(min=0)]
    return last.masked_fill((lengths == 0)[:, None], 0.0)


last_token_pool.workload("E5-Mistral-7B", batch=8, length=512, hidden=4096)
last_token_pool.workload("Qwen3-Embedding-0.6B", batch=32, length=256, hidden=1024)
