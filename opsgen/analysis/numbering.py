"""Numbering: one number for all nodes that compute the same value, however often they were written down."""

from __future__ import annotations

from collections.abc import Hashable

from ..dsl.tensor import At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor
from ..errors import InternalError
from .groups import is_transpose


class Numbering:
    """Numbers nodes by what they compute. A transpose has its source's number: its value at a named position is the
    same.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}
        self._kept: list[Tensor] = []  # ids stay taken

    def of(self, node: Tensor) -> int:
        """The node's number."""
        stack = [node]
        while stack:
            n = stack[-1]
            if id(n) in self._known:
                stack.pop()
                continue
            missing = [c for c in n.children() if id(c) not in self._known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self._kept.append(n)
            if is_transpose(n):
                self._known[id(n)] = self._known[id(n.children()[0])]
            else:
                self._known[id(n)] = self._numbers.setdefault(self._form(n), len(self._numbers))
        return self._known[id(node)]

    def _form(self, node: Tensor) -> Hashable:
        below = tuple(self._known[id(c)] for c in node.children())
        if isinstance(node, Input):
            return ("input", id(node))
        if isinstance(node, Scalar):
            return ("scalar", node.name)
        if isinstance(node, Const):
            return ("const", repr(node.value), node.dtype.name)
        if isinstance(node, (Index, Size)):
            return (type(node).__name__, node.dim)
        if isinstance(node, Map):
            return (node.op, node.dtype.name, below)
        if isinstance(node, Reduce):
            return ("reduce", node.op, tuple(sorted(node.over)), below)
        if isinstance(node, Scan):
            return ("scan", node.op, node.over, node.exclusive, node.reverse, below)
        if isinstance(node, At):
            return ("at", tuple(node.coords), node.exact, below)
        if isinstance(node, Concat):
            return ("concat", node.dim, node.part_dims, below)
        raise InternalError(f"no number for {node!r}")
