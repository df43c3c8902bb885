"""Guards: running values for which a repair or a part has no value, and what stands in for them.

Until something is found, a running maximum is -inf, and exp(x - m) with both at -inf is NaN. Where all positions so far
add nothing to the later reduction, any finite value does in its place: the part of a position at -inf is 0 then, and
the repair multiplies a running value that is 0. That they add nothing has to be shown, or a chain would lose them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy

from ..dsl.tensor import Const, Map, Reduce, Tensor
from .bounds import MONOTONE
from .groups import is_transpose
from .online import Guard, neutral

Expr = Any
"""A sympy expression."""
Values = dict[int, Expr]
"""What nodes are, by number."""


def _exact(op: str) -> Expr:
    """`neutral` as sympy's number: its 0 and 0.0 are not equal."""
    return {"sum": sympy.Integer(0), "prod": sympy.Integer(1), "max": -sympy.oo, "min": sympy.oo}[op]


def find_guard(
    link: Reduce,
    symbol: Expr,
    arg: Expr,
    part: Callable[[Values], Any],
    op: str,
    repair: Expr,
    number: Callable[..., int],
) -> Guard | None:
    """The guard for an earlier link in a reduction ``op`` with a part and a repair, or None if there is no safe one.

    ``symbol`` and ``arg`` are the earlier link's symbol and its argument's expression; ``part`` gives the part's
    expression with the values of some nodes put in.
    """
    old, new = (sympy.Symbol(symbol.name + s, **symbol.assumptions0) for s in ("_old", "_new"))
    if link.op == "prod" or link.dtype.kind != "float":
        return None
    nothing = _exact(op)

    def vanish(limit: Expr) -> bool:
        return any(
            all(part(values) in (nothing, sympy.nan) for values in ways)  # NaN: it is the op's own result
            for ways in ([{number(link.arg): limit}], list(_ways(link.arg, limit, number)))
        )

    start = _exact(link.op)
    grows = link.op == "sum" or (link.op == "max" and bool(arg.is_nonnegative))
    if link.op in ("max", "min") and _regular(part({}), symbol) and _regular(repair, new) and _regular(repair, old):
        reached = not (arg.is_nonnegative if link.op == "max" else arg.is_nonpositive)
        if not reached or vanish(start):
            finite = not repair.xreplace({old: start, new: sympy.Integer(0)}).has(
                sympy.oo, -sympy.oo, sympy.nan, sympy.zoo
            )
            return Guard(link, neutral(link.op), 0.0, old=not finite)
    if grows and symbol.is_nonnegative and vanish(sympy.Integer(0)):
        return Guard(link, 0.0, 1.0, up_to=True, old=True)
    return None


def _regular(e: Any, symbol: Expr) -> bool:
    """Whether an expression has a finite value for every finite value of the symbol."""
    if not hasattr(e, "atoms"):
        return all(_regular(b, symbol) for b in e[1:])  # a choice
    for x in e.atoms(sympy.Pow, sympy.Function):
        if symbol not in x.free_symbols or isinstance(x, (sympy.exp, sympy.tanh, sympy.erf, sympy.sin, sympy.cos)):
            continue
        if x.func.__name__ in MONOTONE:
            continue
        whole = x.is_Pow and (x.exp.is_nonnegative and x.exp.is_integer)
        exponential = x.is_Pow and x.base.is_positive and symbol not in x.base.free_symbols
        if not (whole or exponential):
            return False
    return True


def _ways(node: Tensor, limit: Expr, number: Callable[[Tensor], int]) -> Iterator[Values]:
    """The ways in which a node can be the limit, 0 or an infinity, by values of nodes below it."""
    if isinstance(node, Const):
        if sympy.sympify(node.value) == limit:
            yield {}
    elif is_transpose(node):
        yield from _ways(node.children()[0], limit, number)
    elif not isinstance(node, Map):
        yield {number(node): limit}
    elif node.op == "where":
        condition, then, otherwise = node.args
        for bit, branch in ((1, then), (0, otherwise)):
            for values in _ways(branch, limit, number):
                yield {number(condition): sympy.Integer(bit), **values}
    elif node.op == "cast" and node.args[0].dtype.kind != "bool" and node.dtype.kind == "float":
        yield from _ways(node.args[0], limit, number)
    elif (node.op == "add" and limit != 0) or (node.op == "mul" and limit == 0):
        for a in node.args:
            yield from _ways(a, limit, number)
    elif node.op == "abs" and limit == 0:
        yield from _ways(node.args[0], limit, number)
    elif node.op in ("exp", "exp2") and limit == 0:
        yield from _ways(node.args[0], -sympy.oo, number)
    elif node.op == "sub" and limit != 0:
        yield from _ways(node.args[0], limit, number)
        yield from _ways(node.args[1], -limit, number)
    else:
        yield {number(node): limit}
