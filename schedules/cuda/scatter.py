"""Scatters on NVIDIA GPUs, without atomics on floats: each destination takes its sources in their order.

The sources of each destination are found first (scatter_lists.py). Then a destination has a block: with many columns
each thread has columns of its own and goes over all sources, with few each thread has sources of its own. So sums are
the same from run to run, and every element of the result is written once.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub, truncdiv
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import holding, neutral, over_outer
from opsgen.schedules.common.scans import as_type
from opsgen.schedules.common.scatters import contribution, innermost
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.targets.cuda import WARP

from . import scatter_lists
from .conditions import undecided
from .kernels import DeviceKernel, combine, strided, synchronize
from .scan_team import Emit
from .scatter_sources import Sources
from .strip import Strips, aligned, readable, width_for

_REGISTERS = 16
"""Columns of a thread, about."""

_UNROLL = 2
"""Sources whose columns are on their way at the same time."""


class _Wide:
    """A kernel in which the threads of a block share the columns of a destination."""

    def __init__(self, context: Context, config: Config, part: str, threads: int, column: str) -> None:
        self.group = group = context.group
        self.config = config
        self.threads = threads
        self.kernel = kernel = DeviceKernel(context, part, threads)
        assert group.scatter is not None
        self.scatter = s = group.scatter
        self.column = column
        self.outer = tuple(d for d in s.columns if d != column)
        self.rows = (*s.batch, *s.destinations, *self.outer)
        self.extents = {d: kernel.extent(d) for d in (*s.space, *s.source, *s.rest)}
        self.sources = Sources(kernel)
        self.roots: list[Tensor] = [s.value, *s.others]
        inside = {*s.space, *s.source, *s.rest}
        self.loads = readable(kernel, self.roots, column, inside)
        self.later = readable(kernel, group.stored, column, set(s.space), {id(s.node): None})
        places = [p for n in group.stored for p in kernel.destinations(n) if p.dims[-1:] == (column,)]
        memories = [*self.loads.values(), *self.later.values(), *places]
        self.width = width_for(memories)
        self.strips = max(_REGISTERS // self.width, 1)
        self.flag = aligned(kernel.code, memories, self.width) if self.width > 1 else None
        self.start = neutral(s.node)

    @property
    def tile(self) -> int:
        """Columns that the block takes at once."""
        return self.kernel.threads * self.width * self.strips

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, graph = self.kernel, self.kernel.graph
        columns = self.extents[self.column]
        tiles = kernel.code.bind(ceildiv(columns, self.tile), "tiles")
        rows = kernel.code.bind(product_of(self.extents, self.rows), "rows")
        # Tiles of a row are tasks of their own where there are few rows.
        apart = kernel.code.bind(tirx.Select(rows < i64(self.config["few_rows"]), tiles, i64(1)), "apart")
        with kernel.tasks(mul(rows, apart)) as (task, body):
            row, part = self.row_and_part(body, task, apart)
            scope = Scope(kernel, body, unflatten(body, row, self.rows, self.extents))
            count = self.sources.count(scope)
            self.sources.sort(scope, count)
            first, step = body.bind(part * i64(self.tile), "first"), body.bind(apart * i64(self.tile), "step")
            with strided(body, first, columns, step, "at") as (at, inner):
                self.columns(scope.inner(inner, {}), at, columns, count)
            synchronize(body)  # before what the threads share is written for the next task
        graph_tiles = (graph.extent(self.column) + (self.tile - 1)) // self.tile
        blocks = cost.elements(graph, self.rows) * graph_tiles
        return kernel.launch_on(blocks, when, per_sm=self.config["per_sm"])

    def row_and_part(self, code: Code, task: Expr, apart: Expr) -> tuple[Expr, Expr]:
        """Of a task; a division of 64 bits costs as much as what is done for a destination without sources."""
        row, part = code.local("int64", 1, "row"), code.local("int64", 1, "part")
        code.store(row, task, i64(0))
        code.store(part, i64(0), i64(0))
        with code.when(apart > i64(1)) as cut:
            cut.store(row, tirx.truncdiv(task, apart), i64(0))
            cut.store(part, tirx.truncmod(task, apart), i64(0))
        return code.bind(tirx.BufferLoad(row, [i64(0)])), code.bind(tirx.BufferLoad(part, [i64(0)]))

    def columns(self, scope: Scope, first: Expr, end: Expr, count: Expr) -> None:
        """A tile of columns: each thread has a few strips of neighbours."""
        code = scope.code
        own = add(first, mul(self.kernel.thread, i64(self.width)))
        starts = [code.bind(add(own, i64(self.kernel.threads * self.width * j)), "start") for j in range(self.strips)]
        whole = [code.bind(tirx.Cast("int32", self.fits(start, end)), "whole") for start in starts]
        totals = [code.local(self.start.ty.dtype, self.width, "total") for _ in starts]
        for total in totals:
            for lane in range(self.width):
                code.store(total, self.start, i64(lane))

        # Threads whose strips are whole, or not there at all, need not look at each of them for each source: what they
        # add up for those that are not there is never stored.
        easy: Expr = tirx.NE(whole[0], tirx.IntImm("int32", 0))
        for start, fits in zip(starts[1:], whole[1:], strict=True):
            easy = tirx.And(easy, tirx.Or(tirx.NE(fits, tirx.IntImm("int32", 0)), start >= end))
        easy = code.bind(tirx.Cast("int32", easy), "easy")
        safe = [
            code.bind(tirx.Select(tirx.NE(fits, tirx.IntImm("int32", 0)), start, starts[0]), "safe")
            for start, fits in zip(starts, whole, strict=True)
        ]

        def fast(at: Scope) -> None:
            for start, total in zip(safe, totals, strict=True):
                self.whole_strip(at, at.code, start, self.loads, lambda lane, total=total: self.adder(total, lane))

        def slow(at: Scope) -> None:
            for start, fits, total in zip(starts, whole, totals, strict=True):
                self.strip(at, start, end, fits, self.loads, lambda lane, total=total: self.adder(total, lane))

        def loops(at: Scope, count: Expr, number: Any) -> None:
            def one(body: Code, i: Expr, add_up: Any) -> None:
                here = self.sources.at(at.inner(body, {}), body, number(body, i))
                over_outer(here, list(self.scatter.rest), self.extents, add_up)

            with at.code.either(tirx.NE(easy, tirx.IntImm("int32", 0))) as (quick, other):
                turns = quick.bind(truncdiv(count, _UNROLL), "turns")
                with quick.loop(turns, "turn") as (turn, body):
                    for u in range(_UNROLL):
                        one(body, body.bind(add(turn * i64(_UNROLL), i64(u)), "i"), fast)
                done = quick.bind(turns * i64(_UNROLL), "done")
                with quick.loop(count - done, "left") as (left, body):
                    one(body, body.bind(add(done, left), "i"), fast)
                with other.loop(count, "i") as (i, body):
                    one(body, i, slow)

        self.sources.in_order(scope, count, loops)
        for start, fits, total in zip(starts, whole, totals, strict=True):
            self.strip(scope, start, end, fits, self.later, lambda lane, total=total: self.giver(total, lane))

    def fits(self, start: Expr, end: Expr) -> Expr:
        inside = start + i64(self.width) <= end
        return inside if self.flag is None else tirx.And(tirx.NE(self.flag, tirx.IntImm("int32", 0)), inside)

    def strip(self, scope: Scope, start: Expr, end: Expr, whole: Expr, loads: dict[int, Any], each: Any) -> None:
        """``each(lane)`` gives what is done with an element of a strip: it takes the scope and what stores."""
        with scope.code.either(tirx.NE(whole, tirx.IntImm("int32", 0))) as (full, rest):
            self.whole_strip(scope, full, start, loads, each)
            with rest.loop(self.width, "lane", "unrolled") as (lane, body):
                position = body.bind(add(start, lane), self.column)
                with body.when(position < end) as inside:
                    here = scope.inner(inside, {self.column: position}, {})
                    each(lane)(here, lambda place, value: place.store(here.code, here.coords, value))

    def whole_strip(self, scope: Scope, code: Code, start: Expr, loads: dict[int, Any], each: Any) -> None:
        def element(here: Scope, emit: Emit) -> None:
            each(sub(here.coords[self.column], start))(here, emit)

        strips = Strips(self.kernel, self.column, self.width, self.flag, loads if self.width > 1 else {})
        strips._at_once(scope, code, start, element)

    def adder(self, total: Any, lane: Expr) -> Any:
        def add_one(here: Scope, emit: Emit) -> None:
            value = contribution(here, self.scatter)
            here.code.store(total, combine(self.scatter.node.op, tirx.BufferLoad(total, [lane]), value), lane)

        return add_one

    def giver(self, total: Any, lane: Expr) -> Any:
        def give_one(here: Scope, emit: Emit) -> None:
            here.held[id(self.scatter.node)] = holding(here.bind(tirx.BufferLoad(total, [lane])))
            self.kernel.store_all(here, lambda code, place, coords, value: emit(place, value))

        return give_one


class _Narrow:
    """A kernel in which the threads of a block share the sources of a destination, for each of its columns."""

    def __init__(self, context: Context, config: Config, part: str, threads: int) -> None:
        self.group = context.group
        self.config = config
        self.kernel = DeviceKernel(context, part, threads)
        assert self.group.scatter is not None
        self.scatter = s = self.group.scatter
        self.rows = (*s.batch, *s.destinations)
        self.extents = {d: self.kernel.extent(d) for d in (*s.space, *s.source, *s.rest)}
        self.sources = Sources(self.kernel)
        self.start = neutral(s.node)
        if self.start.ty.dtype == "float32" and s.node.op in ("sum", "prod"):  # many may come to one number
            self.start = tirx.FloatImm("float64", float(self.start.value))

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, s = self.kernel, self.scatter
        with kernel.tasks(product_of(self.extents, self.rows)) as (task, body):
            scope = Scope(kernel, body, unflatten(body, task, self.rows, self.extents))
            count = self.sources.count(scope)
            self.sources.sort(scope, count)
            columns = body.bind(product_of(self.extents, s.columns), "columns")
            with body.loop(columns, "flat") as (flat, inner):
                here = scope.inner(inner, unflatten(inner, flat, s.columns, self.extents))
                self.column(here, count)
            synchronize(body)  # before what the threads share is written for the next task
        return kernel.launch_on(cost.elements(kernel.graph, self.rows), when, per_sm=self.config["per_sm"])

    def column(self, scope: Scope, count: Expr) -> None:
        code, s, kernel, team = scope.code, self.scatter, self.kernel, self.sources.team
        total = code.local(self.start.ty.dtype, 1, "total")
        code.store(total, self.start, i64(0))
        step = i64(kernel.threads)

        def take(at: Scope) -> None:
            value = as_type(contribution(at, s), self.start.ty.dtype)
            at.code.store(total, combine(s.node.op, tirx.BufferLoad(total, [i64(0)]), value), i64(0))

        def step_over(at: Code, total: Expr, number: Any, reached: Any) -> None:
            with strided(at, kernel.thread, total, step, "i") as (i, body):
                here = self.sources.at(scope.inner(body, {}), body, body.bind(number(i), "source"))
                reached(here, lambda inside: over_outer(inside, list(s.rest), self.extents, take))

        def going_here(here: Scope, add_up: Any) -> None:
            with here.code.when(self.sources.goes_here(scope, here)) as inside:
                add_up(here.inner(inside, {}))

        if self.sources.ordered:
            with code.either(count <= i64(self.sources.most)) as (few, many):
                sorted_ones = self.sources.sorted
                step_over(few, count, lambda i: tirx.BufferLoad(sorted_ones, [i]), lambda here, add_up: add_up(here))
                step_over(many, self.sources.all, lambda i: i, going_here)
        else:
            start = code.bind(self.sources.lists.starts.load(scope.coords), "start")
            lying = self.sources.as_it_lies
            step_over(code, count, lambda i: lying(start, i), lambda here, add_up: add_up(here))

        def join(a: Expr, b: Expr) -> Expr:
            return combine(s.node.op, a, b)

        inclusive = team.warp_scan(code, code.bind(tirx.BufferLoad(total, [i64(0)])), join)
        warp = team.of(code, inclusive, i64(WARP - 1))
        _, whole = team.across(code, warp, self.start, join, i64(0), "totals")
        with code.when(tirx.EQ(kernel.thread, i64(0))) as one:
            value = one.bind(as_type(whole, neutral(s.node).ty.dtype), s.node.op)
            kernel.store_all(Scope(kernel, one, scope.coords, held={id(s.node): holding(value)}))
        synchronize(code)  # before the totals of the next column


def build(context: Context, config: Config) -> list[Launch]:
    """The kernels that find each destination's sources, and those that add them up, by how many columns there are."""
    group, graph = context.group, context.partition.graph
    assert group.scatter is not None
    columns = cost.elements(graph, group.scatter.columns)
    found = scatter_lists.launches(context, config)
    few = config["few_columns"]
    heads = cost.elements(graph, (*group.scatter.batch, *group.scatter.destinations))
    each = cost.elements(graph, (*group.scatter.batch, *group.scatter.source)) // (heads + 1)  # there may be none
    for part, threads, when in (
        ("narrow", config["narrow_threads"], (each, "<=", config["few_sources"])),
        ("narrower", config["many_threads"], (each, ">", config["few_sources"])),
    ):
        conditions = undecided((columns, "<=", few), when)
        if conditions is not None:
            found.append(_Narrow(context, config, part, threads).build(conditions))
    column = innermost(DeviceKernel(context, "trial", WARP), group)
    if column is None:
        return found
    length = graph.extent(column)
    above: tuple[Comparison, ...] = ()
    for part in ("warp", "wide", "wider"):
        kernel = _Wide(context, config, part, config[f"{part}_threads"], column)
        # One strip a thread keeps a warp busy; a larger block has several, or comes by more than once.
        limit = kernel.threads * kernel.width if part == "warp" else kernel.tile
        up_to: tuple[Comparison, ...] = ((length, "<=", limit),) if part != "wider" else ()
        conditions = undecided((columns, ">", few), *above, *up_to)
        if conditions is not None:
            found.append(kernel.build(conditions))
        above = ((length, ">", limit),)
    return found


SCHEDULE = Schedule(
    name="cuda.scatter",
    target="cuda",
    pattern="scatter",
    region="any scatter",
    knobs={
        "list_threads": (256,),
        "narrow_threads": (32, 64),
        "many_threads": (256, 512),
        "few_sources": (64, 128),
        "few_columns": (16, 32),
        "warp_threads": (32,),
        "wide_threads": (64,),
        "wider_threads": (64, 128, 256),
        "few_rows": (1024, 4096),
        "per_sm": (16, 32),
    },
    serves=lambda group, arch: True,
    default=lambda group, arch: {
        "list_threads": 256,
        "narrow_threads": 32,
        "many_threads": 256,
        "few_sources": 64,
        "few_columns": 32,
        "warp_threads": 32,
        "wide_threads": 64,
        "wider_threads": 128,
        "few_rows": 1024,
        "per_sm": 32,
    },
    build=build,
)
