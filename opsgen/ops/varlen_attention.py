"""Attention within each of several sequences, which are packed one after the other without padding.

Sequence s has the queries q_offsets[s] to q_offsets[s + 1] and the keys k_offsets[s] to k_offsets[s + 1], without the
last. With ``causal`` its queries are its last tokens (bottom-right alignment, see `causal_attention`). ``lse`` is the
log-sum-exp of the scores, in float32 at least. Heads of q may share those of k and v in groups.
Source: Dao, FlashAttention-2, 2023 (arXiv:2307.08691), flash_attn_varlen_func; torch.nn.attention.varlen.

Preconditions: heads is a multiple of kv_heads; both offsets start at 0, never fall and end at the number of tokens,
which the call checks before it runs. Sequences may be empty. A query that sees no key gives 0, and lse -inf.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import dense_reference, grouped_heads, torch_attention


@og.op
def varlen_attention(
    q: og.Tensor["queries", "heads", "head_dim"],
    k: og.Tensor["keys", "kv_heads", "head_dim"],
    v: og.Tensor["keys", "kv_heads", "value_dim"],
    q_offsets: og.Tensor["offsets", og.integer],
    k_offsets: og.Tensor["offsets", og.integer],
    *,
    scale: float,
    causal: bool = False,
) -> og.Results:
    """y = softmax(scale · q kᵀ where key is in the query's sequence, over keys) v"""
    sequence = og.segment(q_offsets, "queries")
    og.require_offsets(k_offsets, "keys")
    k, v = grouped_heads(k, v)
    begin, end = k_offsets.at(offsets=sequence), k_offsets.at(offsets=sequence + 1)
    if causal:
        end = end - (q_offsets.at(offsets=sequence + 1) - 1 - og.index("queries"))
    seen = (og.index("keys") >= begin) & (og.index("keys") < end)
    scores = og.dot(q, k, over="head_dim") * scale
    return og.results(
        y=og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys"),
        lse=og.logsumexp(scores, over="keys", where=seen),
    )


@varlen_attention.reference
def reference(
    q: NDArray,
    k: NDArray,
    v: NDArray,
    q_offsets: NDArray,
    k_offsets: NDArray,
    *,
    scale: float,
    causal: bool = False,
) -> dict[str, NDArray]:
    y, lse = np.zeros((*q.shape[:2], v.shape[2])), np.full(q.shape[:2], -np.inf)
    for s in range(len(q_offsets) - 1):
        queries, keys = slice(*q_offsets[s : s + 2]), slice(*k_offsets[s : s + 2])
        one = [np.asarray(x).transpose(1, 0, 2)[None] for x in (q[queries], k[keys], v[keys])]
        shape = one[0].shape[2], one[1].shape[2]
        seen = np.tri(*shape, shape[1] - shape[0], dtype=bool) if causal else True
        found = dense_reference(*one, scale=scale, seen=seen)
        y[queries], lse[queries] = found["y"][0].transpose(1, 0, 2), found["lse"][0].T
    return {"y": y, "lse": lse}


@varlen_attention.peer
def peer(q: Any, k: Any, v: Any, q_offsets: Any, k_offsets: Any, *, scale: float, causal: bool = False) -> Any:
    import torch

    query, key = (torch.arange(x.shape[0], device=x.device) for x in (q, k))
    of_query, of_key = (torch.bucketize(at, o[1:], right=True) for at, o in ((query, q_offsets), (key, k_offsets)))
    seen = of_query[:, None] == of_key
    if causal:
        to_end = (q_offsets[of_query + 1] - query)[:, None]
        seen &= key <= k_offsets[of_query + 1][:, None] - to_end
    y = torch_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), scale=scale, mask=seen)
    return y[0].transpose(0, 1)


varlen_attention.workload(
    "BERT-base, 8 sequences",
    queries=512,
    keys=512,
    heads=12,
    kv_heads=12,
    head_dim=64,
    value_dim=64,
    offsets=9,
)
varlen_attention.workload(
    "Llama-3-8B, prefill of 16",
    queries=4096,
    keys=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    value_dim=128,
    offsets=17,
    attributes={"causal": True},
)
