"""Dependence: which nodes of an expression depend on reductions that are still running, and which lie at positions.

An expression is what maps make of its leaves: inputs, constants, reductions, and reads at other positions. Transposes
belong to the maps, since they read the same named position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..dsl.tensor import Map, Reduce, Tensor
from .groups import is_transpose


def inside(root: Tensor) -> list[Tensor]:
    """The nodes of the expression at ``root``, its leaves among them, operands first."""
    order: list[Tensor] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if isinstance(node, Map) or is_transpose(node):
                stack.extend((c, False) for c in reversed(node.children()))
    return order


def leaves(root: Tensor) -> list[Tensor]:
    """The leaves of the expression at ``root``, from left to right."""
    return [n for n in inside(root) if not (isinstance(n, Map) or is_transpose(n))]


def dependent(root: Tensor, on: Iterable[Tensor]) -> set[int]:
    """The ids of the expression's nodes that depend on some of the nodes ``on``, those among them."""
    found = {id(n) for n in on}
    reached: set[int] = set()
    for node in inside(root):
        is_map = isinstance(node, Map) or is_transpose(node)
        if id(node) in found or (is_map and any(id(c) in reached for c in node.children())):
            reached.add(id(node))
    return reached


def varies(node: Tensor, over: Collection[str]) -> bool:
    """Whether the node's value differs from position to position along some of the dims."""
    return any(d in over for d in node.dims)


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def jumps(root: Tensor, moving: Iterable[Tensor], over: Collection[str]) -> bool:
    """Whether positions are compared with a value that moves: what a comparison chooses does not follow it smoothly."""
    depends = dependent(root, moving)
    return any(
        isinstance(n, Map) and n.op in _COMPARISONS and id(n) in depends and varies(n, over) for n in inside(root)
    )


def same_dims(a: Reduce, b: Reduce) -> bool:
    """Whether two reductions run over the same dims, in any order."""
    return set(a.over) == set(b.over)
