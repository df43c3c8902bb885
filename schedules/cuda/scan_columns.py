"""Scans on NVIDIA GPUs along a dim in which memory is not contiguous: each lane of a warp has its own columns.

The warps of a block share the steps of a tile: each scans a few of them in its registers, and starts from the totals of
the warps before it. Few columns are cut into chunks along the dim, whose totals one kernel takes first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.tensor import Scan
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import holding
from opsgen.schedules.common.scans import as_type, carry_type, nothing, value_type
from opsgen.schedules.common.schedule import Config, Context
from opsgen.targets.cuda import ARCHS, WARP

from .conditions import undecided
from .kernels import DeviceKernel, combine, strided, synchronize
from .scan_team import Emit
from .strip import Strips, aligned, readable


class Columns:
    """A kernel in which a block has 32 times ``width`` columns, or with ``chunked`` a chunk of them."""

    def __init__(self, context: Context, config: Config, part: str, column: str, chunked: bool) -> None:
        self.group = group = context.group
        self.config = config
        self.warps, self.steps = config["column_warps"], config["column_steps"]
        self.threads = self.warps * WARP
        self.kernel = kernel = DeviceKernel(context, part, self.threads)
        (self.over,) = group.over
        self.column = column
        self.chunked = chunked
        self.scans = group.scans
        self.reverse = group.scans[0].reverse
        self.outer = tuple(d for d in group.space if d not in (self.over, column))
        self.extents = {d: kernel.extent(d) for d in group.space}
        self.length = self.extents[self.over]
        self.tile = self.warps * self.steps
        code, dims = kernel.code, set(group.space)
        self.first_loads = readable(kernel, [s.arg for s in self.scans], column, dims)
        self.later_loads = readable(kernel, group.stored, column, dims, {id(s): None for s in self.scans})
        places = [p for n in group.stored for p in kernel.destinations(n) if p.dims[-1:] == (column,)]
        memories = [*self.first_loads.values(), *self.later_loads.values(), *places]
        # A lane moves 4 bytes at least, so that a warp has whole lines.
        self.width = max(4 // min((m.dtype.bytes for m in memories), default=4), 1)
        self.flag = aligned(code, memories, self.width) if self.width > 1 else None
        self.lane = code.bind(tirx.truncmod(kernel.thread, i64(WARP)), "lane")
        self.warp = code.bind(tirx.truncdiv(kernel.thread, i64(WARP)), "warp")
        self.rows = code.bind(product_of(self.extents, self.outer), "rows")
        self.in_row = code.bind(ceildiv(self.extents[column], WARP * self.width), "column_blocks")
        self.chunks = config["column_chunks"] if chunked else 1
        if chunked:
            tiles = ceildiv(ceildiv(self.length, self.chunks), self.tile)
            self.chunk = code.bind(mul(tiles, i64(self.tile)), "chunk_length")
            self.spaces = [self._space(i, s) for i, s in enumerate(self.scans)]
        types = [carry_type(s) if part.endswith("totals") else value_type(s) for s in self.scans]
        self.shared = [kernel.shared(t, 2 * self.threads * self.width, "totals") for t in types]

    def _space(self, number: int, scan: Scan) -> Any:
        graph = self.kernel.graph
        elements = cost.elements(graph, (*self.outer, self.column)) * self.chunks
        name = f"totals{self.group.index}_{number}"
        return self.kernel.workspace(name, {"(total)": elements}, DTYPES[carry_type(scan)]).buffer

    def build(self, totals: bool, when: tuple[Comparison, ...]) -> Launch:
        """The kernel that takes the totals of chunks, or the one that makes the results."""
        kernel, graph = self.kernel, self.kernel.graph
        each = kernel.code.bind(mul(self.rows, self.in_row), "blocks")
        with kernel.tasks(mul(each, i64(self.chunks))) as (task, body):
            number = body.bind(tirx.truncdiv(task, each), "number") if self.chunked else i64(0)
            block = body.bind(tirx.truncmod(task, each), "block") if self.chunked else task
            row = body.bind(tirx.truncdiv(block, self.in_row), "row")
            lane = tirx.truncmod(block, self.in_row) * i64(WARP) + self.lane
            start = body.bind(lane * i64(self.width), "first_column")
            # Threads past the last column come by the barriers too, and do nothing else.
            self.task(Scope(kernel, body, unflatten(body, row, self.outer, self.extents)), row, start, number, totals)
            synchronize(body)  # before what the threads share is written for the next task
        wide = WARP * self.width
        blocks = cost.elements(graph, self.outer) * ((graph.extent(self.column) + (wide - 1)) // wide) * self.chunks
        return kernel.launch_on(blocks, when, per_sm=None if self.chunked else self.config["per_sm"])

    def task(self, scope: Scope, row: Expr, start: Expr, number: Expr, totals: bool) -> None:
        code, columns = scope.code, self.extents[self.column]
        fits = start + i64(self.width) <= columns
        if self.flag is not None:
            fits = tirx.And(tirx.NE(self.flag, tirx.IntImm("int32", 0)), fits)
        whole = code.bind(tirx.Cast("int32", fits), "whole")
        if not self.chunked:
            empty = {id(s): [nothing(s, carry_type(s))] * self.width for s in self.scans}
            self.results(scope, start, whole, i64(0), self.length, empty)
            return
        chunks = code.bind(tirx.truncdiv(self.length + self.chunk - i64(1), self.chunk), "chunks")
        place = code.bind(sub(chunks - i64(1), number) if self.reverse else number, "chunk")
        first = code.bind(mul(place, self.chunk), "first")
        end = code.bind(tirx.Min(add(first, self.chunk), self.length), "end")
        line = code.bind(add(mul(row, columns), start), "line")
        with code.when(number < chunks) as inside:
            here = scope.inner(inside, {})
            if totals:
                self.total(here, line, number, start, whole, first, end)
            else:
                self.results(here, start, whole, first, end, self.earlier(inside, line, start, number))

    # -- columns of a lane ---------------------------------------------------------------------------------------------
    def each_column(self, scope: Scope, start: Expr, whole: Expr, loads: dict[int, Any], element: Any) -> None:
        """``element(scope, emit, lane)`` for each of a lane's columns at the scope's position."""
        columns = self.extents[self.column]
        strips = Strips(self.kernel, self.column, self.width, self.flag, loads if self.width > 1 else {})
        with scope.code.either(tirx.NE(whole, tirx.IntImm("int32", 0))) as (full, rest):
            strips._at_once(
                scope, full, start, lambda here, emit: element(here, emit, sub(here.coords[self.column], start))
            )
            for lane in range(self.width) if self.width > 1 else ():
                at = rest.bind(add(start, i64(lane)), self.column)
                with rest.when(at < columns) as inside:
                    here = scope.inner(inside, {self.column: at}, {})
                    element(here, partial(_store, here), i64(lane))

    # -- chunks --------------------------------------------------------------------------------------------------------
    def place(self, line: Expr, number: Expr, lane: int) -> Expr:
        lines = mul(self.rows, self.extents[self.column])
        return add(add(mul(number, lines), line), i64(lane))

    def total(self, scope: Scope, line: Expr, number: Expr, start: Expr, whole: Expr, first: Expr, end: Expr) -> None:
        """The totals of a chunk's columns."""
        code, columns = scope.code, self.extents[self.column]
        sums = {id(s): self.variables(code, s, carry_type(s), "sum") for s in self.scans}

        def element(here: Scope, emit: Emit, lane: Expr) -> None:
            for s in self.scans:
                value = as_type(as_type(here.value(s.arg), value_type(s)), carry_type(s))
                self.advance(here.code, s, sums[id(s)], value, lane)

        with strided(code, code.bind(add(first, self.warp), "at"), end, i64(self.warps), self.over) as (at, body):
            self.each_column(scope.inner(body, {self.over: at}), start, whole, self.first_loads, element)
        for s, shared, space in zip(self.scans, self.shared, self.spaces, strict=True):
            for lane in range(self.width):
                code.store(shared, tirx.BufferLoad(sums[id(s)], [i64(lane)]), self.slot(i64(0), self.warp, lane))
            synchronize(code)
            with code.when(tirx.EQ(self.warp, i64(0))) as one:
                for lane in range(self.width):
                    with one.when(add(start, i64(lane)) < columns) as own:
                        whole_sum = self.variables(own, s, carry_type(s), "whole")
                        with own.loop(self.warps, "rank") as (rank, body):
                            part = tirx.BufferLoad(shared, [self.slot(i64(0), rank, lane)])
                            self.advance(body, s, whole_sum, part, i64(0))
                        own.store(space, tirx.BufferLoad(whole_sum, [i64(0)]), self.place(line, number, lane))

    def earlier(self, code: Code, line: Expr, start: Expr, number: Expr) -> dict[int, list[Expr]]:
        """The totals of the chunks before one."""
        found: dict[int, list[Expr]] = {}
        for s, space in zip(self.scans, self.spaces, strict=True):
            whole = self.variables(code, s, carry_type(s), "earlier")
            for lane in range(self.width):
                there = add(start, i64(lane)) < self.extents[self.column]
                with code.when(there) as own, own.loop(number, "chunk") as (i, body):
                    self.advance(body, s, whole, tirx.BufferLoad(space, [self.place(line, i, lane)]), i64(lane))
            found[id(s)] = [code.bind(tirx.BufferLoad(whole, [i64(lane)])) for lane in range(self.width)]
        return found

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def variables(self, code: Code, s: Scan, dtype: str, name: str) -> Any:
        """One for each of a lane's columns, with nothing in it."""
        found = code.local(dtype, self.width, name)
        for lane in range(self.width):
            code.store(found, nothing(s, dtype), i64(lane))
        return found

    def advance(self, code: Code, s: Scan, variable: Any, value: Expr, lane: Expr) -> None:
        code.store(variable, combine(s.op, tirx.BufferLoad(variable, [lane]), value), lane)

    def slot(self, parity: Expr, warp: Expr, lane: int) -> Expr:
        """Where a thread's total is shared."""
        plane = add(mul(parity, i64(self.width)), i64(lane))
        return add(add(mul(plane, i64(self.threads)), mul(warp, i64(WARP))), self.lane)

    def results(
        self, scope: Scope, start: Expr, whole: Expr, first: Expr, end: Expr, before: dict[int, list[Expr]]
    ) -> None:
        code = scope.code
        carries: dict[int, Any] = {}
        for s in self.scans:
            carries[id(s)] = code.local(carry_type(s), self.width, "carry")
            for lane in range(self.width):
                code.store(carries[id(s)], before[id(s)][lane], i64(lane))
        count = code.bind(ceildiv(sub(end, first), self.tile), "tiles")
        with code.loop(count, "tile") as (t, body):
            number = sub(sub(count, i64(1)), t) if self.reverse else t
            at = add(add(first, mul(number, i64(self.tile))), mul(self.warp, i64(self.steps)))
            parity = body.bind(t & i64(1), "parity")
            self.one_tile(scope.inner(body, {}), start, whole, body.bind(at, "at"), end, carries, parity)

    def one_tile(
        self, scope: Scope, start: Expr, whole: Expr, at: Expr, end: Expr, carries: dict[int, Any], parity: Expr
    ) -> None:
        code, width = scope.code, self.width
        held = {id(s): code.local(value_type(s), self.steps * width, "held") for s in self.scans}
        self.take(scope, start, whole, at, end, held)
        bases = {
            id(s): [self.scan_steps(code, s, held[id(s)], shared, carries[id(s)], parity, i) for i in range(width)]
            for s, shared in zip(self.scans, self.shared, strict=True)
        }
        base = {key: code.local(value[0].ty.dtype, width, "base") for key, value in bases.items()}
        for key, value in bases.items():
            for lane in range(width):
                code.store(base[key], value[lane], i64(lane))
        with code.loop(self.steps, "step", "unrolled") as (step, body):
            position = body.bind(add(at, step), self.over)

            def element(here: Scope, emit: Emit, lane: Expr) -> None:
                for s in self.scans:
                    own = tirx.BufferLoad(held[id(s)], [add(mul(step, i64(width)), lane)])
                    before = tirx.BufferLoad(base[id(s)], [lane])
                    here.held[id(s)] = holding(here.bind(combine(s.op, before, own)))
                self.kernel.store_all(here, lambda code, place, coords, value: emit(place, value))

            with body.when(position < end) as inside:
                here = scope.inner(inside, {self.over: position})
                self.each_column(here, start, whole, self.later_loads, element)

    def take(self, scope: Scope, start: Expr, whole: Expr, at: Expr, end: Expr, held: dict[int, Any]) -> None:
        """A thread's steps of a tile; past the end there is nothing."""
        width = self.width
        with scope.code.loop(self.steps, "step", "unrolled") as (step, body):
            position = body.bind(add(at, step), self.over)
            for s in self.scans:
                for lane in range(width):
                    body.store(held[id(s)], nothing(s, value_type(s)), add(mul(step, i64(width)), i64(lane)))

            def element(here: Scope, emit: Emit, lane: Expr) -> None:
                for s in self.scans:
                    value = as_type(here.value(s.arg), value_type(s))
                    here.code.store(held[id(s)], value, add(mul(step, i64(width)), lane))

            with body.when(position < end) as inside:
                here = scope.inner(inside, {self.over: position})
                self.each_column(here, start, whole, self.first_loads, element)

    def scan_steps(self, code: Code, s: Scan, held: Any, shared: Any, carry: Any, parity: Expr, lane: int) -> Expr:
        """Scans a thread's steps in place, in one of its columns; gives what comes before them."""
        kind = value_type(s)
        so_far: Expr = nothing(s, kind)
        for i in range(self.steps - 1, -1, -1) if self.reverse else range(self.steps):
            place = i64(i * self.width + lane)
            after = code.bind(combine(s.op, so_far, tirx.BufferLoad(held, [place])))
            code.store(held, so_far if s.exclusive else after, place)
            so_far = after
        code.store(shared, so_far, self.slot(parity, self.warp, lane))
        synchronize(code)
        whole: Expr = nothing(s, kind)
        mine = code.local(kind, 1, "earlier")
        for rank in range(self.warps - 1, -1, -1) if self.reverse else range(self.warps):
            with code.when(tirx.EQ(self.warp, i64(rank))) as own:
                own.store(mine, whole, i64(0))
            part = tirx.BufferLoad(shared, [self.slot(parity, i64(rank), lane)])
            whole = code.bind(combine(s.op, whole, part))
        before = as_type(tirx.BufferLoad(carry, [i64(lane)]), kind)
        found = code.bind(combine(s.op, before, tirx.BufferLoad(mine, [i64(0)])), "base")
        self.advance(code, s, carry, as_type(whole, carry_type(s)), i64(lane))
        return found


def _store(here: Scope, place: Memory, value: Expr) -> None:
    place.store(here.code, here.coords, value)


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
