"""What the forms of an online chain on x86 have in common: the plan of passes over a tile, the links' running values,
and the group's stored values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.analysis.fusion import FusedChain
from opsgen.analysis.groups import Group, is_transpose
from opsgen.analysis.online import Link
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.tensor import Map, Reduce, Tensor
from opsgen.lowering.statements import Expr
from opsgen.lowering.to_tir import Held, Scope

FLOAT32 = DTYPES["float32"]

COLUMNS = {"avx2": (16, 8, 1), "avx512": (64, 32, 16, 8, 1)}
"""Columns of a register tile of values."""


def load(buffer: Any, index: Expr) -> Held:
    """What lies in a buffer."""
    return lambda coords: tirx.BufferLoad(buffer, [index])


def within(scope: Scope, node: Tensor) -> Held:
    """The value of another node at the same position."""
    return lambda coords: scope.value(node)


@dataclass
class Running:
    """What a task keeps of its rows, by id of a row link's node: the running values, and those of before the tile where
    a repair needs them; one element for each row."""

    now: dict[int, Any]
    before: dict[int, Any]

    def repaired(self, here: Scope, link: Link, at: Expr) -> Expr:
        """A row link's running value as it is with the new values of the links before it, for the row ``at``."""
        return repaired(here, link, tirx.BufferLoad(self.now[id(link.node)], [at]), self.factor(here, link, at))

    def factor(self, here: Scope, link: Link, at: Expr) -> Expr | None:
        """What the repair of a link's running value multiplies by or adds, if it needs one."""
        return repair(here, link, {i: load(b, at) for i, b in self.before.items()}, self.held(at))

    def made_safe(self, here: Scope, link: Link, node: Reduce, at: Expr) -> Expr:
        """What stands for an earlier link's new value in a link's part."""
        new = self.held(at)
        stand_in = link.held.get(id(node))
        if stand_in is None:
            return new[id(node)]({})
        here.held |= {id(link.new[id(n)]): new[id(n)] for n in link.needs}
        return here.value_in(stand_in, FLOAT32)

    def held(self, at: Expr) -> dict[int, Held]:
        """The running values of the row ``at``."""
        return {i: load(b, at) for i, b in self.now.items()}


def repair(here: Scope, link: Link, old: Mapping[int, Held], new: Mapping[int, Held]) -> Expr | None:
    """What a value of a link is multiplied by, or has added, when the earlier links' values go from old to new. Both
    are by id of node."""
    if link.repair is None:
        return None
    here.held |= {id(link.old[id(n)]): old[id(n)] for n in link.needs}
    here.held |= {id(link.new[id(n)]): new[id(n)] for n in link.needs}
    return here.value_in(link.repair, FLOAT32)


def repaired(here: Scope, link: Link, value: Expr, factor: Expr | None) -> Expr:
    """A link's value after the repair."""
    if factor is None:
        return value
    return here.bind(tirx.Add(value, factor) if link.additive else tirx.Mul(value, factor))


# -- results -----------------------------------------------------------------------------------------------------------
def stored(group: Group, fused: FusedChain) -> tuple[list[Tensor], list[Tensor]]:
    """The group's stored nodes: those of rows alone, and those with columns."""
    with_columns = [bool(set(n.dims) & set(fused.columns)) for n in group.stored]
    pairs = list(zip(group.stored, with_columns, strict=True))
    return [n for n, c in pairs if not c], [n for n, c in pairs if c]


def hold(here: Scope, values: Mapping[Link, Held]) -> None:
    """Lets a scope know the final running values of links, and through them what the links' nodes are."""
    for link, value in values.items():
        here.held[id(link.total)] = value
        if link.after is not None:
            here.held[id(link.node)] = within(here, link.after)


# -- the plan ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Passes:
    """The passes over a tile of scores. ``links``: the row links of each; ``readers``: all links whose values it makes;
    ``keeps``: nodes it stores, with the buffer; ``known``: buffers by id of node that hold values when it begins."""

    links: tuple[tuple[Link, ...], ...]
    readers: tuple[tuple[Link, ...], ...]
    keeps: tuple[tuple[tuple[Tensor, int], ...], ...]
    known: tuple[Mapping[int, int], ...]
    buffers: int

    def place_of(self, node: Tensor) -> int:
        """The buffer in which a weight lies after the last pass."""
        return next(place for keeps in reversed(self.keeps) for n, place in keeps if n is node)


def plan(fused: FusedChain) -> Passes:
    """Which pass computes what: a link's is one after the last that it needs. A value that a later pass needs takes the
    place of one that none needs any more."""
    level: dict[int, int] = {}
    for k in fused.links:
        level[id(k.node)] = max((level[id(n)] + 1 for n in k.needs), default=0)
    weights = {id(v.link): v for v in fused.value_links}
    count = max(level.values()) + 1
    links, readers, roots = [], [], []
    for p in range(count):
        here = [k for k in fused.links if level[id(k.node)] == p]
        links.append(tuple(k for k in here if id(k) not in weights))
        readers.append(tuple(here))
        roots.append([weights[id(k)].weight if id(k) in weights else k.part for k in here])
    known: list[dict[int, int]] = []
    keeps: list[tuple[tuple[Tensor, int], ...]] = []
    places: dict[int, int] = {id(fused.score): 0}
    buffers = 1
    own = {id(k.node) for k in fused.links}
    for p in range(count):
        known.append(dict(places))
        later = [r for q in range(p + 1, count) for r in roots[q]]
        wanted = {id(r): r for r in roots[p] if _reached(later, own, {**places, id(r): 0}, id(r))}
        wanted |= {id(v.weight): v.weight for v in fused.value_links if level[id(v.link.node)] == p}
        wanted = {i: r for i, r in wanted.items() if i not in places}
        kept: list[tuple[Tensor, int]] = []
        # What a buffer holds stays while a later pass reads it, and a weight to the end.
        weights_so_far = {id(v.weight) for v in fused.value_links if level[id(v.link.node)] <= p}
        at_hand = {**places, **wanted}
        still = {i: b for i, b in places.items() if i in weights_so_far or _reached(later, own, at_hand, i)}
        for node in wanted.values():
            used = set(still.values()) | {place for _, place in kept}
            place = next((b for b in range(buffers) if b not in used), buffers)
            buffers = max(buffers, place + 1)
            kept.append((node, place))
        places = {**still, **{id(n): place for n, place in kept}}
        keeps.append(tuple(kept))
    return Passes(tuple(links), tuple(readers), tuple(keeps), tuple(known), buffers)


def _reached(roots: list[Tensor], own: set[int], stops: Mapping[int, Any], node: int) -> bool:
    """Whether computing the roots needs the node of this id, where all in ``stops`` are at hand."""
    stack, seen = list(roots), set[int]()
    while stack:
        n = stack.pop()
        if id(n) == node:
            return True
        if id(n) in seen or id(n) in own or id(n) in stops:
            continue
        seen.add(id(n))
        if isinstance(n, Map) or is_transpose(n):
            stack.extend(n.children())
    return False
