"""Attention over blocks of the scores: y = softmax(scale · q kᵀ where the pair's block is in the mask) v.

``block_mask`` is True for each block of block_size queries times block_size keys that is computed; the last block may
be shorter. It can be a view that is expanded (stride 0) along heads. Heads of q may share those of k and v in groups.
Source: Child et al., Generating Long Sequences with Sparse Transformers, 2019 (arXiv:1904.10509);
torch.nn.attention.flex_attention.BlockMask, for the default size.

Preconditions: heads is a multiple of kv_heads; the mask covers the scores: query_blocks · block_size is queries,
rounded up, and so for keys. A query without any block gives 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import dense_reference, grouped_heads, torch_attention


@og.op
def block_sparse_attention(
    q: og.Tensor["batch", "heads", "queries", "head_dim"],
    k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
    v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
    block_mask: og.Tensor["heads", "query_blocks", "key_blocks", og.bool_],
    *,
    scale: float,
    block_size: int = 128,
) -> og.Tensor:
    """y = softmax(scale · q kᵀ where block_mask[query // block_size, key // block_size], over keys) v"""
    for blocks, dim in (("query_blocks", "queries"), ("key_blocks", "keys")):
        og.require(
            f"{blocks} == ({dim} + {block_size - 1}) // {block_size}", f"a block for every {block_size} {dim} begun"
        )
    k, v = grouped_heads(k, v)
    scores = og.dot(q, k, over="head_dim") * scale
    seen = block_mask.at(query_blocks=og.index("queries") // block_size, key_blocks=og.index("keys") // block_size)
    return og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys")


@block_sparse_attention.reference
def reference(
    q: NDArray, k: NDArray, v: NDArray, block_mask: NDArray, *, scale: float, block_size: int = 128
) -> NDArray:
    seen = np.repeat(np.repeat(block_mask, block_size, axis=1), block_size, axis=2)
    return dense_reference(q, k, v, scale=scale, seen=seen[None, :, : q.shape[2], : k.shape[2]])["y"]


@block_sparse_attention.peer
def peer(q: Any, k: Any, v: Any, block_mask: Any, *, scale: float, block_size: int = 128) -> Any:
    seen = block_mask.repeat_interleave(block_size, 1).repeat_interleave(block_size, 2)
    return torch_attention(q, k, v, scale=scale, mask=seen[None, :, : q.shape[2], : k.shape[2]])


block_sparse_attention.workload(
    "GPT-2, local and strided",
    batch=1,
    heads=12,
    kv_heads=12,
    queries=1024,
    keys=1024,
    head_dim=64,
    value_dim=64,
    query_blocks=8,
    key_blocks=8,
)
block_sparse_attention.workload(
    "Llama-3-8B, prefill",
    batch=1,
    heads=32,
    kv_heads=8,
    queries=4096,
    keys=4096,
    head_dim=128,
    value_dim=128,
    query_blocks=32,
    key_blocks=32,
)
