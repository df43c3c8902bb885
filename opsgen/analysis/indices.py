"""Inputs whose elements are positions along dims."""

from __future__ import annotations

from ..dsl.extent import Extent
from ..dsl.functions import checked_input
from ..dsl.op import Graph
from ..dsl.tensor import At, Tensor, walk


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
