"""Which chains of reductions one kernel can do, with the contraction whose result they run over.

Attention is one: scores = q·k, the maximum and the sum over the keys, and the product with v, which is a reduction over
the keys too. Fused, the scores are made tile by tile and never stored. Everything is told from the graph: the chain is
any that `online` proves, and any maps may lie between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..dsl.dtypes import compute_type
from ..dsl.op import Graph
from ..dsl.tensor import Const, Map, Reduce, Tensor, walk
from .groups import factors, is_transpose
from .online import Chain, Guard, Link, analyse, neutral


@dataclass(frozen=True, eq=False)
class ValueLink:
    """A link that is a contraction: the sum over the chain's dim of ``weight`` (a value of the chain, one for each row
    and position) times ``value`` (one for each position and column)."""

    link: Link
    weight: Tensor
    value: Tensor


@dataclass(frozen=True, eq=False)
class FusedChain:
    """A chain with the contraction ``score`` = sum of ``queries`` · ``keys`` that it runs over.

    ``batch``: dims of all that is computed; ``rows``: of queries and results; ``over``: the one dim of the chain, of
    keys and values; ``columns``: of values and results. ``inside``: ids of what exists only tile by tile.
    """

    chain: Chain
    score: Reduce
    queries: Tensor
    keys: Tensor
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_links: tuple[Link, ...]
    value_links: tuple[ValueLink, ...]
    inside: frozenset[int] = field(repr=False)

    @property
    def over(self) -> str:
        return self.chain.over[0]

    @property
    def links(self) -> tuple[Link, ...]:
        return self.chain.links

    @property
    def mask(self) -> Tensor | None:
        """The condition without which a position adds nothing to any link, if they all have it."""
        found = {id(c): c for c in map(_condition, self.masked)}
        return next(iter(found.values())) if len(found) == 1 else None

    @property
    def masked(self) -> tuple[Map, ...]:
        """The choice, of each link, between a value and what adds nothing; without any if a link has none."""
        choices = []
        for k in self.row_links:
            choices.append(_choice(k.part, neutral(k.op)))
        for v in self.value_links:
            choices.append(_choice(v.weight, 0.0))
        return tuple(c for c in choices if c is not None) if all(c is not None for c in choices) else ()


def _choice(part: Tensor, nothing: float) -> Map | None:
    if isinstance(part, Map) and part.op == "where":
        other = part.args[2]
        while isinstance(other, Map) and other.op == "cast":
            other = other.args[0]
        if isinstance(other, Const) and float(other.value) == nothing:
            return part
    return None


def _condition(choice: Map) -> Tensor:
    return choice.args[0]


def fused_chains(graph: Graph) -> tuple[FusedChain, ...]:
    """The chains of a graph that can be fused with the contraction before them.

    The result of one may be what another runs over: a reduction is in one of them only.
    """
    found: list[FusedChain] = []
    taken: set[int] = set()
    for chain in analyse(graph).chains:
        fused = _fused(graph, chain)
        if fused is None:
            continue
        own = {id(fused.score), *(id(k.node) for k in fused.links)}
        if not own & taken:
            found.append(fused)
            taken |= own
    return tuple(found)


def _fused(graph: Graph, chain: Chain) -> FusedChain | None:
    if len(chain.over) != 1 or chain.given or not all(_simple(chain, k) for k in chain.links):
        return None
    (over,) = chain.over
    score = _score(chain, over)
    pair = factors(score) if score is not None else None
    if score is None or pair is None or score.dtype.kind != "float":
        return None
    queries, keys = pair if over in pair[1].dims else (pair[1], pair[0])
    if over in queries.dims or over not in keys.dims:
        return None
    summed = set(score.over)
    batch = tuple(d for d in score.dims if d in queries.dims and d in keys.dims)
    rows = tuple(d for d in score.dims if d in queries.dims and d not in keys.dims)
    if set(keys.dims) - set(batch) - summed != {over}:
        return None
    row_links, value_links = [], []
    columns: tuple[str, ...] = ()
    for k in chain.links:
        if set(k.node.dims) == {*batch, *rows}:
            row_links.append(k)
            continue
        value = _value_link(k, batch, rows, over)
        if value is None:
            return None
        own = tuple(d for d in k.node.dims if d not in batch and d not in rows)
        if columns and own != columns:
            return None
        columns = own
        value_links.append(value)
    inside = _inside(graph, chain, score, over)
    if inside is None or not _one_guard(chain):
        return None
    return FusedChain(
        chain, score, queries, keys, batch, rows, columns, tuple(row_links), tuple(value_links), frozenset(inside)
    )


def _simple(chain: Chain, link: Link) -> bool:
    """Whether a link computes in float32, its repair is safe whatever the caller passes, and the values that it needs
    are those that a loop keeps."""
    kept = all(chain.link(n) is not None and chain.link(n).after is None for n in link.needs)  # type: ignore[union-attr]
    return compute_type(link.node.dtype).name == "float32" and not link.assumed and kept


def _score(chain: Chain, over: str) -> Reduce | None:
    """The one reduction at the chain's positions that its links are computed from."""
    own = {id(k.node) for k in chain.links}
    found: dict[int, Reduce] = {}
    for k in chain.links:
        stack: list[Tensor] = [k.part]
        seen: set[int] = set()
        while stack:
            n = stack.pop()
            if id(n) in seen or id(n) in own:
                continue
            seen.add(id(n))
            if isinstance(n, Reduce):
                if over in n.dims:
                    found[id(n)] = n
            elif isinstance(n, Map) or is_transpose(n):
                stack.extend(n.children())
    return next(iter(found.values())) if len(found) == 1 else None


def _value_link(link: Link, batch: tuple[str, ...], rows: tuple[str, ...], over: str) -> ValueLink | None:
    """The link as weights times values, if it is that, with the same values for all rows."""
    pair = factors(link.total)
    if pair is None or link.additive:
        return None
    inside = {*batch, *rows, over}
    weight, value = pair if set(pair[0].dims) == inside else (pair[1], pair[0])
    columns = set(link.node.dims) - inside
    fits = set(weight.dims) == inside and columns and columns <= set(value.dims) <= columns | {*batch, over}
    return ValueLink(link, weight, value) if fits else None


def _inside(graph: Graph, chain: Chain, score: Reduce, over: str) -> set[int] | None:
    """The nodes that depend on the score at its positions, if nothing but the chain needs them."""
    links = {id(k.node) for k in chain.links}
    inside = {id(score)}
    after: set[int] = set(links)  # what depends on a link's result, wherever it lies
    sound = True

    def visit(node: Tensor) -> None:
        nonlocal sound
        if node is score:
            return
        below = [c for c in node.children() if id(c) in inside]
        if id(node) not in links and any(id(c) in after for c in node.children()):
            after.add(id(node))
        if below:
            if (isinstance(node, Map) or is_transpose(node)) and over in node.dims:
                inside.add(id(node))
            elif id(node) not in links:
                sound = False
        if id(node) in inside:
            # What it reads besides must be there before the chain runs.
            beside = [c for c in node.children() if id(c) not in inside and id(c) not in links]
            sound = sound and not any(over in c.dims and id(c) in after for c in beside)

    walk(graph.outputs(), visit)
    if any(id(r.value) in inside for r in graph.results):
        return None
    return inside if sound else None


def _one_guard(chain: Chain) -> bool:
    """Whether the links agree on what stands in for an earlier link's value: it is computed once for all."""
    found: dict[int, list[tuple[float, float, bool]]] = {}
    for k in chain.links:
        for needed in k.needs:
            mine = [_key(g) for g in k.guards if g.link is needed]
            if found.setdefault(id(needed), mine) != mine:
                return False
    return True


def _key(guard: Guard) -> tuple[float, float, bool]:
    return guard.value, guard.stand_in, guard.up_to
