"""Segments: contractions whose right factor is another one for each run of rows (a mixture of experts).

    sum over k of  left[row, k] · right[group(row), column, k]

where group(row) never falls along the rows: each group has a run of rows, and the whole is a product of matrices for
each of them. What is no such run (an index that jumps back and forth) stays a row reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dsl.op import Graph
from ..dsl.tensor import At, Map, Reduce, Tensor
from .monotone import never_falls


@dataclass(frozen=True)
class Segments:
    """A grouped contraction: ``right`` has the dim ``groups``, and is read at ``position``, which has the dim ``rows``
    alone. Rows whose position lies outside of [0, groups) belong to the nearest group.
    """

    left: Tensor
    right: Tensor
    groups: str
    rows: str
    position: Tensor


def segments(node: Tensor, graph: Graph) -> Segments | None:
    """The parts of a grouped contraction, or None if the node is none."""
    if not isinstance(node, Reduce) or node.op != "sum" or node.dtype.kind != "float":
        return None
    product = node.arg
    if not isinstance(product, Map) or product.op != "mul" or len(product.args) != 2:
        return None
    sorted_inputs = {c.input for c in graph.checks if c.kind == "sorted"}
    for left, read in (product.args, product.args[::-1]):
        found = _read_by_rows(left, read, set(node.over))
        if found is not None and never_falls(found.position, found.rows, sorted_inputs):
            return found
    return None


def _read_by_rows(left: Tensor, read: Tensor, summed: set[str]) -> Segments | None:
    while isinstance(read, At) and not read.coords:
        read = read.source
    if not isinstance(read, At) or read.exact or len(read.coords) != 1:
        return None
    [(groups, position)] = read.coords.items()
    right = set(read.source.dims)
    if len(position.dims) != 1 or position.dims[0] in right:
        return None
    [rows] = position.dims
    own = set(left.dims) - right
    columns = right - set(left.dims) - {groups}
    # The left factor's one dim of its own is that of the groups; else a run of rows is no run of positions.
    if own != {rows} or not columns or not summed <= set(left.dims) & right or groups in left.dims:
        return None
    return Segments(left, read.source, groups, rows, position)
