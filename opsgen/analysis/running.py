"""Running values: the reductions of a family as symbols, with the signs of their arguments, and how they move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from ..dsl.op import Graph
from ..dsl.tensor import Map, Reduce, Tensor
from ..lowering.to_sympy import Choice, Lowering, Symbols, text
from .bounds import Motion
from .dependence import dependent, inside, jumps, leaves, varies
from .online import REDUCTIONS, Link, neutral
from .separate import Separation, renamed, separate

Expr = Any
"""A sympy expression."""

MOST_MAPS = 160
"""How many maps between two reductions are looked into: sympy's time grows with them."""


class Undecided(Exception):
    """Why a reduction cannot run along with those that it needs; with F, and what was left of the identity tested."""

    def __init__(self, reason: str, function: str = "", residual: str = "") -> None:
        super().__init__(reason)
        self.reason, self.function, self.residual = reason, function, residual


@dataclass(frozen=True)
class Value:
    """What is known of a reduction's value: its symbol, the expression of its argument, and how it moves."""

    symbol: Expr
    arg: Expr
    motion: Motion


class Running:
    """The values of a family of reductions over the same dims. ``links`` are those derived so far, by node id.

    ``empty`` are the reduced dims that may have no positions.
    """

    def __init__(self, graph: Graph, family: Sequence[Reduce], links: Mapping[int, Link]) -> None:
        self.over = family[0].over
        self.empty = tuple(d for d in self.over if not graph.extent(d).value)
        self.names = {id(r): f"r{i}" for i, r in enumerate(family, 1)}
        self.links = links
        self.symbols = Symbols()
        self._values: dict[int, Value] = {}

    def direct(self, root: Tensor) -> list[Reduce]:
        """The reductions of the family that an expression reads through maps alone."""
        return [n for n in leaves(root) if isinstance(n, Reduce) and set(n.over) == set(self.over)]

    def lower(self, root: Tensor, moving: Sequence[Reduce], values: Mapping[int, Expr] | None = None) -> Any:
        """An argument as an expression, or as a choice between several."""
        for n in moving:
            self.value(n)  # the symbol with its sign, before a leaf is made of it
        return Lowering(self.symbols, moving, values).value(root)

    def value(self, node: Reduce) -> Value:
        """What is known of a reduction's value."""
        found = self._values.get(id(node))
        if found is None:
            found = self._values[id(node)] = self._find(node)
        return found

    def _find(self, node: Reduce) -> Value:
        direct = self.direct(node.arg)
        closed = jumps(node.arg, direct, self.over) or map_count(node.arg, direct) > MOST_MAPS
        arg = None if closed else self.lower(node.arg, direct)
        if arg is None or isinstance(arg, Choice):
            arg = sympy.Dummy(real=True)
        sign = {"real": True}
        if node.op in REDUCTIONS and (arg.is_positive or arg.is_nonnegative):
            sign = {"positive": True} if arg.is_positive else {"nonnegative": True}
        symbol = self.symbols.place(node, self.names[id(node)], **sign)
        return Value(symbol, arg, self._motion(node, symbol, arg))

    def _motion(self, node: Reduce, symbol: Expr, arg: Expr) -> Motion:
        """How the running value moves: what depends on others is repaired, and then grows like what does not."""
        old, new = renamed(symbol, "_old"), renamed(symbol, "_new")
        sign = {"max": 1, "min": -1, "sum": 1 if arg.is_nonnegative else 0}.get(node.op, 0)
        link = self.links.get(id(node))
        if link is None or link.after is not None:
            return Motion(old, new, old, 0)
        if link.repair is None:
            return Motion(old, new, old, sign)
        repair = self.separation(node.op, self.lower(link.part, link.needs), link.needs).repair
        return Motion(old, new, old + repair if link.additive else old * repair, sign)

    def separation(self, op: str, f: Any, moving: Sequence[Reduce]) -> Separation:
        """Tests the expression of a reduction's argument; see `separate`.

        Raises:
            Undecided: algebra does not follow its infinities.
        """
        if isinstance(f, Choice) and f.otherwise == neutral(op):
            f = f.then  # positions at which the condition does not hold are left out
        if isinstance(f, Choice) or f.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan):
            raise Undecided("it takes infinite values in a way that algebra does not follow")
        moved = frozenset(self.value(n).symbol for n in moving)
        others = f.free_symbols - moved
        along = frozenset(s for s in others if varies(self.symbols.nodes[s], self.over))
        return separate(f, along, moved, frozenset(self.symbols.bits & others), op != "sum")

    def text(self, root: Tensor, moving: Sequence[Reduce] = ()) -> str:
        """An argument for reading."""
        count = map_count(root, moving)
        return f"an expression of {count} maps" if count > MOST_MAPS else shown(self.lower(root, moving))

    def legend(self) -> dict[str, Tensor]:
        """The nodes that names stand for."""
        return {s.name: n for s, n in self.symbols.nodes.items()}


def map_count(root: Tensor, moving: Sequence[Tensor]) -> int:
    """How many maps of an expression depend on running reductions."""
    depends = dependent(root, moving)
    return sum(isinstance(n, Map) and id(n) in depends for n in inside(root))


def shown(value: Any) -> str:
    """An expression, or a choice between several, for reading."""
    if isinstance(value, Choice):
        return f"({shown(value.then)} where {text(value.condition)} else {shown(value.otherwise)})"
    return text(value)
