"""Contractions with few rows on NVIDIA GPUs: a warp sums a few columns of all rows, its threads along the sum."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Memory, Scope, compute_name
from opsgen.schedules.common.operands import Problem, contiguous
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, exchange, rounds, strided
from .strip import Emit, Strips, aligned, readable, width_for


class FewRows:
    """The kernel for up to ``most`` rows."""

    @staticmethod
    def serves(context: Context, problem: Problem) -> bool:
        """Whether both operands are contiguous along the sum, which has one dim."""
        kernel = DeviceKernel(context, "trial", WARP)
        last = problem.summed[-1]
        both = (problem.left, problem.right)
        return len(problem.summed) == 1 and all(contiguous(kernel, operand, last) for operand in both)

    def __init__(self, context: Context, config: Config, problem: Problem, most: int) -> None:
        self.problem = problem
        self.most = most
        self.columns = config["columns_of_warp"]
        self.kernel = kernel = DeviceKernel(context, "few_rows", 128)
        self.type = compute_name(problem.node.dtype)
        dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
        self.extents = {d: kernel.extent(d) for d in dims}
        [self.dim] = problem.summed

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, problem, code = self.kernel, self.problem, self.kernel.code
        m = code.bind(product_of(self.extents, problem.rows), "m")
        n = code.bind(product_of(self.extents, problem.columns), "n")
        loads: dict[int, Memory] = {}
        for operand, own in ((problem.left, problem.rows), (problem.right, problem.columns)):
            loads |= readable(kernel, [operand], self.dim, {*problem.batch, *own, *problem.summed})
        width = width_for(list(loads.values()))
        flag = aligned(code, list(loads.values()), width) if width > 1 else None
        lane = code.bind(tirx.truncmod(kernel.thread, i64(WARP)), "lane")
        warps = kernel.threads // WARP
        in_batch = code.bind(ceildiv(n, self.columns), "in_batch")
        first = code.bind(kernel.block * i64(warps) + tirx.truncdiv(kernel.thread, i64(WARP)), "first")
        count = code.bind(mul(product_of(self.extents, problem.batch), in_batch), "tasks")
        step = code.bind(kernel.blocks * i64(warps), "step")
        with strided(code, first, count, step, "task") as (task, body):
            batch = body.bind(tirx.truncdiv(task, in_batch), "batch")
            scope = Scope(kernel, body, unflatten(body, batch, problem.batch, self.extents))
            column = body.bind(tirx.truncmod(task, in_batch) * i64(self.columns), "first_column")
            self.task(scope, column, lane, m, n, width, flag)
        graph = kernel.graph
        tasks = (cost.elements(graph, problem.columns) + (self.columns - 1)) // self.columns
        blocks = (cost.elements(graph, problem.batch) * tasks + (warps - 1)) // warps
        return kernel.launch_on(blocks, when, per_sm=32)

    def task(self, scope: Scope, column: Expr, lane: Expr, m: Expr, n: Expr, width: int, flag: Expr | None) -> None:
        """All rows of a warp's columns. Rows and columns past the last are the last again, and are not stored."""
        code, problem = scope.code, self.problem
        # A pair of rows and columns: their scopes differ, so each has strips of its own.
        rows = [code.bind(tirx.Min(i64(i), m - i64(1)), "row") if i else i64(0) for i in range(self.most)]
        columns = [code.bind(tirx.Min(add(column, i64(j)), n - i64(1)), "column") for j in range(self.columns)]
        row_coords = [unflatten(code, r, problem.rows, self.extents) for r in rows]
        column_coords = [unflatten(code, c, problem.columns, self.extents) for c in columns]
        sums = code.local(self.type, self.most * self.columns, "sums")
        with code.loop(self.most * self.columns, "i", "unrolled") as (i, body):
            body.store(sums, constant(0, self.type), i)
        first = code.bind(lane * i64(width), "first")
        with strided(code, first, self.extents[self.dim], i64(WARP * width), "start") as (start, body):
            self.step(scope.inner(body, {}), start, row_coords, column_coords, m, sums, width, flag)
        for r in range(self.most):
            with code.when(i64(r) < m) as used:
                for c in range(self.columns):
                    self.finish(scope.inner(used, {}), r * self.columns + c, lane, row_coords[r], column, c, n, sums)

    def step(
        self,
        scope: Scope,
        start: Expr,
        rows: list[dict[str, Expr]],
        columns: list[dict[str, Expr]],
        m: Expr,
        sums: Any,
        width: int,
        flag: Expr | None,
    ) -> None:
        """A strip of the sum: the columns' elements into registers, then each row's times them."""
        code, problem, dtype = scope.code, self.problem, self.problem.node.dtype
        end = self.extents[self.dim]
        right = code.local(self.type, self.columns * width, "right")
        left = code.local(self.type, width, "left")
        with code.loop(self.columns * width, "i", "unrolled") as (i, body):
            body.store(right, constant(0, self.type), i)

        def take(at: Scope, operand: Any, own: tuple[str, ...], into: Any, place: int) -> None:
            loads = readable(self.kernel, [operand], self.dim, {*problem.batch, *own, *problem.summed})
            strips = Strips(self.kernel, self.dim, width, flag, loads)

            def element(here: Scope, emit: Emit) -> None:
                value = here.value_in(operand, dtype)
                here.code.store(into, value, add(i64(place), here.coords[self.dim] - start))

            strips.run(at, start, end, element)

        for c, coords in enumerate(columns):
            take(scope.inner(code, coords), problem.right, problem.columns, right, c * width)
        for r, coords in enumerate(rows):
            with code.when(i64(r) < m) as used:
                with used.loop(width, "i", "unrolled") as (i, body):
                    body.store(left, constant(0, self.type), i)
                take(scope.inner(used, coords), problem.left, problem.rows, left, 0)
                with used.loop(width, "i", "unrolled") as (i, body):
                    for c in range(self.columns):
                        at = i64(r * self.columns + c)
                        product = tirx.Mul(tirx.BufferLoad(left, [i]), tirx.BufferLoad(right, [add(i64(c * width), i)]))
                        body.store(sums, tirx.Add(tirx.BufferLoad(sums, [at]), product), at)

    def finish(
        self, scope: Scope, at: int, lane: Expr, row: dict[str, Expr], first: Expr, offset: int, n: Expr, sums: Any
    ) -> None:
        """The total of the warp, and the group's values at one row and column."""
        code, problem = scope.code, self.problem
        total = code.bind(tirx.BufferLoad(sums, [i64(at)]), "total")
        for other in rounds():
            total = code.bind(tirx.Add(total, exchange(total, other)), "total")
        column = add(first, i64(offset))
        with code.when(tirx.And(tirx.EQ(lane, i64(0)), column < n)) as stored:
            own = stored.bind(column, "column")
            coords = {**row, **unflatten(stored, own, problem.columns, self.extents)}
            self.kernel.store_all(scope.inner(stored, coords, held={id(problem.node): lambda _: total}))
