"""Inputs whose elements are positions along dims."""

from __future__ import annotations

from ..dsl.extent import Extent
from ..dsl.functions import checked_input
from ..dsl.op import Graph
from ..dsl.tensor import At, Index, Input, Map, Tensor, walk


def index_limits(graph: Graph) -> dict[str, list[Extent]]:
    """Inputs whose elements are positions, and what they must stay below: every dim that they index."""
    found: dict[str, list[Extent]] = {}

    def visit(node: Tensor) -> None:
        if not isinstance(node, At) or node.exact:
            return
        for dim, position in node.coords.items():
            source = checked_input(position)
            if source is not None:
                limits = found.setdefault(source.name, [])
                if graph.extent(dim) not in limits:
                    limits.append(graph.extent(dim))

    walk(graph.outputs(), visit)
    return found


def compared_with(graph: Graph) -> dict[str, list[Extent]]:
    """Inputs whose elements are compared with the positions along dims, as those of scatters are; and their extents.
    Nothing has to lie in them."""
    found: dict[str, list[Extent]] = {}

    def visit(node: Tensor) -> None:
        if not isinstance(node, Map) or node.op not in ("eq", "ne"):
            return
        for a, b in (node.args, node.args[::-1]):
            source = checked_input(a)
            if isinstance(source, Input) and source.dtype.kind in ("int", "uint") and isinstance(b, Index):
                found.setdefault(source.name, []).append(graph.extent(b.dim))

    walk(graph.outputs(), visit)
    return found
