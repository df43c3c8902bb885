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
from opsgen.lowering.statements import Code, Expr, add, i64, mul, sub
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
from .scatter_sources import MOST, Sources
from .strip import Emit, Strips, aligned, readable, width_for

_REGISTERS = 16
"""Columns of a thread, about."""


class _Wide:
    """A kernel in which the threads of a block share the columns of a destination."""

    def __init__(self, context: Context, config: Config, part: str, threads: int, column: str) -> None:
        self.group = group = context.group
        self.config = config
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
        with kernel.tasks(product_of(self.extents, self.rows)) as (task, body):
            scope = Scope(kernel, body, unflatten(body, task, self.rows, self.extents))
            count = self.sources.count(scope)
            self.sources.sort(scope, count)
            columns = self.extents[self.column]
            with strided(body, i64(0), columns, i64(self.tile), "first") as (first, inner):
                self.columns(scope.inner(inner, {}), first, columns, count)
            synchronize(body)  # before what the threads share is written for the next task
        return kernel.launch_on(cost.elements(graph, self.rows), when, per_sm=self.config["per_sm"])

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

        def take(here: Scope) -> None:
            over_outer(here, list(self.scatter.rest), self.extents, add_up)

        def add_up(at: Scope) -> None:
            for start, fits, total in zip(starts, whole, totals, strict=True):
                self.strip(at, start, end, fits, self.loads, lambda lane, total=total: self.adder(total, lane))

        self.sources.in_order(scope, count, take)
        for start, fits, total in zip(starts, whole, totals, strict=True):
            self.strip(scope, start, end, fits, self.later, lambda lane, total=total: self.giver(total, lane))

    def fits(self, start: Expr, end: Expr) -> Expr:
        inside = start + i64(self.width) <= end
        return inside if self.flag is None else tirx.And(tirx.NE(self.flag, tirx.IntImm("int32", 0)), inside)

    def strip(self, scope: Scope, start: Expr, end: Expr, whole: Expr, loads: dict[int, Any], each: Any) -> None:
        """``each(lane)`` gives what is done with an element of a strip: it takes the scope and what stores."""
        strips = Strips(self.kernel, self.column, self.width, self.flag, loads if self.width > 1 else {})
        with scope.code.either(tirx.NE(whole, tirx.IntImm("int32", 0))) as (full, rest):

            def element(here: Scope, emit: Emit) -> None:
                each(sub(here.coords[self.column], start))(here, emit)

            strips._at_once(scope, full, start, element)
            with rest.loop(self.width, "lane", "unrolled") as (lane, body):
                position = body.bind(add(start, lane), self.column)
                with body.when(position < end) as inside:
                    here = scope.inner(inside, {self.column: position}, {})
                    each(lane)(here, lambda place, value: place.store(here.code, here.coords, value))

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

        with code.either(count <= i64(MOST)) as (few, many):
            with strided(few, kernel.thread, count, step, "i") as (i, body):
                here = scope.inner(body, {})
                number = body.bind(tirx.BufferLoad(self.sources.sorted, [i]), "source")
                over_outer(self.at(here, body, number), list(s.rest), self.extents, take)
            with strided(many, kernel.thread, self.sources.all, step, "i") as (i, body):
                here = self.at(scope.inner(body, {}), body, i)
                with body.when(self.sources.goes_here(scope, here)) as inside:
                    over_outer(here.inner(inside, {}), list(s.rest), self.extents, take)

        def join(a: Expr, b: Expr) -> Expr:
            return combine(s.node.op, a, b)

        inclusive = team.warp_scan(code, code.bind(tirx.BufferLoad(total, [i64(0)])), join)
        warp = team.of(code, inclusive, i64(WARP - 1))
        _, whole = team.across(code, warp, self.start, join, i64(0), "totals")
        with code.when(tirx.EQ(kernel.thread, i64(0))) as one:
            value = one.bind(as_type(whole, neutral(s.node).ty.dtype), s.node.op)
            kernel.store_all(Scope(kernel, one, scope.coords, held={id(s.node): holding(value)}))
        synchronize(code)  # before the totals of the next column

    def at(self, scope: Scope, code: Code, number: Expr) -> Scope:
        return scope.inner(code, unflatten(code, number, self.scatter.source, self.extents))


def build(context: Context, config: Config) -> list[Launch]:
    """The kernels that find each destination's sources, and those that add them up, by how many columns there are."""
    group, graph = context.group, context.partition.graph
    assert group.scatter is not None
    columns = cost.elements(graph, group.scatter.columns)
    found = scatter_lists.launches(context, config)
    few = config["few_columns"]
    conditions = undecided((columns, "<=", few))
    if conditions is not None:
        found.append(_Narrow(context, config, "narrow", config["narrow_threads"]).build(conditions))
    column = innermost(DeviceKernel(context, "trial", WARP), group)
    if column is None:
        return found
    small = _Wide(context, config, "wide", config["wide_threads"], column)
    conditions = undecided((columns, ">", few), (graph.extent(column), "<=", small.tile))
    if conditions is not None:
        found.append(small.build(conditions))
    conditions = undecided((columns, ">", few), (graph.extent(column), ">", small.tile))
    if conditions is not None:
        found.append(_Wide(context, config, "wider", config["wider_threads"], column).build(conditions))
    return found


SCHEDULE = Schedule(
    name="cuda.scatter",
    target="cuda",
    pattern="scatter",
    region="any scatter",
    knobs={
        "list_threads": (256,),
        "narrow_threads": (128, 256),
        "few_columns": (16, 32),
        "wide_threads": (64, 128),
        "wider_threads": (256, 512),
        "per_sm": (16, 32),
    },
    serves=lambda group, arch: True,
    default=lambda group, arch: {
        "list_threads": 256,
        "narrow_threads": 128,
        "few_columns": 32,
        "wide_threads": 64,
        "wider_threads": 256,
        "per_sm": 32,
    },
    build=build,
)
