"""What a graph costs: flops and bytes as expressions over its free dims.

Flops count one for an arithmetic map, `TRANSCENDENTAL_FLOPS` for exp and its kin, one for an element entering a
reduction (so a
contraction counts 2·M·N·K). Bytes count every input and every result once: what a perfect kernel would move.
"""

from __future__ import annotations

from ..dsl.extent import Extent
from ..dsl.op import Graph
from ..dsl.tensor import Map, Reduce, Tensor, walk
from .groups import TRANSCENDENTAL

TRANSCENDENTAL_FLOPS = 10
_FREE = frozenset({"cast", "where", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "isnan"})


def elements(graph: Graph, dims: tuple[str, ...]) -> Extent:
    """The number of elements of a tensor with these dims."""
    count = Extent.const(1)
    for d in dims:
        count = count * graph.extent(d)
    return count


def node_flops(graph: Graph, node: Tensor) -> Extent:
    """The flops of one node alone."""
    if isinstance(node, Reduce):
        return elements(graph, node.arg.dims)
    if isinstance(node, Map) and node.op not in _FREE and node.dtype.kind == "float":
        return elements(graph, node.dims) * (TRANSCENDENTAL_FLOPS if node.op in TRANSCENDENTAL else 1)
    return Extent.const(0)


def flops(graph: Graph, nodes: tuple[Tensor, ...] | None = None) -> Extent:
    """The flops of a graph, or of given nodes of it."""
    found: list[Tensor] = []
    if nodes is None:
        walk(graph.outputs(), found.append)
    else:
        found.extend(nodes)
    total = Extent.const(0)
    for node in found:
        total = total + node_flops(graph, node)
    return total


def bytes_moved(graph: Graph) -> Extent:
    """The bytes of all inputs and results."""
    total = Extent.const(0)
    for node in graph.inputs:
        total = total + elements(graph, node.dims) * node.dtype.bytes
    for result in graph.results:
        total = total + elements(graph, result.value.dims) * result.dtype.bytes
    return total
