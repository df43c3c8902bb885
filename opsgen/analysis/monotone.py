"""Monotone: whether an integer expression never falls along a dim, whatever its inputs hold.

Proved from the expression, operands first: each operation says what it makes of operands that rise, fall or stay. A
truth rises from False to True. Integers are taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Collection

from ..dsl.tensor import At, Const, Index, Input, Map, Reduce, Size, Tensor, walk

RISES, FALLS = 1, 2
"""Bits: the value never falls, or never rises, from one position to the next. One that stays has both."""
STAYS = RISES | FALLS


def never_falls(node: Tensor, dim: str, sorted_inputs: Collection[str] = ()) -> bool:
    """Whether the value at a position of ``dim`` is at most that at the next, all other positions being equal.

    ``sorted_inputs``: vectors whose elements the caller is held to sort.
    """
    found: dict[int, int] = {}

    def visit(n: Tensor) -> None:
        found[id(n)] = STAYS if dim not in n.dims else _motion(n, dim, found, sorted_inputs)

    walk((node,), visit)
    return bool(found[id(node)] & RISES)


def _motion(n: Tensor, dim: str, of: dict[int, int], sorted_inputs: Collection[str]) -> int:
    """How a node moves that has the dim, from how its operands do."""
    if isinstance(n, Index):
        return RISES
    if isinstance(n, Input):
        return RISES if n.name in sorted_inputs and n.dims == (dim,) else 0
    if isinstance(n, Reduce):
        return of[id(n.arg)] if n.op in ("sum", "max", "min") and n.dtype.kind == "int" else 0
    if isinstance(n, At):
        return _at_other_positions(n, dim, of)
    if isinstance(n, Map) and n.dtype.kind in ("int", "bool"):
        return _map(n, [of[id(a)] for a in n.args])
    return 0


def _at_other_positions(n: At, dim: str, of: dict[int, int]) -> int:
    """A read keeps the motion of its source where each dim keeps its position."""
    kept = all(isinstance(p, Index) and p.dim == d for d, p in n.coords.items())
    return of[id(n.source)] if kept else 0


def _map(n: Map, args: list[int]) -> int:
    op = n.op
    if op in ("add", "max", "min", "and", "or"):
        return args[0] & args[1]
    if op in ("ge", "gt", "sub"):
        return args[0] & _turned(args[1])
    if op in ("le", "lt"):
        return _turned(args[0]) & args[1]
    if op in ("neg", "not"):
        return _turned(args[0])
    if op == "cast":
        return args[0] if n.dtype.bits >= n.args[0].dtype.bits and n.args[0].dtype.kind == n.dtype.kind else 0
    if op == "mul":
        return _scaled(n.args, args)
    if op == "floordiv":
        return args[0] if _not_negative(n.args[1]) else 0
    if op == "where":
        return _chosen(n, args)
    return 0


def _turned(motion: int) -> int:
    return (motion & RISES and FALLS) | (motion & FALLS and RISES)


def _not_negative(node: Tensor) -> bool:
    """Whether a value that is the same at all positions is 0 or more: a size, or a number of the definition."""
    return isinstance(node, Size) or (isinstance(node, Const) and node.value >= 0)


def _scaled(operands: tuple[Tensor, ...], motions: list[int]) -> int:
    for factor, motion in ((operands[0], motions[1]), (operands[1], motions[0])):
        if _not_negative(factor):
            return motion
        if isinstance(factor, Const):
            return _turned(motion)
    return 0


def _chosen(n: Map, motions: list[int]) -> int:
    """Of two numbers, the larger where a truth holds moves as the truth does."""
    _, then, otherwise = n.args
    if not (isinstance(then, Const) and isinstance(otherwise, Const)):
        return motions[1] & motions[2] if motions[0] == STAYS else 0
    if then.value == otherwise.value:
        return STAYS
    return motions[0] if then.value > otherwise.value else _turned(motions[0])
