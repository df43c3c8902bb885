"""Results at some positions alone: which dims can be cut down to a few, so that no other position is computed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..dsl.extent import Extent
from ..dsl.op import Graph
from ..dsl.tensor import At, Concat, Index, Reduce, Scan, Tensor, walk


def nodes_of(graph: Graph) -> list[Tensor]:
    """Every node that a result needs."""
    found: list[Tensor] = []
    walk(graph.outputs(), found.append)
    return found


def independent_dims(graph: Graph) -> tuple[str, ...]:
    """Dims of inputs along which a result at one position needs no other: nothing is reduced, scanned, gathered or
    joined along them, and no other dim's extent is made of theirs. The position itself may be read."""
    nodes = nodes_of(graph)
    tied: set[str] = set()
    for n in nodes:
        if isinstance(n, Reduce):
            tied.update(n.over)
        elif isinstance(n, Scan):
            tied.add(n.over)
        elif isinstance(n, At):
            tied.update(n.coords)
        elif isinstance(n, Concat):
            tied.update((n.dim, *n.part_dims))
    for dim, extent in graph.extents.items():
        if extent.value is None and extent != Extent.dim(dim):
            tied.update((dim, *extent.names()))
    return tuple(dict.fromkeys(d for i in graph.inputs for d in i.dims if d not in tied))


def largest_node(graph: Graph, extents: Mapping[str, int]) -> int:
    """Elements of the largest value on the way to the results; positions along a dim are no value."""
    return max((prod(extents[d] for d in n.dims) for n in nodes_of(graph) if not isinstance(n, Index)), default=0)


def choose(graph: Graph, extents: Mapping[str, int], most: int) -> dict[str, NDArray[np.int64]]:
    """Positions along some dims so that no value on the way has more than ``most`` elements, if that can be had.

    Args:
        extents: of every dim of the graph.
        most: elements.

    Returns:
        Ascending positions for dims that are cut down: the ends, and others at random, spread over the dim.
    """
    dims = [d for d in independent_dims(graph) if extents[d] > 1]
    counts = {d: extents[d] for d in dims}
    while largest_node(graph, {**extents, **counts}) > most and any(n > 1 for n in counts.values()):
        # The largest node decides; of its dims, the longest one gives way.
        full = {**extents, **counts}
        top = max(nodes_of(graph), key=lambda n: prod(full[d] for d in n.dims))
        free = [d for d in top.dims if counts.get(d, 1) > 1]
        if not free:
            break
        longest = max(free, key=lambda d: counts[d])
        counts[longest] = max(1, counts[longest] * 3 // 4)
    random = np.random.default_rng(0)
    return {d: _spread(extents[d], n, random) for d, n in counts.items() if n < extents[d]}


def _spread(extent: int, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """One position of each of ``count`` runs of equal length; the ends are among them where there are two at least."""
    edges = np.linspace(0, extent, count + 1)
    found = np.floor(edges[:-1] + random.random(count) * np.diff(edges)).astype(np.int64)
    if count > 1:
        found[0], found[-1] = 0, extent - 1
    return np.unique(np.minimum(found, extent - 1))
