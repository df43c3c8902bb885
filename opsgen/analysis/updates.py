"""Updates of single rows, told from their expressions: a parameter that stays what it was, but where sources go.

``where(last >= 0, x.at(source=last), cache)``, with ``last = scatter_max(index(source), positions)``, is a new value of
every element of the cache. Written back to the cache's own memory, it is as many stores as there are sources.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dsl.op import Graph, Result
from ..dsl.tensor import At, Const, Index, Input, Map, Reduce, Tensor, walk
from .groups import is_transpose
from .scatter import Scatter, scatter_of


@dataclass(frozen=True, eq=False)
class Update:
    """``result``, the new value of ``old``, is ``value`` of the last source that goes to a position, if one does.

    ``scatter`` says where sources go: its reduction gives the number of the last one.
    """

    result: Tensor
    old: Input
    scatter: Scatter
    value: Tensor

    @property
    def source(self) -> str:
        """The dim along which the sources lie."""
        return self.scatter.source[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The dims of a row."""
        known = {*self.scatter.batch, *self.scatter.destinations}
        return tuple(d for d in self.old.dims if d not in known)

    @property
    def space(self) -> tuple[str, ...]:
        """The dims of what is written: those of the parameter, with the source in the place of its destination."""
        first, *others = (d for d in self.old.dims if d in self.scatter.destinations)
        return tuple(self.source if d == first else d for d in self.old.dims if d not in others)

    def children(self) -> tuple[Tensor, ...]:
        """The nodes of the graph that what is written is computed from."""
        return (*self.scatter.children()[:-1], self.value)  # the scatter's own value is the source's number


def updates_of(graph: Graph) -> dict[int, Update]:
    """The updates among a graph's results, by the id of the new value."""
    found: dict[int, Update] = {}
    for result in graph.results:
        update = _update(result)
        if update is not None and sum(r.value is result.value for r in graph.results) == 1:
            found[id(result.value)] = update
    return found


def _update(result: Result) -> Update | None:
    old, choice = result.updates, _plain(result.value)
    if old is None or not isinstance(choice, Map) or choice.op != "where":
        return None
    condition, then, otherwise = choice.args
    last, there = _presence(condition)
    new, kept = (then, otherwise) if there else (otherwise, then)
    if last is None or _plain(kept) is not old:
        return None
    scatter = scatter_of(last)
    if scatter is None or last.op != "max" or scatter.rest or scatter.columns or scatter.others:
        return None
    if not isinstance(scatter.value, Index) or scatter.source != (scatter.value.dim,):
        return None
    value = _at_source(new, last, scatter)
    if value is None or not set(scatter.destinations) <= set(old.dims) or scatter.source[0] in old.dims:
        return None
    update = Update(result.value, old, scatter, value)
    # What is written must not be computed from what another step may have overwritten.
    return None if _reads(update.children(), old) else update


def _plain(node: Tensor) -> Tensor:
    """A value whatever the order of its dims."""
    while is_transpose(node):
        node = node.children()[0]
    return node


def _presence(condition: Tensor) -> tuple[Reduce | None, bool]:
    """The reduction whose result a condition compares with 0, and whether it holds where that is not negative."""
    if isinstance(condition, Map) and condition.op in ("ge", "lt") and _is_zero(condition.args[1]):
        last = _plain(condition.args[0])
        if isinstance(last, Reduce):
            return last, condition.op == "ge"
    return None, False


def _is_zero(node: Tensor) -> bool:
    return isinstance(node, Const) and node.value == 0


def _at_source(new: Tensor, last: Reduce, scatter: Scatter) -> Tensor | None:
    """The value that a source brings; None if it is not told by the source alone."""
    new = _plain(new)
    [source] = scatter.source
    value = new
    if isinstance(new, At) and set(new.coords) == {source} and _plain(new.coords[source]) is last:
        value = new.source
    elif source in new.dims:
        return None
    return None if set(value.dims) & set(scatter.destinations) else value


def _reads(roots: tuple[Tensor, ...], node: Tensor) -> bool:
    found: list[bool] = []
    walk(roots, lambda n: found.append(True) if n is node else None)
    return bool(found)
