"""Scans on x86: running sums, products and extremes along a dim, and the maps around them.

Where memory is contiguous along the dim, a register of neighbours is scanned at once, by shifts, and meets what is
carried along; where it is contiguous along another dim, each lane carries its own column. Where there are few lines
(rows, or blocks of columns), each is cut into chunks, whose totals are taken first. How is decided from the sizes
alone, so that sums are the same from run to run and for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Scan
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Held, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import combine, holding
from opsgen.schedules.common.scans import along_columns, as_type, carry_type, nothing, value_type
from opsgen.schedules.common.schedule import Config, Context, Schedule

from .kernels import new_kernel
from .vectors import REGISTER_FLOATS, strips, vectorizable

CHUNKED_LINES = 64
"""Fewer lines than this are cut into chunks, as many in all."""

_IN_REGISTERS = frozenset({"float32", "float64", "int64", "int32"})
"""Types of which a register is scanned at once (targets/x86/scans.py)."""


@dataclass(frozen=True)
class _Chunks:
    """How lines are cut: ``count`` chunks a line, each of ``length`` elements but the last."""

    count: Expr
    length: Expr

    @staticmethod
    def of(code: Code, lines: Expr, extent: Expr, shortest: int, multiple: int) -> _Chunks:
        wanted = tirx.Max(tirx.truncdiv(i64(CHUNKED_LINES), tirx.Max(lines, i64(1))), i64(1))
        most = tirx.Max(tirx.truncdiv(extent, i64(shortest)), i64(1))
        count = code.bind(tirx.Min(wanted, most), "wanted")
        length = tirx.truncdiv(extent + count - i64(1), count)
        length = code.bind(tirx.Max(mul(ceildiv(length, multiple), i64(multiple)), i64(1)), "chunk_length")
        return _Chunks(code.bind(tirx.truncdiv(extent + length - i64(1), length), "chunks"), length)


class _Build:
    """The kernel. A task is a chunk of a line; a line is a row, or a block of ``lanes`` columns."""

    def __init__(self, context: Context, config: Config) -> None:
        self.group = group = context.group
        self.kernel: Kernel = new_kernel(context, "scan")
        (self.over,) = group.over
        self.column = along_columns(self.kernel, group)
        self.extents = {d: self.kernel.extent(d) for d in group.space}
        register = REGISTER_FLOATS[context.arch]
        wide = vectorizable(tuple(group.stored))
        self.steps: tuple[int, ...]
        if self.column is not None:
            self.lanes = register * config["registers"]
            self.steps = (self.lanes, register, 1) if wide else (1,)
        else:
            self.lanes = 1
            scanned = all(value_type(s) in _IN_REGISTERS for s in group.scans)
            self.steps = (register, 1) if wide and scanned else (1,)
        self.outer = tuple(d for d in group.space if d not in (self.over, self.column))
        code = self.kernel.code
        rows = product_of(self.extents, self.outer)
        self.blocks = code.bind(ceildiv(self.extents[self.column], self.lanes), "blocks") if self.column else i64(1)
        self.lines = code.bind(mul(rows, self.blocks), "lines")
        shortest = max(config["shortest"] // self.lanes, 1)
        self.chunks = _Chunks.of(code, self.lines, self.extents[self.over], shortest, register)
        self.totals = [self._space(i, s) for i, s in enumerate(group.scans)]

    def _space(self, number: int, scan: Scan) -> Any:
        """Memory for the totals of all chunks that other chunks of their line follow."""
        name = f"totals{self.group.index}_{number}"
        elements = Extent.const(CHUNKED_LINES * self.lanes)
        return self.kernel.workspace(name, {"(total)": elements}, DTYPES[carry_type(scan)]).buffer

    def build(self, context: Context, config: Config) -> list[Launch]:
        code, graph = self.kernel.code, self.kernel.graph
        elements = cost.elements(graph, self.group.space)
        flops = cost.flops(graph, context.computed())
        last = code.bind(self.chunks.count - i64(1), "last")
        divisor = code.bind(tirx.Max(last, i64(1)), "early_chunks")  # of bound dims it may be known to be 0
        self.kernel.cost(flops, elements, config["flops_per_ns"])
        early = code.bind(tirx.Max(mul(self.lines, last), i64(0)), "early")
        with code.loop(early, "task", "parallel") as (task, body):
            line = body.bind(tirx.truncdiv(task, divisor), "line")
            chunk = body.bind(tirx.truncmod(task, divisor), "chunk")
            self.task(body, line, chunk, True)
        self.kernel.cost(flops, elements, config["flops_per_ns"])
        with code.loop(code.bind(mul(self.lines, self.chunks.count), "tasks"), "task", "parallel") as (task, body):
            count = body.bind(tirx.Max(self.chunks.count, i64(1)), "count")
            line, chunk = body.bind(tirx.truncdiv(task, count), "line"), body.bind(tirx.truncmod(task, count), "chunk")
            self.task(body, line, chunk, False)
        return [self.kernel.launch()]

    def task(self, code: Code, line: Expr, chunk: Expr, totals: bool) -> None:
        """One chunk: its totals alone, or its results."""
        first = code.bind(mul(chunk, self.chunks.length), "first")
        length = code.bind(tirx.Min(self.chunks.length, sub(self.extents[self.over], first)), "length")
        row = code.bind(tirx.truncdiv(line, self.blocks), "row") if self.column else line
        scope = Scope(self.kernel, code, unflatten(code, row, self.outer, self.extents))
        place = code.bind(add(mul(line, self.chunks.count), chunk), "place")
        if self.column is None:
            self.chunk(scope, first, length, place, chunk, i64(0), 1, totals)
            return
        start = code.bind(tirx.truncmod(line, self.blocks) * i64(self.lanes), "column")
        count = code.bind(tirx.Min(i64(self.lanes), self.extents[self.column] - start), "columns")

        def columns(inner: Code, position: Expr, kind: str, width: int, stage: int) -> None:
            here = Scope(self.kernel, inner, scope.coords)
            self.chunk(here, first, length, place, chunk, position, width, totals, inner.bind(position - start, "lane"))

        strips(code, start, count, self.steps, columns)

    def chunk(
        self,
        scope: Scope,
        first: Expr,
        length: Expr,
        place: Expr,
        chunk: Expr,
        column: Expr,
        width: int,
        totals: bool,
        lane: Expr | None = None,
    ) -> None:
        """``width`` lanes, each with its own column from ``column`` on, or the row."""
        code, kind = scope.code, "vectorized" if width > 1 else "serial"
        lane = i64(0) if lane is None else lane
        carries = {}
        for scan, space in zip(self.group.scans, self.totals, strict=True):
            carry = carries[id(scan)] = code.local(carry_type(scan), width, "carry")
            with code.loop(width, "j", kind) as (j, lanes):
                lanes.store(carry, nothing(scan, carry_type(scan)), j)
            if totals:
                continue
            with code.loop(chunk, "earlier") as (i, body):
                at = body.bind(add(mul(sub(add(place, i), chunk), i64(self.lanes)), lane), "at")
                with body.loop(width, "j", kind) as (j, lanes):
                    total = tirx.BufferLoad(space, [add(at, j)])
                    lanes.store(carry, combine(scan.op, tirx.BufferLoad(carry, [j]), total), j)
        step = self.neighbours if self.column is None else self.columns

        def advance(inner: Code, done: Expr, kind: str, taken: int, stage: int) -> None:
            count = taken if self.column is None else 1
            position = inner.bind(self.position(add(first, done), count), self.over)
            step(scope.inner(inner, {}), position, column, max(taken, width), carries, totals)

        strips(code, i64(0), length, self.steps if self.column is None else (1,), advance)
        if totals:
            for scan, space in zip(self.group.scans, self.totals, strict=True):
                with code.loop(width, "j", kind) as (j, lanes):
                    at = add(add(mul(place, i64(self.lanes)), lane), j)
                    lanes.store(space, tirx.BufferLoad(carries[id(scan)], [j]), at)

    def position(self, number: Expr, count: int) -> Expr:
        """The lowest position of ``count`` elements, of which ``number`` come before."""
        if not self.group.scans[0].reverse:
            return number
        return self.extents[self.over] - number - i64(count)

    # -- one step ------------------------------------------------------------------------------------------------------
    def columns(
        self, scope: Scope, position: Expr, column: Expr, width: int, carries: dict[int, Any], totals: bool
    ) -> None:
        """One element of each of ``width`` columns."""
        code = scope.code
        assert self.column is not None
        with code.loop(width, "j", "vectorized" if width > 1 else "serial") as (j, lanes):
            here = scope.inner(lanes, {self.over: position, self.column: add(column, j)}, {})
            self.single(here, j, carries, totals)

    def single(self, here: Scope, lane: Expr, carries: dict[int, Any], totals: bool) -> None:
        """One element of a line that carries its own values."""
        for scan in self.group.scans:
            carry, kind = carries[id(scan)], carry_type(scan)
            before = here.bind(tirx.BufferLoad(carry, [lane]), "before")
            value = as_type(as_type(here.value(scan.arg), value_type(scan)), kind)
            after = here.code.bind_apart(combine(scan.op, before, value), "after")
            here.code.store(carry, after, lane)
            here.held[id(scan)] = holding(as_type(before if scan.exclusive else after, value_type(scan)))
        if not totals:
            self.kernel.store_all(here)

    def neighbours(
        self, scope: Scope, position: Expr, column: Expr, width: int, carries: dict[int, Any], totals: bool
    ) -> None:
        """``width`` elements of a row."""
        code = scope.code
        if width == 1:
            self.single(scope.inner(code, {self.over: position}, {}), i64(0), carries, totals)
            return
        taken = {id(s): code.local(value_type(s), width, "taken") for s in self.group.scans}
        with code.loop(width, "lane", "vectorized") as (lane, lanes):
            here = scope.inner(lanes, {self.over: add(position, lane)})
            for scan in self.group.scans:
                lanes.store(taken[id(scan)], as_type(here.value(scan.arg), value_type(scan)), lane)
        bases: dict[int, Callable[[Expr], Held]] = {}
        for scan in self.group.scans:
            bases[id(scan)] = self.register(code, scan, taken[id(scan)], carries[id(scan)], width)
        if totals:
            return
        with code.loop(width, "lane", "vectorized") as (lane, lanes):
            held = {key: base(lane) for key, base in bases.items()}
            self.kernel.store_all(scope.inner(lanes, {self.over: add(position, lane)}, held))

    def register(self, code: Code, scan: Scan, taken: Any, carry: Any, width: int) -> Callable[[Expr], Held]:
        """Scans a register, and adds its total to what is carried; gives each lane's value."""
        kind, all_lanes = value_type(scan), tirx.Ramp(i64(0), i64(1), width)
        vector, way = f"{kind}x{width}", "suffix" if scan.reverse else "prefix"

        def call(name: str) -> None:
            found = tirx.call_pure_extern(
                vector, f"opsgen_{way}_{name}_{scan.op}_{vector}", tirx.BufferLoad(taken, [all_lanes])
            )
            code.store(taken, found, all_lanes)

        before = code.bind(as_type(tirx.BufferLoad(carry, [i64(0)]), kind), "before")
        call("of")
        total = as_type(tirx.BufferLoad(taken, [i64(0 if scan.reverse else width - 1)]), carry_type(scan))
        code.store(carry, combine(scan.op, tirx.BufferLoad(carry, [i64(0)]), total), i64(0))
        if scan.exclusive:
            call("before")
        return lambda lane: holding(combine(scan.op, before, tirx.BufferLoad(taken, [lane])))


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for the group."""
    return _Build(context, config).build(context, config)


SCHEDULE = Schedule(
    name="x86.scan",
    target="x86",
    pattern="scan",
    region="any scan on avx2 and avx512",
    knobs={"registers": (2, 4), "shortest": (16384, 65536), "flops_per_ns": (8,)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"registers": 4, "shortest": 16384, "flops_per_ns": 8},
    build=build,
)
