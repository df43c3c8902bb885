"""Online forms: chains of reductions over one dim in which the later ones need the results of the earlier ones.

Computed as written, softmax(s)·v goes over the keys three times: for m = max s, l = sum exp(s - m) and
o = sum exp(s - m)/l · v. An online form goes over them once. It keeps running values and repairs the later ones when an
earlier one moves: l by the factor exp(m_old - m_new). What is the same at all positions, such as 1/l, is taken out of
the loop. This module finds chains and derives the repairs from the expressions alone, with a proof.

Two loop forms follow from one proof. For a `Link` with the running value ``value``:

    rolling     for each tile: new values of the earlier links, then
                value = combine(value ∘ repair(old, new), op over the tile of part)      ∘ is · in a sum, else +
    split       each share of the positions reduces on its own, from its own earlier values; shares a and b merge as
                value = combine(a.value ∘ repair(a, merged), b.value ∘ repair(b, merged))

and after the last position ``after`` gives the node's value. Source: Neptune (PLDI 2026), RedFuser (ASPLOS 2026).

A reduction whose argument does not separate ends a chain: it needs the finished values, and a loop of its own, in which
it may be the first link of another chain. `find_chains` finds these too; `find_breaks` says why there had to be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..dsl.op import Graph
from ..dsl.tensor import Const, Reduce, Tensor, elementwise, walk
from ..errors import error
from .dependence import same_dims

REDUCTIONS = ("sum", "max", "min", "prod")
"""What a link can be. The position that argmax and argmin give cannot be merged without the value found there."""


def neutral(op: str) -> float:
    """What reducing nothing gives."""
    return {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}[op]


@dataclass(frozen=True, eq=False)
class Guard:
    """``stand_in`` is used for the new value of ``link`` where that is ``value`` (``up_to``: that or less).

    The same holds for the old value, where the new one stands in: then the repair is the one for no change.
    """

    link: Reduce
    value: float
    stand_in: float
    up_to: bool = False
    old: bool = False  # whether the old value needs it too

    def met(self, node: Tensor) -> Tensor:
        """Whether a value of the link is one that is stood in for."""
        return elementwise("le" if self.up_to else "eq", node, Const(self.value))

    def safe_new(self, new: Tensor) -> Tensor:
        return elementwise("where", self.met(new), Const(self.stand_in), new)

    def safe_old(self, old: Tensor, safe_new: Tensor) -> Tensor:
        return elementwise("where", self.met(old), safe_new, old) if self.old else old


@dataclass(frozen=True)
class Proof:
    """What was shown about a link, as text. r1, r2, … are the chain's reductions, x' a fixed value of x."""

    function: str
    """F, the argument as defined."""
    part: str
    """What is left of it in the loop."""
    separates: str = ""
    """The identity by which it falls into a part of the position and a part of the reductions."""
    moving: str = ""
    """H, the part of the reductions."""
    repair: str = ""
    bound: str = ""
    """Why the repair cannot overflow."""
    guards: tuple[str, ...] = ()
    after: str = ""
    """What is applied after the loop: the node's value is this."""
    unscaled: str = ""
    """For a link that needs no repair since all was taken out: the repair that it would need otherwise."""


@dataclass(frozen=True, eq=False)
class Link:
    """One reduction of a chain.

    Invariants:

    - ``node`` is a reduction of the graph; its value is ``after`` where that is not None, else ``total``.
    - ``total`` is a `Reduce` of ``part`` with ``node``'s op and dims; it is ``node`` itself where nothing was taken
      out. Its running value is what a loop keeps, and what ``repair`` applies to.
    - ``part`` is made of the graph's own nodes wherever they are unchanged, so that values common to several links
      are computed once. It reads earlier links by their ``node``, for which a loop holds ``held[id(node)]``: the
      running value, made safe.
    - ``after`` reads ``total`` and the ``node`` of earlier links (``scales``), each with its final value. It gives
      ``neutral`` where the reduced dims have no positions. Before the first position the node's value is ``neutral``
      too, whatever ``after`` would give.
    - ``repair`` reads the placeholders ``old`` and ``new``, by id of the earlier link's ``node``, and nothing at
      positions of the loop. They stand for the earlier node's value (with its own ``after``) before and after the
      tile, or in a share and in the merged result. It is None where ``needs`` is empty.
    - ``repair`` is finite for all values of placeholders that occur, -inf at the start among them; as a factor it is
      from 0 to 1, if all of ``assumed`` are at least 0. Where no position has been met, or only ones that add nothing,
      the running value is ``neutral`` and stays so.
    """

    name: str
    node: Reduce
    total: Reduce
    neutral: float
    proof: Proof
    needs: tuple[Reduce, ...] = ()
    scales: tuple[Reduce, ...] = ()
    repair: Tensor | None = None
    additive: bool = False
    """Whether the repair is added (to a maximum or minimum) and not multiplied."""
    old: Mapping[int, Tensor] = field(default_factory=dict)
    new: Mapping[int, Tensor] = field(default_factory=dict)
    held: Mapping[int, Tensor] = field(default_factory=dict)
    """By id of an earlier node: the expression over ``new`` that stands for it in ``part``."""
    guards: tuple[Guard, ...] = ()
    assumed: tuple[Tensor, ...] = ()
    """Run-time scalars that must not be negative for the repair to stay at most 1."""
    after: Tensor | None = None

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def part(self) -> Tensor:
        return self.total.arg


@dataclass(frozen=True, eq=False)
class Chain:
    """Two links or more over the same dims, in an order in which they can be computed.

    ``given`` are reductions over these dims that the links read and that do not move: another loop is done with them.
    """

    over: tuple[str, ...]
    links: tuple[Link, ...]
    given: tuple[Reduce, ...] = ()
    legend: Mapping[str, Tensor] = field(default_factory=dict)
    """The nodes that names in the proofs stand for."""

    def link(self, node: Tensor) -> Link | None:
        """The link of a reduction, if it is one of the chain's."""
        return next((k for k in self.links if k.node is node), None)


@dataclass(frozen=True, eq=False)
class Break:
    """A reduction that needs earlier ones over the same dims, finished, and why it cannot run along with them."""

    over: tuple[str, ...]
    name: str
    node: Reduce
    earlier: tuple[Reduce, ...]
    reason: str
    function: str = ""
    residual: str = ""
    """What was left of the identity that was tested, if one was."""
    legend: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Online:
    """All that was found in a graph."""

    chains: tuple[Chain, ...] = ()
    breaks: tuple[Break, ...] = ()


def find_chains(graph: Graph) -> tuple[Chain, ...]:
    """The chains of a graph; see `analyse`."""
    return analyse(graph).chains


def find_breaks(graph: Graph) -> tuple[Break, ...]:
    """The reductions of a graph that need earlier ones over the same dims and cannot run along; see `analyse`."""
    return analyse(graph).breaks


def analyse(graph: Graph) -> Online:
    """The chains of a graph and what breaks them. sympy is imported only where a reduction needs another.

    Raises:
        TargetError: E2003, sympy is missing.
    """
    chains: list[Chain] = []
    breaks: list[Break] = []
    for family, near in _families(graph):
        try:
            from .stages import Stages
        except ImportError as missing:
            raise error("E2003", package="sympy", found=missing, fix="opsgen[compile]") from None
        found = Stages(graph, family, near)
        chains += found.chains
        breaks += found.breaks
    return Online(tuple(chains), tuple(breaks))


def _families(graph: Graph) -> list[tuple[list[Reduce], dict[int, list[Reduce]]]]:
    """The reductions over the same dims, operands first, where one depends on another; and what `nearest` gives."""
    families: dict[frozenset[str], list[Reduce]] = {}
    walk(
        graph.outputs(),
        lambda n: families.setdefault(frozenset(n.over), []).append(n) if isinstance(n, Reduce) else None,
    )
    found = [(f, nearest(graph, f)) for f in families.values() if len(f) > 1]
    return [(f, near) for f, near in found if any(near[id(r)] for r in f)]


def nearest(graph: Graph, family: list[Reduce]) -> dict[int, list[Reduce]]:
    """For each node, by id, the reductions of a family that are met first on the way to its inputs."""
    near: dict[int, list[Reduce]] = {}

    def visit(node: Tensor) -> None:
        found: list[Reduce] = []
        for c in node.children():
            below = [c] if isinstance(c, Reduce) and same_dims(c, family[0]) else near[id(c)]
            found += [b for b in below if all(b is not f for f in found)]
        near[id(node)] = found

    walk(graph.outputs(), visit)
    return near
