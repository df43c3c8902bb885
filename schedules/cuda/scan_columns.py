"""Scans on NVIDIA GPUs along a dim in which memory is not contiguous: each lane of a warp has its own column.

The warps of a block share the steps of a tile: each scans a few of them in its registers, and starts from the totals of
the warps before it. Few columns are cut into chunks along the dim, whose totals one kernel takes first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.tensor import Scan
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import holding
from opsgen.schedules.common.scans import as_type, carry_type, nothing, value_type
from opsgen.schedules.common.schedule import Config, Context
from opsgen.targets.cuda import ARCHS, WARP

from .conditions import undecided
from .kernels import DeviceKernel, combine, strided, synchronize


class Columns:
    """A kernel in which a block has 32 columns, or with ``chunked`` a chunk of them."""

    def __init__(self, context: Context, config: Config, part: str, column: str, chunked: bool) -> None:
        self.group = group = context.group
        self.config = config
        self.warps, self.steps = config["column_warps"], config["column_steps"]
        self.kernel = kernel = DeviceKernel(context, part, self.warps * WARP)
        (self.over,) = group.over
        self.column = column
        self.chunked = chunked
        self.scans = group.scans
        self.reverse = group.scans[0].reverse
        self.outer = tuple(d for d in group.space if d not in (self.over, column))
        self.extents = {d: kernel.extent(d) for d in group.space}
        self.length = self.extents[self.over]
        self.tile = self.warps * self.steps
        code = kernel.code
        self.lane = code.bind(tirx.truncmod(kernel.thread, i64(WARP)), "lane")
        self.warp = code.bind(tirx.truncdiv(kernel.thread, i64(WARP)), "warp")
        self.in_row = code.bind(ceildiv(self.extents[column], WARP), "column_blocks")
        self.chunks = config["column_chunks"] if chunked else 1
        if chunked:
            tiles = ceildiv(ceildiv(self.length, self.chunks), self.tile)
            self.chunk = code.bind(mul(tiles, i64(self.tile)), "chunk_length")
            self.spaces = [self._space(i, s) for i, s in enumerate(self.scans)]
        self.shared = [
            kernel.shared(carry_type(s) if part.endswith("totals") else value_type(s), 2 * self.warps * WARP, "totals")
            for s in self.scans
        ]

    def _space(self, number: int, scan: Scan) -> Any:
        graph = self.kernel.graph
        elements = cost.elements(graph, (*self.outer, self.column)) * self.chunks
        name = f"totals{self.group.index}_{number}"
        return self.kernel.workspace(name, {"(total)": elements}, DTYPES[carry_type(scan)]).buffer

    def build(self, totals: bool, when: tuple[Comparison, ...]) -> Launch:
        """The kernel that takes the totals of chunks, or the one that makes the results."""
        kernel, graph = self.kernel, self.kernel.graph
        rows = kernel.code.bind(product_of(self.extents, self.outer), "rows")
        self.lines = kernel.code.bind(mul(rows, self.extents[self.column]), "lines")
        each = kernel.code.bind(mul(rows, self.in_row), "blocks")
        with kernel.tasks(mul(each, i64(self.chunks))) as (task, body):
            # Neighbouring blocks have neighbouring columns.
            number = body.bind(tirx.truncdiv(task, each), "number") if self.chunked else i64(0)
            block = body.bind(tirx.truncmod(task, each), "block") if self.chunked else task
            row = body.bind(tirx.truncdiv(block, self.in_row), "row")
            wanted = body.bind(tirx.truncmod(block, self.in_row) * i64(WARP) + self.lane, "wanted")
            columns = self.extents[self.column]
            # Threads past the last column do its work too, for all must come by the barriers, and store nothing.
            column = body.bind(tirx.Min(wanted, columns - i64(1)), self.column)
            scope = Scope(kernel, body, {**unflatten(body, row, self.outer, self.extents), self.column: column})
            own = body.bind(tirx.Cast("int32", wanted < columns), "own")
            line = body.bind(add(mul(row, columns), column), "line")
            self.task(scope, line, number, own, totals)
            synchronize(body)  # before what the threads share is written for the next task
        blocks = cost.elements(graph, self.outer) * ((graph.extent(self.column) + (WARP - 1)) // WARP) * self.chunks
        return kernel.launch_on(blocks, when, per_sm=None if self.chunked else self.config["per_sm"])

    def task(self, scope: Scope, line: Expr, number: Expr, own: Expr, totals: bool) -> None:
        code = scope.code
        first, end = i64(0), self.length
        if self.chunked:
            chunks = code.bind(tirx.truncdiv(self.length + self.chunk - i64(1), self.chunk), "chunks")
            place = code.bind(sub(chunks - i64(1), number) if self.reverse else number, "chunk")
            first = code.bind(mul(place, self.chunk), "first")
            end = code.bind(tirx.Min(add(first, self.chunk), self.length), "end")
            with code.when(number < chunks) as inside:
                here = scope.inner(inside, {})
                if totals:
                    self.total(here, line, number, first, end, own)
                else:
                    self.results(here, first, end, self.earlier(inside, line, number), own)
            return
        self.results(scope, first, end, {id(s): nothing(s, carry_type(s)) for s in self.scans}, own)

    # -- chunks --------------------------------------------------------------------------------------------------------
    def place(self, line: Expr, number: Expr) -> Expr:
        return add(mul(number, self.lines), line)

    def total(self, scope: Scope, line: Expr, number: Expr, first: Expr, end: Expr, own: Expr) -> None:
        """The totals of a chunk's columns."""
        code = scope.code
        sums = {id(s): self.variable(code, carry_type(s), nothing(s, carry_type(s)), "sum") for s in self.scans}
        start = code.bind(add(first, self.warp), "start")
        with strided(code, start, end, i64(self.warps), self.over) as (at, body):
            here = scope.inner(body, {self.over: at})
            for s in self.scans:
                value = as_type(as_type(here.value(s.arg), value_type(s)), carry_type(s))
                self.advance(body, s, sums[id(s)], value)
        for s, shared, space in zip(self.scans, self.shared, self.spaces, strict=True):
            code.store(shared, tirx.BufferLoad(sums[id(s)], [i64(0)]), self.kernel.thread)
            synchronize(code)
            with code.when(tirx.And(tirx.EQ(self.warp, i64(0)), tirx.NE(own, tirx.IntImm("int32", 0)))) as one:
                whole = self.variable(one, carry_type(s), nothing(s, carry_type(s)), "whole")
                with one.loop(self.warps, "rank") as (rank, body):
                    part = tirx.BufferLoad(shared, [add(mul(rank, i64(WARP)), self.lane)])
                    self.advance(body, s, whole, part)
                one.store(space, tirx.BufferLoad(whole, [i64(0)]), self.place(line, number))

    def earlier(self, code: Code, line: Expr, number: Expr) -> dict[int, Expr]:
        """The totals of the chunks before one."""
        found = {}
        for s, space in zip(self.scans, self.spaces, strict=True):
            whole = self.variable(code, carry_type(s), nothing(s, carry_type(s)), "earlier")
            with code.loop(number, "chunk") as (i, body):
                self.advance(body, s, whole, tirx.BufferLoad(space, [self.place(line, i)]))
            found[id(s)] = code.bind(tirx.BufferLoad(whole, [i64(0)]))
        return found

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def variable(self, code: Code, dtype: str, start: Expr, name: str) -> Any:
        found = code.local(dtype, 1, name)
        code.store(found, start, i64(0))
        return found

    def advance(self, code: Code, s: Scan, variable: Any, value: Expr) -> None:
        code.store(variable, combine(s.op, tirx.BufferLoad(variable, [i64(0)]), value), i64(0))

    def results(self, scope: Scope, first: Expr, end: Expr, starts: dict[int, Expr], own: Expr) -> None:
        code = scope.code
        carries = {id(s): self.variable(code, carry_type(s), starts[id(s)], "carry") for s in self.scans}
        count = code.bind(ceildiv(sub(end, first), self.tile), "tiles")
        with code.loop(count, "tile") as (t, body):
            number = sub(sub(count, i64(1)), t) if self.reverse else t
            at = add(add(first, mul(number, i64(self.tile))), mul(self.warp, i64(self.steps)))
            parity = body.bind(t & i64(1), "parity")
            self.one_tile(scope.inner(body, {}), body.bind(at, "at"), end, carries, parity, own)

    def one_tile(self, scope: Scope, at: Expr, end: Expr, carries: dict[int, Any], parity: Expr, own: Expr) -> None:
        code = scope.code
        held = {id(s): code.local(value_type(s), self.steps, "held") for s in self.scans}
        self.take(scope, at, end, held)
        bases: dict[int, Expr] = {}
        for s, shared in zip(self.scans, self.shared, strict=True):
            bases[id(s)] = self.scan_steps(code, s, held[id(s)], shared, carries[id(s)], parity)
        with code.loop(self.steps, "step", "unrolled") as (step, body):
            position = body.bind(add(at, step), self.over)
            inside = tirx.And(tirx.NE(own, tirx.IntImm("int32", 0)), position < end)
            with body.when(inside) as here:
                values = {
                    id(s): holding(here.bind(combine(s.op, bases[id(s)], tirx.BufferLoad(held[id(s)], [step]))))
                    for s in self.scans
                }
                self.kernel.store_all(scope.inner(here, {self.over: position}, values))

    def take(self, scope: Scope, at: Expr, end: Expr, held: dict[int, Any]) -> None:
        """A thread's steps of a tile; past the end there is nothing."""
        with scope.code.loop(self.steps, "step", "unrolled") as (step, body):
            position = body.bind(add(at, step), self.over)
            for s in self.scans:
                body.store(held[id(s)], nothing(s, value_type(s)), step)
            with body.when(position < end) as inside:
                here = scope.inner(inside, {self.over: position})
                for s in self.scans:
                    inside.store(held[id(s)], as_type(here.value(s.arg), value_type(s)), step)

    def scan_steps(self, code: Code, s: Scan, held: Any, shared: Any, carry: Any, parity: Expr) -> Expr:
        """Scans a thread's steps in place; gives what comes before them."""
        kind = value_type(s)
        so_far: Expr = nothing(s, kind)
        for i in range(self.steps - 1, -1, -1) if self.reverse else range(self.steps):
            after = code.bind(combine(s.op, so_far, tirx.BufferLoad(held, [i64(i)])))
            code.store(held, so_far if s.exclusive else after, i64(i))
            so_far = after
        side = code.bind(add(mul(parity, i64(self.warps * WARP)), self.lane), "side")
        code.store(shared, so_far, add(side, mul(self.warp, i64(WARP))))
        synchronize(code)
        before = self.variable(code, kind, as_type(tirx.BufferLoad(carry, [i64(0)]), kind), "before")
        whole = self.variable(code, kind, nothing(s, kind), "whole")
        base = code.local(kind, 1, "base")
        order = range(self.warps - 1, -1, -1) if self.reverse else range(self.warps)
        for rank in order:
            with code.when(tirx.EQ(self.warp, i64(rank))) as mine:
                mine.store(base, tirx.BufferLoad(whole, [i64(0)]), i64(0))
            self.advance(code, s, whole, tirx.BufferLoad(shared, [add(side, i64(rank * WARP))]))
        self.advance(code, s, before, tirx.BufferLoad(base, [i64(0)]))
        self.advance(code, s, carry, as_type(tirx.BufferLoad(whole, [i64(0)]), carry_type(s)))
        return code.bind(tirx.BufferLoad(before, [i64(0)]), "base")


def build(context: Context, config: Config, column: str) -> list[Launch]:
    """Kernels for many columns and for few."""
    group, graph = context.group, context.partition.graph
    (over,) = group.over
    length = graph.extent(over)
    lines = cost.elements(graph, tuple(d for d in group.space if d != over))
    # Fewer columns do not fill the chip with blocks of 32, two for each multiprocessor.
    few = ARCHS[context.arch].sms * 2 * WARP
    tile = config["column_warps"] * config["column_steps"]
    found: list[Launch] = []

    def attempt(part: str, chunked: bool, totals: bool, choice: str, *when: Comparison) -> None:
        conditions = undecided(*when)
        if conditions is not None:
            launch = Columns(context, config, part, column, chunked).build(totals, conditions)
            found.append(replace(launch, choice=choice))

    cut: tuple[Comparison, ...] = ((length, ">", 4 * tile), (lines, "<=", few))
    attempt("column_totals", True, True, f"whole{group.index}", *cut)
    attempt("columns", False, False, f"whole{group.index}")
    attempt("column_chunks", True, False, "", *cut)
    return found
