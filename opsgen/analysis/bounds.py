"""Bounds: that a repair cannot overflow.

A running maximum never falls, and a running sum of terms that are not negative only grows. With the new value written
as the old one and a step d >= 0, a factor that is 1 at d = 0 and does not grow with d is at most 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

Expr = Any
"""A sympy expression."""

MONOTONE = frozenset({"float16", "bfloat16", "max", "min"})
"""Unknown functions that do not fall where an operand grows, and are finite where all operands are."""


@dataclass(frozen=True)
class Motion:
    """How a running value moves from the symbol ``old`` to ``new``.

    ``start`` is the old value, repaired if it depends on others; from there it moves by a step that is not negative,
    up (``sign`` 1) or down (-1). Nothing is known of it where ``sign`` is 0.
    """

    old: Expr
    new: Expr
    start: Expr
    sign: int

    @property
    def step(self) -> Expr:
        return sympy.Symbol(f"d_{self.new.name.removesuffix('_new')}", nonnegative=True)

    @property
    def moved(self) -> Expr:
        """The new value."""
        return self.start + self.sign * self.step


@dataclass(frozen=True)
class Bounded:
    """A factor with the new values written out, which is at most 1, where the ``assumed`` symbols are positive.

    ``motions`` are those that it was written out with.
    """

    factor: Expr
    motions: tuple[Motion, ...] = ()
    assumed: tuple[Expr, ...] = ()


def bounded(repair: Expr, motions: Sequence[Motion], scalars: Iterable[Expr]) -> Bounded | str:
    """A `Bounded` for a repair by a factor, or the reason why it may exceed 1.

    ``motions`` are those of the values that the repair reads and of those that these move with, earlier ones first;
    ``scalars`` are run-time numbers that may be assumed to be positive.
    """
    factor, followed = _followed(repair, motions)
    used: list[Motion] = []
    for motion in (*followed, *reversed(motions)):
        if motion.new not in factor.free_symbols:
            continue
        if motion.sign == 0:
            return f"{motion.new.name} can be smaller or larger than {motion.old.name}, and nothing bounds the repair"
        factor = factor.xreplace({motion.new: motion.moved})
        used.append(motion)
    steps = [m.step for m in used]
    unsigned = tuple(s for s in scalars if s in factor.free_symbols and s.is_positive is None)
    for assumed in ((), unsigned) if unsigned else ((),):
        if _at_most_one(factor, steps, assumed):
            return Bounded(factor, tuple(reversed(used)), assumed)
    return "the repair can exceed 1 and overflow"


def _followed(repair: Expr, motions: Sequence[Motion]) -> tuple[Expr, list[Motion]]:
    """The repair with what moves the way in which a running value does as a value of its own: max(r, sink), half(r)."""
    moving = {s for m in motions for s in (m.old, m.new)}
    found = []
    for motion in motions:
        if motion.sign == 0 or motion.start != motion.old:
            continue
        for e in sorted(repair.atoms(AppliedUndef), key=str):
            others = [a for a in e.args if a != motion.old]
            if e.func.__name__ in MONOTONE and len(others) < len(e.args):
                if any(a.free_symbols & moving for a in others):
                    continue
                after = e.xreplace({motion.old: motion.new})
                old, new = (sympy.Symbol(str(e) + s, real=True) for s in ("_old", "_new"))
                found.append(Motion(old, new, old, motion.sign))
                repair = repair.xreplace({e: old, after: new})
    return repair, found


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
