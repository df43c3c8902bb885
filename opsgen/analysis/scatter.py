"""Scatters, told from their expressions: reductions in which every destination looks for its own elements.

``sum(where(positions == index(destination), x, 0), over=source)`` costs as many steps as there are sources times
destinations if it is taken by its word. Where neither the positions nor what is summed depend on the destination, each
source goes to one destination, and the sources of a destination can be found first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dsl.tensor import Const, Index, Map, Reduce, Tensor, elementwise
from .online import REDUCTIONS, neutral


@dataclass(frozen=True, eq=False)
class Scatter:
    """``node`` reduces, at each destination, ``value`` at the sources whose ``positions`` are the destination.

    ``positions``: destination dims, and the position of a source along each. ``linked``: conditions that a source has
    to meet to go anywhere, known with its position; ``others``: those that need further dims. ``batch``: result dims
    that positions differ along; ``source``: reduced dims along which they do; ``rest``: the other reduced dims;
    ``columns``: the other dims of the result.
    """

    node: Reduce
    positions: tuple[tuple[str, Tensor], ...]
    linked: tuple[Tensor, ...]
    others: tuple[Tensor, ...]
    value: Tensor
    batch: tuple[str, ...]
    source: tuple[str, ...]
    rest: tuple[str, ...]
    columns: tuple[str, ...]
    made: frozenset[int]
    """The ids of conditions that are not of the graph, but the contrary of one that is."""

    @property
    def destinations(self) -> tuple[str, ...]:
        return tuple(d for d, _ in self.positions)

    @property
    def space(self) -> tuple[str, ...]:
        """The dims of the result in the order in which a schedule makes them."""
        return (*self.batch, *self.destinations, *self.columns)

    def children(self) -> tuple[Tensor, ...]:
        """The nodes of the graph that the result is computed from, without the comparisons with destinations."""
        conditions = [t for c in (*self.linked, *self.others) for t in (c.children() if id(c) in self.made else (c,))]
        return (*(p for _, p in self.positions), *conditions, self.value)


def scatter_of(node: Tensor) -> Scatter | None:
    """The scatter that a reduction is; None if it is none."""
    if not isinstance(node, Reduce) or node.op not in REDUCTIONS:
        return None
    conditions, value, made = _choices(node)
    positions: dict[str, Tensor] = {}
    others: list[Tensor] = []
    for c in conditions:
        found = _position(c, node)
        if found is None or found[0] in positions:
            others.append(c)
        else:
            positions[found[0]] = found[1]
    free = (value, *others, *positions.values())
    if not positions or any(set(t.dims) & set(positions) for t in free):
        return None
    known = {d for p in positions.values() for d in p.dims}
    batch = tuple(d for d in node.dims if d in known)
    return Scatter(
        node,
        tuple(positions.items()),
        tuple(c for c in others if set(c.dims) <= known),
        tuple(c for c in others if not set(c.dims) <= known),
        value,
        batch,
        tuple(d for d in node.over if d in known),
        tuple(d for d in node.over if d not in known),
        tuple(d for d in node.dims if d not in known and d not in positions),
        frozenset(made),
    )


def _choices(node: Reduce) -> tuple[list[Tensor], Tensor, set[int]]:
    """The conditions without which a position adds nothing to a reduction, and what it adds where they hold; with the
    ids of conditions that are made here."""
    found: list[Tensor] = []
    made: set[int] = set()
    value = node.arg
    while isinstance(value, Map) and value.op == "where":
        condition, then, otherwise = value.args
        if _is_nothing(otherwise, node):
            value = then
        elif _is_nothing(then, node):
            if isinstance(condition, Map) and condition.op == "not":
                condition = condition.args[0]
            else:
                condition = _contrary(condition)
                made.add(id(condition))
            value = otherwise
        else:
            break
        stack = [condition]
        while stack:
            c = stack.pop()
            if isinstance(c, Map) and c.op == "and":
                stack.extend(reversed(c.args))
            else:
                found.append(c)
    return found, value, made


def _contrary(condition: Tensor) -> Tensor:
    if isinstance(condition, Map) and condition.op == "ne":
        return elementwise("eq", *condition.args)
    return elementwise("not", condition)


def _is_nothing(node: Tensor, r: Reduce) -> bool:
    """Whether a value does not change what a reduction gives: 0 in a sum."""
    while isinstance(node, Map) and node.op == "cast" and node.dtype.kind == node.args[0].dtype.kind:
        node = node.args[0]
    if not isinstance(node, Const):
        return False
    if r.op in ("max", "min") and r.dtype.kind != "float":
        lowest = 0 if r.dtype.kind == "uint" else -(2 ** (r.dtype.bits - 1))
        highest = 2 ** (r.dtype.bits - (r.dtype.kind == "int")) - 1
        return node.value == (lowest if r.op == "max" else highest)
    return float(node.value) == neutral(r.op)


def _position(condition: Tensor, node: Reduce) -> tuple[str, Tensor] | None:
    """The destination dim and the position, if a condition is that a source's position is the destination."""
    if not isinstance(condition, Map) or condition.op != "eq":
        return None
    for position, index in (condition.args, condition.args[::-1]):
        if not isinstance(index, Index) or index.dim not in node.dims or position.dtype.kind not in ("int", "uint"):
            continue
        if index.dim not in position.dims and set(position.dims) & set(node.over):
            return index.dim, position
    return None
