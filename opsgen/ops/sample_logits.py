"""A token for each row of logits, drawn after temperature, top-k, min-p and top-p; any of them may be left out.

    p = softmax(logits / temperature)
    top-k:  tokens whose logit is not below the k-th largest one; off if k ≤ 0 or k ≥ vocab
    min-p:  of these, tokens with p ≥ min_p · max p; off if min_p ≤ 0
    top-p:  of these, tokens before which, in the order of falling p, less than top_p of what is left lies; the most
            probable one always; off if top_p ≥ 1
    token = the first i, of those that are left, with  sum of p over those left up to i  >  u · sum of p over those left
    u = random_uniform(row, seed, offset)

Tokens of equal logits go together: there may be more than k, and what top-p keeps is the same in any order of them. The
most probable tokens are always left. Temperature 0 (or less) takes the first of them.

Source: Fan, Lewis and Dauphin, Hierarchical Neural Story Generation, 2018 (arXiv:1805.04833) for top-k; Holtzman et
al., The Curious Case of Neural Text Degeneration, 2019 (arXiv:1904.09751) for top-p; Nguyen et al., Turning Up the
Heat: Min-p Sampling, 2024 (arXiv:2407.01082). The order is that of transformers' logits processors.

Thresholds are found bit by bit, by a fixed number of passes over a row and without sorting it: 16 of bfloat16, 19 of
float16 and 32 of float32, each for top-k and for top-p. Sums are float32, so that tokens whose share lies within their
rounding of top_p may or may not be kept.

Preconditions: 0 < vocab ≤ 2^24. Logits may be -inf, but not all of a row. Of a row with NaN or +inf
comes any position from 0 to vocab.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ._philox import torch_uniform, uniform
from ._thresholds import first_beyond, first_where, largest_threshold, lowest, ordered_bits


@og.op
def sample_logits(
    logits: og.Tensor["...", "vocab"],
    seed: og.Tensor[og.int64],
    offset: og.Tensor[og.int64],
    temperature: og.Tensor["...", og.float32] | None = None,
    top_k: og.Tensor["...", og.integer] | None = None,
    top_p: og.Tensor["...", og.float32] | None = None,
    min_p: og.Tensor["...", og.float32] | None = None,
) -> og.Tensor:
    """token ~ softmax(logits / temperature), of what top-k, min-p and top-p leave"""
    og.require("vocab > 0 and vocab <= 16777216", "a row has a token, and float32 counts them")
    key, bits = ordered_bits(logits)
    most = og.max(logits, over="vocab")
    largest = og.max(key, over="vocab")
    apart = og.cast(logits - most, og.float32)
    weight = og.exp(apart if temperature is None else apart / temperature)
    if temperature is not None:  # at 0 it would be 0 / 0 for the largest
        weight = og.where(key == largest, 1.0, og.where(temperature > 0.0, weight, 0.0))
    least = None  # the least key that is left
    if top_k is not None:
        wanted = og.cast(top_k, og.float32)

        def enough_tokens(t: og.Tensor) -> og.Tensor:
            return og.sum(og.where(key >= t, og.cast(1.0, og.float32), 0.0), over="vocab") >= wanted

        off = (top_k <= 0) | (top_k >= og.size("vocab"))
        least = og.where(off, lowest(bits), largest_threshold(enough_tokens, bits))
    if min_p is not None:
        above = og.log(og.max(min_p, 0.0))
        above = above if temperature is None else above * temperature
        inside = og.where(min_p > 0.0, above, float("-inf"))
        kept = apart >= inside
        least_of_these = og.min(og.where(kept | (key == largest), key, largest), over="vocab")
        least = least_of_these if least is None else og.max(least, least_of_these)
    if top_p is not None:
        left = weight if least is None else og.where(key >= least, weight, 0.0)
        total = og.sum(left, over="vocab") * top_p

        def enough_weight(t: og.Tensor) -> og.Tensor:
            return og.sum(og.where(key >= t, left, 0.0), over="vocab") >= total

        found = og.min(largest_threshold(enough_weight, bits), largest)
        found = og.where(top_p >= 1.0, lowest(bits), found)
        least = found if least is None else og.max(least, found)
    left = weight if least is None else og.where(key >= least, weight, 0.0)
    first = first_where(key == largest)
    token = first_beyond(left, og.random_uniform(og.index("..."), seed, offset), first)
    if temperature is not None:
        token = og.where(temperature > 0.0, token, first)
    return og.cast(token, og.int64)


@sample_logits.reference
def reference(
    logits: NDArray,
    seed: Any,
    offset: Any,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
) -> NDArray:
    logits = np.asarray(logits, np.float64)
    lead, vocab = logits.shape[:-1], logits.shape[-1]
    rows = logits.reshape(-1, vocab)
    u = uniform(np.arange(len(rows)), seed, offset)
    given = [None if v is None else np.broadcast_to(v, lead).reshape(-1) for v in (temperature, top_k, top_p, min_p)]
    tokens = [_token(row, u[i], *(None if v is None else v[i] for v in given)) for i, row in enumerate(rows)]
    return np.array(tokens, np.int64).reshape(lead)


def kept_tokens(row: NDArray, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> tuple[NDArray, NDArray]:
    """The probabilities of a row's tokens, by sorting them, and which are kept."""
    largest = row == row.max()
    t = 1.0 if temperature is None else float(temperature)
    e = np.where(largest, 1.0, np.exp((row - row.max()) / t) if t > 0 else 0.0)
    p = e / e.sum()
    falling = np.argsort(-row, kind="stable")
    kept = np.ones(len(row), bool)
    if top_k is not None and 0 < top_k < len(row):
        kept &= row >= row[falling[top_k - 1]]
    if min_p is not None and min_p > 0:
        kept &= (p >= float(min_p) * p.max()) | largest
    if top_p is not None and top_p < 1:
        left = np.where(kept, p, 0.0)[falling]
        before = np.cumsum(left) - left
        few = falling[before < float(top_p) * left.sum()]
        kept &= (row >= row[few].min()) if len(few) else largest
    return p, kept


def _token(row: NDArray, u: float, *given: Any) -> int:
    p, kept = kept_tokens(row, *given)
    if given[0] is not None and given[0] <= 0:
        return int(np.argmax(row))
    sums = np.cumsum(np.where(kept, p, 0.0))
    return int(np.argmax(sums > u * sums[-1]))


@sample_logits.peer
def peer(
    logits: Any,
    seed: Any,
    offset: Any,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
) -> Any:
    """The same tokens: filtered by a sort, drawn with the same random numbers."""
    import torch

    p = _kept(logits, temperature, top_k, top_p, min_p)
    rows = torch.arange(p[..., 0].numel(), device=p.device).reshape(p.shape[:-1])
    sums = p.cumsum(-1)
    share = sums[..., -1] * torch_uniform(rows, seed, offset).to(p.dtype)
    token = ((sums > share[..., None]) & (p > 0)).int().argmax(-1)
    return token if temperature is None else token.where(temperature > 0, logits.argmax(-1))


@sample_logits.peer(name="torch.multinomial")
def multinomial(logits: Any, seed: Any, offset: Any, *given: Any, **named: Any) -> Any:
    """What is written for it in torch, whose generator has other numbers."""
    import torch

    p = _kept(logits, *given, **named)
    return torch.multinomial(p.reshape(-1, p.shape[-1]), 1).reshape(p.shape[:-1])


def _kept(logits: Any, temperature: Any = None, top_k: Any = None, top_p: Any = None, min_p: Any = None) -> Any:
    """Probabilities as transformers' logits processors leave them, but that equal logits go together."""
    import torch

    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature is not None:
        x = x / temperature.clamp_min(1e-30)[..., None].to(x.dtype)
    x = x - x.amax(-1, keepdim=True)
    vocab, nothing = x.shape[-1], float("-inf")
    falling = x.sort(dim=-1, descending=True).values
    if top_k is not None:
        k = top_k.where((top_k > 0) & (top_k < vocab), vocab).long()
        x = x.masked_fill(x < falling.gather(-1, (k - 1)[..., None]), nothing)
    if min_p is not None:
        x = x.masked_fill((x.exp() < min_p[..., None]) & (x < 0), nothing)
    if top_p is not None:
        falling = x.sort(dim=-1, descending=True).values
        p = falling.softmax(-1)
        few = (p.cumsum(-1) - p < top_p[..., None]).sum(-1, keepdim=True).clamp_min(1)
        x = x.masked_fill((x < falling.gather(-1, few - 1)) & (top_p[..., None] < 1), nothing)
    return x.softmax(-1)


sample_logits.workload("Llama-3-8B, 16 sequences", rows=16, vocab=128256)
sample_logits.workload("GPT-2, one sequence", rows=1, vocab=50257)
