"""What the attention ops share: grouped heads, a dense reference in double, and torch's form. No op of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import opsgen as og


def grouped_heads(*tensors: og.Tensor) -> tuple[og.Tensor, ...]:
    """Keys and values, which have the dim "kv_heads", with the dim "heads" of the queries in its place.

    Each of them serves heads / kv_heads query heads that follow each other: as many of both is multi-head attention,
    one kv_head multi-query attention. Source: Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models
    from Multi-Head Checkpoints, 2023 (arXiv:2305.13245).

    A call in which kv_heads does not divide heads gets E4010.
    """
    og.require("heads == 0 or heads % kv_heads == 0", "heads must be a multiple of kv_heads")
    # Where kv_heads divides heads this is head // (heads // kv_heads), with one division: of two in a row, TVM 0.27
    # copies the first into every step of the second, which takes it eight seconds.
    head = og.index("heads") * og.size("kv_heads") // og.size("heads")
    return tuple(x.at(kv_heads=head) for x in tensors)


def dense_reference(
    q: NDArray,
    k: NDArray,
    v: NDArray,
    *,
    scale: float,
    score: Callable[[NDArray], ArrayLike] = lambda scores: scores,
    seen: ArrayLike = True,
) -> dict[str, NDArray]:
    """Attention row by row, in double, over the keys that a row sees and no others.

    Args:
        q, k, v: [batch, heads, queries, head_dim], [batch, kv_heads, keys, head_dim] and [batch, kv_heads, keys,
            value_dim].
        score: what is done to the scores, [batch, heads, queries, keys].
        seen: bool, broadcast to the scores.

    Returns:
        y, [batch, heads, queries, value_dim], and lse, [batch, heads, queries]: 0 and -inf for rows that see nothing.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if k.shape[1] not in (0, q.shape[1]):
        k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = np.asarray(score(np.einsum("bhqd,bhkd->bhqk", q, k) * scale), np.float64)
    seen = np.broadcast_to(np.asarray(seen, bool), scores.shape)
    y, lse = np.zeros((*q.shape[:3], v.shape[3])), np.full(q.shape[:3], -np.inf)
    for row in np.ndindex(*q.shape[:3]):
        if seen[row].any():
            chosen = scores[row][seen[row]]
            e = np.exp(chosen - chosen.max())
            y[row] = e @ v[row[:2]][seen[row]] / e.sum()
            lse[row] = chosen.max() + np.log(e.sum())
    return {"y": y, "lse": lse}


def torch_attention(q: Any, k: Any, v: Any, *, scale: float, mask: Any = None, causal: bool = False) -> Any:
    """torch's own attention, for peers: ``mask`` is bool or added to the scores, and broadcast to them."""
    from torch.nn import functional

    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


def cudnn_attention(q: Any, k: Any, v: Any, *, scale: float, causal: bool = False) -> Any:
    """torch's call of cuDNN's attention; NotImplemented where there is none: off NVIDIA GPUs, and for wide types."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not q.is_cuda or q.element_size() != 2:
        return NotImplemented
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch_attention(q, k, v, scale=scale, causal=causal)


@lru_cache(maxsize=2)
def causal_mask(queries: int, keys: int, device: Any, window: int | None = None) -> Any:
    """True where a query attends a key, bottom-right, for peers: kept, as a user would make it once."""
    import torch

    distance = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)
