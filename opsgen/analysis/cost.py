"""What a graph costs: flops and bytes as expressions over its free dims.

Flops count one for an arithmetic map, `TRANSCENDENTAL_FLOPS` for exp and its kin, one for an element entering a
reduction (so a contraction counts 2·M·N·K) or a scan. Bytes count every input and every result once: what a perfect
kernel would move.
"""

from __future__ import annotations

from ..dsl.extent import Extent
from ..dsl.op import Graph
from ..dsl.tensor import Map, Reduce, Scan, Tensor, walk
from .groups import TRANSCENDENTAL
from .scatter import scatter_of
from .updates import updates_of

TRANSCENDENTAL_FLOPS = 10
_FREE = frozenset({"bitcast", "cast", "where", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "isnan"})


def elements(graph: Graph, dims: tuple[str, ...]) -> Extent:
    """The number of elements of a tensor with these dims."""
    count = Extent.const(1)
    for d in dims:
        count = count * graph.extent(d)
    return count


def flops(graph: Graph, nodes: tuple[Tensor, ...] | None = None) -> Extent:
    """The flops of a graph, or of given nodes of it: one term for each size of tensor."""
    found: list[Tensor] = []
    if nodes is None:
        walk(graph.outputs(), found.append)
    else:
        found.extend(nodes)
    terms: dict[Extent, int] = {}

    def count(dims: tuple[str, ...], each: int) -> None:
        size = elements(graph, tuple(sorted(dims)))
        terms[size] = terms.get(size, 0) + each

    for node in found:
        if isinstance(node, Reduce):
            scatter = scatter_of(node)
            count(node.arg.dims if scatter is None else (*scatter.batch, *node.over, *scatter.columns), 1)
        elif isinstance(node, Scan):
            count(node.dims, 1)
        elif isinstance(node, Map) and node.op not in _FREE and node.dtype.kind == "float":
            count(node.dims, TRANSCENDENTAL_FLOPS if node.op in TRANSCENDENTAL else 1)
    total = Extent.const(0)
    for size, each in terms.items():
        total = total + size * each
    return total


def bytes_moved(graph: Graph) -> Extent:
    """The bytes of all inputs and results; of a parameter of which single rows are updated, those of the rows."""
    total = Extent.const(0)
    updates = updates_of(graph)
    read: list[Tensor] = []
    walk(graph.outputs(), read.append, lambda n: updates[id(n)].children() if id(n) in updates else n.children())
    only_written = {id(u.old) for u in updates.values()} - {id(n) for n in read}
    for node in graph.inputs:
        if id(node) not in only_written:
            total = total + elements(graph, node.dims) * node.dtype.bytes
    for result in graph.results:
        update = updates.get(id(result.value))
        dims = result.value.dims if update is None else update.space
        total = total + elements(graph, dims) * result.dtype.bytes
    return total
