"""Stages: which reductions over the same dims can run in one loop.

A reduction of a stage runs along with those of the stage that it needs; all those of earlier stages are finished by
then. What cannot run along goes to the next stage, and why is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dsl.op import Graph
from ..dsl.tensor import Reduce, Scan
from .dependence import leaves, same_dims
from .derive import derive, first
from .online import REDUCTIONS, Break, Chain, Link
from .running import Running, Undecided


class Stages:
    """The chains and breaks of a family of reductions, operands first; ``near`` is what `nearest` gives for it."""

    def __init__(self, graph: Graph, family: Sequence[Reduce], near: Mapping[int, Sequence[Reduce]]) -> None:
        self.over = family[0].over
        self.links: dict[int, Link] = {}
        self.breaks: list[Break] = []
        self.running = Running(graph, family, self.links)
        self.stage: dict[int, int] = {}
        for node in family:
            self._place(node, near)
        self.chains = self._collect(family)

    def _place(self, node: Reduce, near: Mapping[int, Sequence[Reduce]]) -> None:
        direct = self.running.direct(node.arg)
        others = [n for n in leaves(node.arg) if all(n is not d for d in direct)]
        apart = list({id(r): r for n in others for r in near[id(n)]}.values())
        if apart:
            self._break(node, apart, Undecided(_detour(node)))
        beyond = [self.stage[id(n)] + 1 for n in apart]
        stage = max((self.stage[id(n)] for n in direct), default=0)
        stage = max([stage, *beyond])
        moving = [n for n in direct if self.stage[id(n)] == stage]
        link: Link | None = None
        if moving:
            try:
                link = derive(self.running, node, moving)
            except Undecided as why:
                self._break(node, moving, why)
                stage += 1
        self.stage[id(node)] = stage
        if link is not None or node.op in REDUCTIONS:
            self.links[id(node)] = link or first(self.running, node)

    def _break(self, node: Reduce, earlier: Sequence[Reduce], why: Undecided) -> None:
        name = self.running.names[id(node)]
        legend = self.running.legend()
        self.breaks.append(Break(self.over, name, node, tuple(earlier), why.reason, why.function, why.residual, legend))

    def _collect(self, family: Sequence[Reduce]) -> list[Chain]:
        """The links that run in one loop: those of a stage that need each other, directly or not."""
        group = {id(n): i for i, n in enumerate(family)}
        for node in family:
            link = self.links.get(id(node))
            for earlier in (*link.needs, *link.scales) if link else ():
                joined, mine = group[id(earlier)], group[id(node)]
                group = {k: joined if g == mine else g for k, g in group.items()}
        chains = []
        for g in dict.fromkeys(group.values()):
            links = tuple(self.links[id(n)] for n in family if group[id(n)] == g and id(n) in self.links)
            if len(links) > 1:
                members = {id(k.node) for k in links}
                read = [n for k in links for n in self.running.direct(k.node.arg) if id(n) not in members]
                given = tuple({id(n): n for n in read}.values())
                chains.append(Chain(self.over, links, given, self.running.legend()))
        return chains


def _detour(node: Reduce) -> str:
    """Why an earlier result has to be finished that the argument does not read through maps alone."""
    through = {
        f"a reduction over {', '.join(n.over)}"
        if isinstance(n, Reduce)
        else "a scan"
        if isinstance(n, Scan)
        else "a read at other positions"
        for n in leaves(node.arg)
        if n.children() and not (isinstance(n, Reduce) and same_dims(n, node))
    }
    return f"an earlier result is used through {' and '.join(sorted(through))}, which needs it finished"
