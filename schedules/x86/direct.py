"""Contractions with few rows on x86: no packing, vectors along the sum, each element of the right operand read once.

A task is a run of columns; a tile of it is a few rows times a few columns, each pair with a vector of partial sums.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul, sub
from opsgen.lowering.to_tir import Scope, compute_name
from opsgen.schedules.common.operands import Problem, contiguous
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context
from opsgen.schedules.common.segments import rows_of

from .kernels import new_kernel
from .vectors import fold, strips, vectorizable, widths

ROWS = (4, 1)
COLUMNS = (4, 1)
"""Rows and columns of a tile: 16 vectors of sums, and 1 at the end of both."""

TASK_COLUMNS = 64


def build(context: Context, config: Config, problem: Problem) -> Launch | None:
    """The kernel, or None where an operand is not contiguous along the innermost summed dim."""
    kernel = new_kernel(context, "direct")
    last = problem.summed[-1]
    along = contiguous(kernel, problem.left, last) and contiguous(kernel, problem.right, last)
    if not along or not vectorizable((problem.left, problem.right)):
        return None
    kernel = new_kernel(context, "direct")
    return _Direct(kernel, context, problem).build()


class _Direct:
    def __init__(self, kernel: Kernel, context: Context, problem: Problem) -> None:
        self.kernel = kernel
        self.problem = problem
        self.type = compute_name(problem.node.dtype)
        self.lanes = widths(context.arch, context.group, 1)
        self.steps = self.lanes if len(self.lanes) > 1 else (16, 1)
        dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
        self.extents = {d: kernel.extent(d) for d in dims}
        right = cost.elements(kernel.graph, (*problem.batch, *problem.columns, *problem.summed))
        kernel.cost(cost.flops(kernel.graph, context.computed()) // 2, right, 8)

    def build(self) -> Launch:
        code, extents, problem = self.kernel.code, self.extents, self.problem
        m = code.bind(product_of(extents, problem.rows), "m")
        n = code.bind(product_of(extents, problem.columns), "n")
        blocks = code.bind(ceildiv(n, TASK_COLUMNS), "blocks")
        tasks = code.bind(mul(product_of(extents, problem.batch), blocks), "tasks")
        with code.loop(tasks, "task", "parallel") as (task, body):
            batch = body.bind(tirx.truncdiv(task, blocks), "batch")
            scope = Scope(self.kernel, body, unflatten(body, batch, problem.batch, extents))
            sums = body.local(self.type, ROWS[0] * TASK_COLUMNS, "sums")
            first = body.bind(tirx.truncmod(task, blocks) * i64(TASK_COLUMNS), "first")
            columns = body.bind(tirx.Min(i64(TASK_COLUMNS), n - first), "columns")

            def rows_from(at: Code, row: Expr, kind: str, height: int, stage: int) -> None:
                here = scope.inner(at, {})

                def columns_from(inner: Code, column: Expr, kind: str, width: int, stage: int) -> None:
                    self.tile(here.inner(inner, {}), row, height, first, column, width, sums)

                strips(at, i64(0), columns, COLUMNS, columns_from)
                self.epilogue(here, row, height, first, columns, sums)

            begin, end = rows_of(scope, problem, m)
            strips(body, begin, sub(end, begin), ROWS, rows_from)
        return self.kernel.launch()

    def tile(self, scope: Scope, row: Expr, height: int, first: Expr, column: Expr, width: int, sums: Any) -> None:
        """``height`` rows times ``width`` columns: sums over all of k, then into ``sums``."""
        code, problem = scope.code, self.problem
        left = [
            scope.inner(code, unflatten(code, code.bind(add(row, i64(i)), "row"), problem.rows, self.extents))
            for i in range(height)
        ]
        right = [
            scope.inner(
                code, unflatten(code, code.bind(first + add(column, i64(j)), "col"), problem.columns, self.extents)
            )
            for j in range(width)
        ]
        pairs = [(i, j) for i in range(height) for j in range(width)]
        parts = {pair: [self.zeros(code, w) for w in self.steps] for pair in pairs}
        *outer, last = problem.summed

        def nest(at: Code, dims: list[str], coords: dict[str, Expr]) -> None:
            if dims:
                with at.loop(self.extents[dims[0]], dims[0]) as (i, inner):
                    nest(inner, dims[1:], {**coords, dims[0]: i})
                return

            def step(inner: Code, k: Expr, kind: str, lanes: int, stage: int) -> None:
                for i, j in pairs:
                    with inner.loop(lanes, "lane", kind) as (lane, body):
                        here = {**coords, last: add(k, lane)}
                        a = left[i].inner(body, here).value_in(problem.left, problem.node.dtype)
                        b = right[j].inner(body, here).value_in(problem.right, problem.node.dtype)
                        part = parts[i, j][stage]
                        body.store(part, tirx.Add(tirx.BufferLoad(part, [lane]), tirx.Mul(a, b)), lane)

            strips(at, i64(0), self.extents[last], self.steps, step)

        nest(code, outer, {})
        for i, j in pairs:
            total = fold(code, parts[i, j], self.steps, tirx.Add)
            code.store(sums, total, add(i64(i * TASK_COLUMNS + j), column))

    def zeros(self, code: Code, width: int) -> Any:
        buffer = code.local(self.type, width, "part")
        with code.loop(width, "lane", "vectorized" if width > 1 else "serial") as (lane, body):
            body.store(buffer, constant(0, self.type), lane)
        return buffer

    def epilogue(self, scope: Scope, row: Expr, height: int, first: Expr, columns: Expr, sums: Any) -> None:
        """The group's stored values for a strip of rows of the task's columns."""
        problem = self.problem
        with scope.code.loop(height, "i") as (i, body):
            at_row = body.bind(add(row, i), "row")
            here = scope.inner(body, unflatten(body, at_row, problem.rows, self.extents))

            def step(inner: Code, at: Expr, kind: str, width: int, stage: int) -> None:
                with inner.loop(width, "j", kind) as (j, lanes):
                    coords = unflatten(lanes, first + add(at, j), problem.columns, self.extents)
                    total = tirx.BufferLoad(sums, [add(mul(i, i64(TASK_COLUMNS)), add(at, j))])
                    inside = here.inner(lanes, coords, held={id(problem.node): lambda _: total})
                    self.kernel.store_all(inside)

            strips(body, i64(0), columns, self.lanes, step)
