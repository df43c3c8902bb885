"""Sums that the warps of a block share: which warp has which part, and how the parts become a group's results.

A task is a few columns (of one batch) with all rows. Long sums are split over all warps of a block, short ones over
fewer, so that the block has several tasks at a time. Parts come together in shared memory, in the order of the warps:
totals are the same from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, known, mul
from opsgen.lowering.to_tir import Scope, compute_name
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Context
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, strided, synchronize


@dataclass(frozen=True)
class Share:
    """What a warp has of a task: ``scope`` knows the batch; the columns begin at ``column``."""

    scope: Scope
    column: Expr


class SplitSums:
    """A kernel for up to ``rows`` rows, whose tasks have ``columns`` columns; a warp takes ``step`` positions of the
    sum at a time.
    """

    def __init__(
        self, context: Context, problem: Problem, part: str, warps: int, rows: int, columns: int, step: int
    ) -> None:
        assert warps & (warps - 1) == 0
        self.problem = problem
        self.warps, self.rows, self.columns, self.step = warps, rows, columns, step
        self.kernel = kernel = DeviceKernel(context, part, warps * WARP)
        self.type = compute_name(problem.node.dtype)
        self.code = code = kernel.code
        dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
        self.extents = {d: kernel.extent(d) for d in dims}
        self.m = code.bind(product_of(self.extents, problem.rows), "m")
        self.n = code.bind(product_of(self.extents, problem.columns), "n")
        self.k = code.bind(product_of(self.extents, problem.summed), "k")
        self.lane = code.bind(tirx.truncmod(kernel.thread, i64(WARP)), "lane")
        self.warp = code.bind(tirx.truncdiv(kernel.thread, i64(WARP)), "warp")
        shift = self._shift()
        count = known(shift)
        self.split = code.bind(i64(1) << shift, "split") if count is None else i64(1 << count)
        self.teams = code.bind(i64(warps) >> shift, "teams") if count is None else i64(warps >> count)
        self.team = code.bind(self.warp >> shift, "team")
        self.rank = code.bind(self.warp - (self.team << shift), "rank")
        self.first = code.bind(self.rank * i64(step), "first_step")
        """Where the warp's first step of a sum begins; the next is ``stride`` on."""
        self.stride = code.bind(mul(self.split, i64(step)), "stride")
        self.parts = kernel.shared(self.type, warps * rows * columns, "parts")

    def _shift(self) -> Any:
        """How many warps share a sum, as a power of two: enough for a step each, if the block has them."""
        most = self.warps.bit_length() - 1
        steps = self.code.bind(ceildiv(self.k, self.step), "steps")
        count = known(steps)
        if count is not None:
            return i64(min(max(count - 1, 0).bit_length(), most))
        shift: Expr = i64(0)
        for i in range(most):
            shift = tirx.Select(steps > i64(1 << i), i64(i + 1), shift)
        return self.code.bind(shift, "shift")

    @contextmanager
    def tasks(self) -> Iterator[tuple[Code, Share]]:
        """The tasks of the block's warps: code before their sums, and what they have. `total` ends it."""
        problem, kernel = self.problem, self.kernel
        self.in_batch = self.code.bind(ceildiv(self.n, self.columns), "in_batch")
        tasks = mul(product_of(self.extents, problem.batch), self.in_batch)
        self.count = count = self.code.bind(tirx.Select(self.m > i64(0), tasks, i64(0)), "tasks")
        first = self.code.bind(mul(kernel.block, self.teams), "first")
        step = self.code.bind(mul(kernel.blocks, self.teams), "step")
        with strided(self.code, first, count, step, "base") as (base, body):
            # A team past the last task has the last one again, and stores nothing: all warps come by the barriers.
            task = body.bind(tirx.Min(base + self.team, count - i64(1)), "task")
            batch, column = self._place(body, task)
            self.base = base
            yield body, Share(Scope(kernel, body, batch), column)

    def _place(self, code: Code, task: Expr) -> tuple[dict[str, Expr], Expr]:
        """The batch of a task, and its first column."""
        number = code.bind(tirx.truncdiv(task, self.in_batch), "batch") if self.problem.batch else i64(0)
        own = task - number * self.in_batch if self.problem.batch else task
        column = code.bind(own * i64(self.columns), "first_column")
        return unflatten(code, number, self.problem.batch, self.extents), column

    def rows_of(self, code: Code) -> list[dict[str, Expr]]:
        """The positions of all rows; those past the last are the last again."""
        found = []
        for i in range(self.rows):
            row = code.bind(tirx.Min(i64(i), self.m - i64(1)), "row") if i else i64(0)
            found.append(unflatten(code, row, self.problem.rows, self.extents))
        return found

    def column_at(self, code: Code, column: Expr) -> dict[str, Expr]:
        """The position of a column; of one past the last that of the last."""
        last = code.bind(tirx.Min(column, self.n - i64(1)), "column")
        return unflatten(code, last, self.problem.columns, self.extents)

    def keep(self, code: Code, value: Expr, row: Expr, column: Expr) -> None:
        """Stores the warp's part of the sum at a row and column of its task."""
        place = add(mul(add(mul(self.warp, i64(self.rows)), row), i64(self.columns)), column)
        code.store(self.parts, value, place)

    def total(self, code: Code) -> None:
        """When all parts are kept: their totals, and the group's values there."""
        problem, columns = self.problem, self.columns
        synchronize(code)
        in_task = code.bind(mul(self.m, i64(columns)), "in_task")
        count = code.bind(mul(self.teams, in_task), "results")
        with strided(code, self.kernel.thread, count, i64(self.kernel.threads), "result") as (result, body):
            team = body.bind(tirx.truncdiv(result, in_task), "team_of")
            within = body.bind(result - team * in_task, "within")
            row = body.bind(tirx.truncdiv(within, i64(columns)), "row")
            across = body.bind(within - row * i64(columns), "across")
            task = body.bind(self.base + team, "task")
            with body.when(task < self.count) as here:
                batch, first = self._place(here, task)
                column = here.bind(first + across, "column")
                with here.when(column < self.n) as inside:
                    total = self._sum(inside, team, row, across)
                    coords = {
                        **batch,
                        **unflatten(inside, row, problem.rows, self.extents),
                        **unflatten(inside, column, problem.columns, self.extents),
                    }
                    scope = Scope(self.kernel, inside, coords)
                    self._store(scope, self.completed(scope, total))
        synchronize(code)

    def _store(self, scope: Scope, value: Expr) -> None:
        scope.held[id(self.problem.node)] = lambda _: value
        self.kernel.store_all(scope)

    def completed(self, scope: Scope, total: Expr) -> Expr:
        """The value of the group's sum, of what the warps have summed."""
        return total

    def _sum(self, code: Code, team: Expr, row: Expr, column: Expr) -> Expr:
        """The parts of a team's warps, one after the other. All are loaded at once: those of other warps count zero."""
        size = i64(self.rows * self.columns)
        place = code.bind(add(mul(row, i64(self.columns)), column), "place")
        first = code.bind(mul(team, self.split), "first_warp")
        split = known(self.split)
        total: Expr = None
        for i in range(self.warps if split is None else split):
            warp = add(first, i64(i))
            if split is None:
                warp = tirx.Min(warp, i64(self.warps - 1))
            value = tirx.BufferLoad(self.parts, [add(mul(warp, size), place)])
            if split is None and i:
                value = tirx.Select(i64(i) < self.split, value, constant(0, self.type))
            total = code.bind(value if total is None else tirx.Add(total, value), "total")
        return total

    def launch(self, when: tuple[Comparison, ...], resident: int) -> Launch:
        """The finished kernel: a block for each task that all its warps share, but no more than keep a device busy."""
        graph, problem = self.kernel.graph, self.problem
        tasks = (cost.elements(graph, problem.columns) + (self.columns - 1)) // self.columns
        blocks: Extent = cost.elements(graph, problem.batch) * tasks
        split = known(self.split)
        if split is not None:
            blocks = (blocks * split + (self.warps - 1)) // self.warps
        return self.kernel.launch_on(blocks, when, per_sm=16, resident=resident)
