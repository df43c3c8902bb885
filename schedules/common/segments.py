"""Where the rows of each group of a grouped contraction begin: a binary search over the group of a row."""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis.segments import Segments
from opsgen.dsl.tensor import At
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Expr, add, i64
from opsgen.lowering.to_tir import Scope

from .operands import Problem

_BITS = 48
"""Of a number of rows: more do not fit in memory."""


def first_row(scope: Scope, segments: Segments, group: Expr, name: str = "first") -> Expr:
    """The first row of a group, or of those after it if it has none: how many rows lie in earlier groups.

    Rows outside of all groups belong to the first or the last one, so group 0 begins at row 0, and behind the last
    group there is none. The result lies in [0, rows], whatever the positions are; it rises with the group where they
    never fall.
    """
    code, env = scope.code, scope.env
    rows, groups = env.extent(segments.rows), env.extent(segments.groups)
    found = code.local("int64", 1, name)
    last = tirx.Select(group >= groups, rows, i64(0))
    code.store(found, last, i64(0))
    inner = tirx.And(group > i64(0), group < groups)
    with code.when(inner) as searching, searching.loop(_BITS, "bit") as (bit, body):
        step = tirx.shift_left(i64(1), i64(_BITS - 1) - bit)
        wanted = body.bind(tirx.BufferLoad(found, [i64(0)]) + step, "wanted")
        with body.when(wanted <= rows) as possible:
            row = possible.bind(wanted - i64(1), "row")
            position = scope.inner(possible, {segments.rows: row}).value(segments.position)
            with possible.when(tirx.Cast("int64", position) < group) as before:
                before.store(found, wanted, i64(0))
    return code.bind(tirx.BufferLoad(found, [i64(0)]), name)


def rows_of(scope: Scope, problem: Problem, rows: Expr) -> tuple[Expr, Expr]:
    """The first row of the batch at hand and the one behind its last: all ``rows``, or those of the group."""
    if problem.segments is None:
        return i64(0), rows
    group = scope.coords[problem.segments.groups]
    begin = first_row(scope, problem.segments, group, "begin")
    end = first_row(scope, problem.segments, add(group, i64(1)), "end")
    return begin, scope.bind(tirx.Max(begin, end), "end")


def read_by_group(kernel: Kernel, segments: Segments) -> bool:
    """Whether the kernel's group uses the position of a row only to read along dims with as many elements as there are
    groups: such reads are clamped, and so give the same where the position is that of the row's group.
    """
    position, graph = segments.position, kernel.graph
    groups = graph.extent(segments.groups)
    own, _ = kernel.partition.contents(kernel.group)
    for node in own:
        if not any(child is position for child in node.children()):
            continue
        if not isinstance(node, At) or node.exact or node.source is position:
            return False
        if any(p is position and graph.extent(d) != groups for d, p in node.coords.items()):
            return False
    return all(node is not position for node in kernel.group.stored)
