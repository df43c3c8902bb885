"""Bounds: that a repair cannot overflow.

A running maximum never falls, and a running sum of terms that are not negative only grows. With the new value written
as the old one and a step d >= 0, a factor that is 1 at d = 0 and does not grow with d is at most 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from .guards import ROUNDINGS

Expr = Any
"""A sympy expression."""


@dataclass(frozen=True)
class Motion:
    """How a running value moves: the value ``new`` in terms of ``old``, a ``step`` that is not negative, and others."""

    new: Expr
    moved: Expr
    step: Expr


@dataclass(frozen=True)
class Bounded:
    """A factor with the new values written out, which is at most 1, where the ``assumed`` symbols are positive."""

    factor: Expr
    assumed: tuple[Expr, ...] = ()


def bounded(repair: Expr, motions: Sequence[Motion | None], news: Sequence[Expr], scalars: Iterable[Expr]) -> Any:
    """A `Bounded` for a repair by a factor, or the reason why it may exceed 1.

    ``motions`` are those of the values that the repair reads, earlier ones first, and None where nothing is known;
    ``news`` are the symbols of their new values. ``scalars`` are run-time numbers that may be assumed to be positive.
    """
    # Rounding keeps the order: half(new) moves the way in which new does.
    factor = repair.replace(lambda e: e.func.__name__ in ROUNDINGS and e.args[0].is_Symbol, lambda e: e.args[0])
    for motion, new in reversed(list(zip(motions, news, strict=True))):
        if new not in factor.free_symbols:
            continue
        if motion is None:
            return f"{new.name} can be smaller or larger than before, so that nothing bounds the repair"
        factor = factor.xreplace({new: motion.moved})
    steps = [m.step for m in motions if m is not None and m.step in factor.free_symbols]
    unsigned = tuple(s for s in scalars if s in factor.free_symbols and s.is_positive is None)
    for assumed in ((), unsigned) if unsigned else ((),):
        if _at_most_one(factor, steps, assumed):
            return Bounded(factor, assumed)
    return "the repair can exceed 1 and overflow"


def _at_most_one(factor: Expr, steps: Sequence[Expr], assumed: Sequence[Expr]) -> bool:
    # In the interior, where nothing is 0, sympy decides more; the bound holds at the edge with it.
    interior = {
        s: sympy.Symbol(s.name, positive=True)
        for s in factor.free_symbols
        if s in assumed or (s.is_nonnegative and not s.is_positive)
    }
    f = factor.xreplace(interior)
    if not f.is_nonnegative:
        return False
    for step in steps:
        slope = sympy.diff(f, interior.get(step, step)) / f
        for form in (lambda e: e, sympy.powsimp, sympy.simplify, sympy.factor):
            slope = form(slope)
            if slope.is_nonpositive:
                break
        else:
            return False
    return True
