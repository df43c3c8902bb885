"""Attention with the caller's own score and mask: y = softmax(score(scale · q kᵀ) where mask) v.

A builder: ``flex_attention(score, mask)`` gives an op. Both are Python functions that describe, as an op does; they
are called once, with positions along the dims "batch", "heads", "queries" and "keys":

    def score(scores, batch, head, query, key): ...   ->  the scores, changed
    def mask(batch, head, query, key): ...            ->  bool: True where the query attends the key

Their keyword-only parameters, annotated as an op's are, become parameters of the op: tensors, numbers, attributes.

    def alibi(scores, batch, head, query, key, *, slopes: og.Tensor["heads"]):
        return scores + slopes * (key - query)

    op = flex_attention(alibi, lambda batch, head, query, key: key <= query)      # op(q, k, v, *, slopes, scale)

Source: Dong et al., Flex Attention: A Programming Model for Generating Optimized Attention Kernels, 2024
(arXiv:2412.05496); torch.nn.attention.flex_attention.

Preconditions: heads is a multiple of kv_heads. A query that sees no key gives 0, and lse -inf.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import opsgen as og

from ..dsl.signature import _annotations
from ..errors import error
from ._attention import grouped_heads

_DIMS = ("batch", "heads", "queries", "keys")


def flex_attention(
    score: Callable[..., Any] | None = None,
    mask: Callable[..., Any] | None = None,
    *,
    lse: bool = False,
    name: str = "flex_attention",
) -> og.Op:
    """An op (q, k, v, *, …, scale) of q [batch, heads, queries, head_dim], k [batch, kv_heads, keys, head_dim] and v
    [batch, kv_heads, keys, value_dim]; its result has the dims of q, value_dim in the place of head_dim, and its type.

    Args:
        score: changes the scores; None leaves them.
        mask: which keys a query attends; None: all.
        lse: the op has two results, y and lse, the log-sum-exp of the scores in float32 at least.
        name: the op's name; two ops in one library need different ones.

    Raises:
        DefinitionError: E1xxx, as for any op; E1010 also for two parameters of one name that are not the same.
    """
    scope = sys._getframe(1).f_locals
    of_score, of_mask = ({} if f is None else _parameters(f, scope) for f in (score, mask))
    for shared in of_score.keys() & of_mask.keys():
        if of_score[shared] != of_mask[shared]:
            raise error(
                "E1010",
                function="flex_attention",
                found=f"score and mask have different parameters {shared!r}",
                fix="Give one of them another name, or both the same annotation and default.",
            )
    own = {**of_score, **of_mask}

    def definition(
        q: og.Tensor["batch", "heads", "queries", "head_dim"],
        k: og.Tensor["batch", "kv_heads", "keys", "head_dim"],
        v: og.Tensor["batch", "kv_heads", "keys", "value_dim"],
        **given: Any,
    ) -> Any:
        """y = softmax(score(scale · q kᵀ) where mask, over keys) v"""
        k, v = grouped_heads(k, v)
        scores = og.dot(q, k, over="head_dim") * given["scale"]
        at = [og.index(d) for d in _DIMS]
        if score is not None:
            changed = score(scores, *at, **{n: given[n] for n in of_score})
            # A bias on the left of a sum brings its dims first: y shall not be turned around by that.
            same = getattr(changed, "dims", None) == scores.dims
            scores = changed if same else og.transpose(changed, *_DIMS)
        seen = None if mask is None else mask(*at, **{n: given[n] for n in of_mask})
        y = og.cast(og.dot(og.softmax(scores, over="keys", where=seen), v, over="keys"), q.dtype)
        return og.results(y=y, lse=og.logsumexp(scores, over="keys", where=seen)) if lse else y

    own["scale"] = inspect.Parameter("scale", inspect.Parameter.KEYWORD_ONLY, annotation=float)
    tensors = list(inspect.signature(definition).parameters.values())[:3]
    definition.__annotations__ |= {p.name: p.annotation for p in own.values()}
    definition.__signature__ = inspect.Signature([*tensors, *own.values()])  # type: ignore[attr-defined]
    return og.op(name=name)(definition)


def _parameters(function: Callable[..., Any], scope: dict[str, Any]) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a score or mask function, their annotations as values."""
    hints = _annotations(function, scope)
    return {
        p.name: p.replace(annotation=hints.get(p.name, inspect.Parameter.empty))
        for p in inspect.signature(function).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
