"""Causal attention over a cache of keys and values in pages.

Token t of sequence b lies in page page_table[b, t // page_size], at t % page_size. ``lengths`` says how many tokens of
each sequence are in the cache, those of the queries included: they are the last (bottom-right alignment, see
`causal_attention`). ``lse`` is the log-sum-exp of the scores, in float32 at least. Heads of q may share those of the
pages in groups. Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
PagedAttention, 2023 (arXiv:2309.06180).

Preconditions: heads is a multiple of kv_heads; every entry of the table lies in [0, pages), those past a sequence's
length too, and lengths in [0, max_pages · page_size]; the call checks both before it runs. What pages hold past a
length does not matter, NaN included. A query that sees no key gives 0, and lse -inf.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._attention import dense_reference, grouped_heads, torch_attention


@og.op
def paged_attention(
    q: og.Tensor["batch", "queries", "heads", "head_dim"],
    k_pages: og.Tensor["pages", "page_size", "kv_heads", "head_dim"],
    v_pages: og.Tensor["pages", "page_size", "kv_heads", "value_dim"],
    page_table: og.Tensor["batch", "max_pages", og.integer],
    lengths: og.Tensor["batch", og.integer],
    *,
    scale: float,
) -> og.Results:
    """y = softmax(scale · q kᵀ where key <= query, over keys) v, keys and values read through the page table"""
    k, v = (x.at(pages=page_table).merge("max_pages", "page_size", into="keys") for x in (k_pages, v_pages))
    og.require_lengths(lengths, "keys")
    k, v = grouped_heads(k, v)
    scores = og.dot(q, k, over="head_dim") * scale
    seen = og.index("keys") <= og.index("queries") + (lengths - og.size("queries"))
    v = og.where(og.index("keys") < lengths, v, 0.0)
    return og.results(
        y=og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys"),
        lse=og.logsumexp(scores, over="keys", where=seen),
    )


@paged_attention.reference
def reference(
    q: NDArray, k_pages: NDArray, v_pages: NDArray, page_table: NDArray, lengths: NDArray, *, scale: float
) -> dict[str, NDArray]:
    y, lse = np.zeros((*q.shape[:3], v_pages.shape[3])), np.full(q.shape[:3], -np.inf)
    for b, length in enumerate(lengths):
        tokens = page_table.shape[1] * k_pages.shape[1]
        cache = [x[page_table[b]].reshape(tokens, *x.shape[2:])[:length] for x in (k_pages, v_pages)]
        one = [np.asarray(x).transpose(1, 0, 2)[None] for x in (q[b], *cache)]
        seen = np.tri(q.shape[1], length, int(length) - q.shape[1], dtype=bool)
        found = dense_reference(*one, scale=scale, seen=seen)
        y[b], lse[b] = found["y"][0].transpose(1, 0, 2), found["lse"][0].T
    return {"y": y, "lse": lse}


@paged_attention.peer
def peer(q: Any, k_pages: Any, v_pages: Any, page_table: Any, lengths: Any, *, scale: float) -> Any:
    import torch

    k, v = (x[page_table].flatten(1, 2).transpose(1, 2) for x in (k_pages, v_pages))
    query, key = (torch.arange(n, device=q.device) for n in (q.shape[1], k.shape[2]))
    last = query[:, None] + (lengths - q.shape[1])[:, None, None]
    y = torch_attention(q.transpose(1, 2), k, v, scale=scale, mask=(key <= last)[:, None])
    return y.transpose(1, 2)


paged_attention.workload(
    "Llama-3-8B, one token of 8",
    batch=8,
    queries=1,
    heads=32,
    kv_heads=8,
    head_dim=128,
    value_dim=128,
    pages=1024,
    page_size=16,
    max_pages=128,
)
paged_attention.workload(
    "Qwen2.5-0.5B, 4 tokens guessed ahead",
    batch=4,
    queries=4,
    heads=14,
    kv_heads=2,
    head_dim=64,
    value_dim=64,
    pages=256,
    page_size=16,
    max_pages=64,
)
