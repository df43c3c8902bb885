"""Row reductions on x86 whose operands are contiguous along a result dim, as when pooling over time: each lane of a
vector reduces its own column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import Group
from opsgen.dsl.tensor import Tensor, walk
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Expr, add, ceildiv, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import Pass, accumulator, combine, holding, over_outer, reduced
from opsgen.schedules.common.schedule import Context

from .vectors import widths


def along_columns(kernel: Kernel, group: Group) -> str | None:
    """The result dim along which operands are contiguous, if most are, and more than along a reduced dim."""
    votes: dict[str, int] = {}

    def visit(node: Tensor) -> None:
        memory = kernel.memory(node)
        if memory is not None and memory.dims and set(memory.dims) & set(group.over):
            votes[memory.dims[-1]] = votes.get(memory.dims[-1], 0) + 1

    walk(tuple(group.reductions), visit)
    inside = sum(v for d, v in votes.items() if d in group.over)
    best = max((d for d in votes if d in group.space), key=lambda d: votes[d], default=None)
    return best if best is not None and votes[best] > inside else None


def build_columns(kernel: Kernel, context: Context, column: str, passes: list[Pass]) -> None:
    group = context.group
    extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
    outer = tuple(d for d in group.space if d != column)
    width = max(widths(context.arch, group, 2)[0], 1)
    code = kernel.code
    rows = product_of(extents, outer)
    blocks = code.bind(ceildiv(extents[column], width), "blocks")
    with code.loop(code.bind(rows * blocks, "tasks"), "task", "parallel") as (task, body):
        row = body.bind(tirx.truncdiv(task, blocks), "row")
        start = body.bind(tirx.truncmod(task, blocks) * i64(width), "start")
        scope = Scope(kernel, body, unflatten(body, row, outer, extents))
        with body.either(start + i64(width) <= extents[column]) as (full, partial):
            _column(kernel, group, Scope(kernel, full, scope.coords), column, start, width, passes)
            with partial.loop(extents[column] - start, "lane") as (lane, single):
                at = single.bind(start + lane, column)
                _column(kernel, group, Scope(kernel, single, scope.coords), column, at, 1, passes)


def _column(
    kernel: Kernel, group: Group, scope: Scope, column: str, start: Expr, width: int, passes: list[Pass]
) -> None:
    """``width`` neighbouring columns, each lane reducing its own."""
    code = scope.code
    extents = {d: kernel.extent(d) for d in group.over}
    kind = "vectorized" if width > 1 else "serial"
    finished: dict[int, Any] = {}  # the totals of earlier passes, a lane for each column

    def lanes_of(at: Scope, body: Callable[[Scope, Expr], None]) -> None:
        with at.code.loop(width, "lane", kind) as (lane, lanes):
            totals = {key: holding(tirx.BufferLoad(buffer, [lane])) for key, buffer in finished.items()}
            body(at.inner(lanes, {column: add(start, lane)}, totals), lane)

    for p in passes:
        buffers = {id(r): accumulator(code, r, width, 0) for r in p.reductions}

        def sweep(at: Scope, p: Pass = p, buffers: dict[int, Any] = buffers) -> None:
            def element(here: Scope, lane: Expr) -> None:
                for r in p.reductions:
                    value, buffer = reduced(here.value(r.arg), r), buffers[id(r)]
                    here.code.store(buffer, combine(r.op, tirx.BufferLoad(buffer, [lane]), value), lane)
                kernel.store_values(here, [(node, here.value(node)) for node in p.stores])

            lanes_of(at, element)

        over_outer(scope, list(group.over), extents, sweep)
        finished |= buffers

    def results(here: Scope, lane: Expr) -> None:
        totals = [n for n in group.stored if set(n.dims) == set(group.space)]
        kernel.store_values(here, [(node, here.value(node)) for node in totals])

    lanes_of(scope, results)
