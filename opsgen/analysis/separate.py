"""Separability: whether an expression falls into a part of the position and a part of the running reductions.

F(x, r) separates where, with x' and r' held fixed,

    sum         F(x, r) · F(x', r') = F(x, r') · F(x', r)
    max, min    F(x, r) + F(x', r') = F(x, r') + F(x', r)

Then H(r) = F(x', r) is the part of the reductions, and a value accumulated with r_old is repaired for r_new by the
factor H(r_new) / H(r_old), or the summand H(r_new) - H(r_old). Source: Neptune (PLDI 2026), RedFuser (ASPLOS 2026).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy

Expr = Any
"""A sympy expression."""

LARGEST_FACTORED = 60
"""Up to how many operations what did not vanish is shown in factors."""
LARGEST_SIMPLIFIED = 250
"""Up to how many operations sympy's `simplify` is asked: its time grows faster than the expression."""


@dataclass(frozen=True)
class Separation:
    """What the test gave. ``residual`` is what is left of left side minus right side: 0 where it separates.

    ``moving`` is H(r), and ``repair`` what it gives, in the symbols r_old and r_new; both are None without a proof, and
    ``repair`` also where the fixed point does not cancel out of it.
    """

    residual: Expr
    moving: Expr = None
    repair: Expr = None


def renamed(symbol: Expr, suffix: str) -> Expr:
    """A symbol with the same assumptions under another name: ``'`` (which no identifier has), ``_old`` or ``_new``."""
    return sympy.Symbol(symbol.name + suffix, **symbol.assumptions0)


def renaming(symbols: Iterable[Expr], suffix: str) -> dict[Expr, Expr]:
    """Symbols and their counterparts; see `renamed`."""
    return {s: renamed(s, suffix) for s in symbols}


@lru_cache(maxsize=4096)
def separate(
    f: Expr, along: frozenset[Expr], moving: frozenset[Expr], bits: frozenset[Expr], additive: bool
) -> Separation:
    """Tests F for the symbols ``along`` that vary with the position, against the running reductions ``moving``.

    ``bits`` are the symbols that are 0 or 1. All other symbols are the same at all positions and do not move.
    """
    at, held = renaming(along, "'"), renaming(moving, "'")
    bits = bits | {at[b] for b in bits if b in at}
    there, then, both = f.xreplace(at), f.xreplace(held), f.xreplace({**at, **held})
    left, right = (f + both, then + there) if additive else (f * both, then * there)
    residual = difference(left, right, bits)
    if residual != 0:
        return Separation(residual)
    h = _at_point(there, {at[b]: b for b in along & bits})
    old, new = h.xreplace(renaming(moving, "_old")), h.xreplace(renaming(moving, "_new"))
    return Separation(sympy.Integer(0), h, _settled(new - old if additive else new / old, frozenset(at.values()), h))


def difference(left: Expr, right: Expr, bits: Collection[Expr] = ()) -> Expr:
    """left - right, simplified: 0 if they are proved equal. Unequal ones are recognised by numbers, which is quick."""
    if left == right or (right != 0 and left / right == 1):
        return sympy.Integer(0)
    rest = left - right
    if _differs(rest, bits):
        return _shown(rest)
    rest = _with_bits(sympy.expand(rest), bits)
    rest = sympy.powsimp(rest)
    if rest == 0 or rest.count_ops() > LARGEST_SIMPLIFIED:
        return rest
    return sympy.simplify(rest)


def _with_bits(e: Expr, bits: Collection[Expr]) -> Expr:
    """The expression with b² = b for symbols that are 0 or 1."""
    if not bits or not e.free_symbols & set(bits):
        return e
    return sympy.expand(e.replace(lambda p: p.is_Pow and p.base in bits and p.exp.is_positive, lambda p: p.base))


def _shown(e: Expr) -> Expr:
    """For reading: what did not vanish, in factors where that is quick."""
    if e.count_ops() > LARGEST_FACTORED:
        return e
    e = sympy.expand(e)
    return sympy.factor(e) if e.count_ops() <= 10 * LARGEST_FACTORED else e


def _differs(e: Expr, bits: Collection[Expr]) -> bool:
    """Whether the expression is not 0 at some point. Unknown functions are replaced by one that no identity knows."""
    draw = random.Random(0)
    e = e.replace(
        lambda x: isinstance(x, sympy.core.function.AppliedUndef),
        lambda x: sympy.cos(sum((i + 1.37) * a for i, a in enumerate(x.args)) + len(x.func.__name__)),
    )
    for attempt in range(4):
        values: dict[Expr, Expr] = {}
        for s in sorted(e.free_symbols, key=str):
            value = sympy.Float(draw.uniform(0.3, 1.7))
            values[s] = sympy.Integer(int(attempt == 0 or draw.random() < 0.5)) if s in bits else value
            if s.is_negative:
                values[s] = -value
        terms = [_number(t, values) for t in sympy.Add.make_args(e)]
        if all(t is not None for t in terms):
            known = [t for t in terms if t is not None]
            if abs(sum(known)) > 1e-8 * (sum(abs(t) for t in known) + 1e-30):
                return True
    return False


def _number(e: Expr, values: Mapping[Expr, Expr]) -> complex | None:
    try:
        found = complex(sympy.N(e.xreplace(values)))
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found == found and abs(found) < 1e300 else None


def _at_point(h: Expr, bits: Mapping[Expr, Expr]) -> Expr:
    """H at a point whose 0/1 symbols are chosen: any point at which it is not 0 will do."""
    for b in bits:
        one = h.xreplace({b: sympy.Integer(1)})
        h = h.xreplace({b: sympy.Integer(0)}) if one == 0 else one
    return h


def _settled(repair: Expr, point: frozenset[Expr], h: Expr) -> Expr | None:
    """The repair without the fixed point, in a form that overflows only where its value does."""
    if repair.free_symbols & point:
        repair = sympy.powsimp(repair)
    if repair.free_symbols & point and repair.count_ops() <= LARGEST_SIMPLIFIED:
        repair = sympy.simplify(repair)
    if repair.free_symbols & point:  # any point will do, if H is neither 0 nor without a value there
        for value in (1, 2, sympy.Rational(1, 3)):
            values = dict.fromkeys(point, sympy.Integer(value) if value in (1, 2) else value)
            if h.xreplace(values) not in (0, sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
                repair = repair.xreplace(values)
                break
    if repair.free_symbols & point or repair.has(sympy.zoo, sympy.nan, sympy.oo):
        return None
    return _collected(repair)


def _collected(e: Expr) -> Expr:
    """Exponents as products: exp(c·(m_old - m_new)) for exp(c·m_old - c·m_new)."""

    def exponent(p: Expr) -> Expr:
        inner = sympy.factor_terms(p.args[-1])
        return p.func(*p.args[:-1], inner)

    return e.replace(lambda p: isinstance(p, (sympy.exp, sympy.Pow)) and not p.args[-1].is_number, exponent)
