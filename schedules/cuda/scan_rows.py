"""Scans on NVIDIA GPUs along the dim in which memory is contiguous: a row, or a chunk of one, a team of threads.

A tile is what the team takes at once: for each warp several strips of 16 bytes a lane, one after the other. Lanes scan
their own strips, then their totals, then warps theirs; what comes before the tile is carried along.
"""

from __future__ import annotations

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
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, combine, strided, synchronize
from .scan_team import Emit, ScanTeam
from .strip import Strips, aligned, readable, width_for

CHUNKS = 1024
"""Most chunks of a row."""


class Rows:
    """A kernel in which ``team`` threads have a row, or with ``chunked`` one of its chunks."""

    def __init__(
        self, context: Context, config: Config, part: str, team: int, threads: int, chunked: bool = False
    ) -> None:
        self.group = group = context.group
        self.config = config
        self.kernel = kernel = DeviceKernel(context, part, threads)
        (self.over,) = group.over
        self.scans = group.scans
        self.reverse = group.scans[0].reverse
        self.outer = tuple(d for d in group.space if d != self.over)
        self.extents = {d: kernel.extent(d) for d in group.space}
        self.length = self.extents[self.over]
        self.team = ScanTeam(kernel, team, self.reverse)
        self.rows = kernel.code.bind(product_of(self.extents, self.outer), "rows")
        dims = set(group.space)
        arguments = [s.arg for s in self.scans]
        self.first_loads = readable(kernel, arguments, self.over, dims)
        self.later_loads = readable(kernel, group.stored, self.over, dims, {id(s): None for s in self.scans})
        places = [p for n in group.stored for p in kernel.destinations(n) if p.dims[-1:] == (self.over,)]
        memories = [*self.first_loads.values(), *self.later_loads.values(), *places]
        self.width = width_for(memories)
        self.strips = max(config["strips"] // len(self.scans), 1)
        self.flag = aligned(kernel.code, memories, self.width) if self.width > 1 else None
        self.tile = team * self.width * self.strips
        self.chunked = chunked
        if chunked:
            chunk = ceildiv(ceildiv(self.length, CHUNKS), self.tile)
            self.chunk = kernel.code.bind(mul(chunk, i64(self.tile)), "chunk_length")
            self.spaces = [self._space(i, s) for i, s in enumerate(self.scans)]

    def _space(self, number: int, scan: Scan) -> Any:
        graph = self.kernel.graph
        elements = cost.elements(graph, self.outer) * CHUNKS
        name = f"totals{self.group.index}_{number}"
        return self.kernel.workspace(name, {"(total)": elements}, DTYPES[carry_type(scan)]).buffer

    # -- kernels -------------------------------------------------------------------------------------------------------
    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel that makes the results, for calls that meet ``when``."""
        kernel, team, graph = self.kernel, self.team, self.kernel.graph
        rows = cost.elements(graph, self.outer)
        if self.chunked:
            with kernel.tasks(mul(self.rows, i64(CHUNKS))) as (task, body):
                self.chunk_task(body, task, self.results)
            return kernel.launch_on(rows * CHUNKS, when)
        with kernel.tasks(ceildiv(self.rows, team.teams)) as (task, body):
            row = body.bind(add(mul(task, i64(team.teams)), team.number), "row")
            if team.teams == 1:
                self.row(body, row)
                self.meet(body)
            else:
                with body.when(row < self.rows) as inside:
                    self.row(inside, row)
        return kernel.launch_on((rows + (team.teams - 1)) // team.teams, when, per_sm=self.config["per_sm"])

    def build_totals(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel that takes the totals of all chunks but the last of each row."""
        with self.kernel.tasks(mul(self.rows, i64(CHUNKS))) as (task, body):
            self.chunk_task(body, task, self.total)
        return self.kernel.launch_on(cost.elements(self.kernel.graph, self.outer) * CHUNKS, when)

    def row(self, code: Code, row: Expr) -> None:
        scope = Scope(self.kernel, code, unflatten(code, row, self.outer, self.extents))
        self.tiles(scope, i64(0), self.length, {id(s): nothing(s, carry_type(s)) for s in self.scans})

    def chunk_task(self, code: Code, task: Expr, run: Any) -> None:
        row = code.bind(tirx.truncdiv(task, i64(CHUNKS)), "row")
        number = code.bind(tirx.truncmod(task, i64(CHUNKS)), "number")
        chunks = code.bind(tirx.truncdiv(self.length + self.chunk - i64(1), self.chunk), "chunks")
        with code.when(number < chunks) as inside:
            place = inside.bind(sub(chunks - i64(1), number) if self.reverse else number, "chunk")
            first = inside.bind(mul(place, self.chunk), "first")
            end = inside.bind(tirx.Min(add(first, self.chunk), self.length), "end")
            scope = Scope(self.kernel, inside, unflatten(inside, row, self.outer, self.extents))
            run(scope, inside.bind(mul(row, i64(CHUNKS)), "line"), number, first, end)
            self.meet(inside)

    def meet(self, code: Code) -> None:
        """Before what the threads share is written for the next task."""
        if self.team.warps > 1:
            synchronize(code)

    # -- chunks --------------------------------------------------------------------------------------------------------
    def total(self, scope: Scope, line: Expr, number: Expr, first: Expr, end: Expr) -> None:
        """The totals of a chunk, for those that come after it."""
        code = scope.code
        sums = {id(s): self.variable(code, s, carry_type(s), "sum") for s in self.scans}
        start = code.bind(add(first, mul(self.kernel.thread, i64(self.width))), "start")
        loads = self.first_loads if self.width > 1 else {}
        strips = Strips(self.kernel, self.over, self.width, self.flag, loads)
        with strided(code, start, end, i64(self.team.size * self.width), "at") as (at, body):
            part = {id(s): self.variable(body, s, value_type(s), "part") for s in self.scans}

            def element(here: Scope, emit: Emit) -> None:
                for s in self.scans:
                    self.advance(here.code, s, part[id(s)], as_type(here.value(s.arg), value_type(s)))

            strips.run(scope.inner(body, {}), at, end, element)
            for s in self.scans:
                value = as_type(tirx.BufferLoad(part[id(s)], [i64(0)]), carry_type(s))
                self.advance(body, s, sums[id(s)], value)
        for i, s in enumerate(self.scans):
            mine = code.bind(tirx.BufferLoad(sums[id(s)], [i64(0)]), "mine")
            whole = self.whole(code, s, mine, i)
            with code.when(tirx.EQ(self.kernel.thread, i64(0))) as one:
                one.store(self.spaces[i], whole, add(line, number))

    def results(self, scope: Scope, line: Expr, number: Expr, first: Expr, end: Expr) -> None:
        """The results of a chunk: what comes before it is all the totals before its own."""
        code = scope.code
        starts = {}
        for i, s in enumerate(self.scans):
            mine = self.variable(code, s, carry_type(s), "earlier")
            rank = code.bind(add(mul(self.team.rank, i64(WARP)), self.team.order), "place")
            each = code.bind(ceildiv(number, self.team.size), "each")  # neighbours, so that the order stays
            with code.loop(each, "i") as (j, body):
                at = body.bind(add(mul(rank, each), j), "at")
                with body.when(at < number) as inside:
                    self.advance(inside, s, mine, tirx.BufferLoad(self.spaces[i], [add(line, at)]))
            starts[id(s)] = self.whole(code, s, code.bind(tirx.BufferLoad(mine, [i64(0)])), i)
        self.tiles(scope, first, end, starts)

    def whole(self, code: Code, s: Scan, mine: Expr, number: int) -> Expr:
        """What all threads of the team make, in each of them."""
        team, empty = self.team, nothing(s, carry_type(s))
        inclusive = team.warp_scan(code, mine, lambda a, b: combine(s.op, a, b))
        warp = team.of(code, inclusive, i64(WARP - 1))
        return team.across(code, warp, empty, lambda a, b: combine(s.op, a, b), i64(0), f"whole{number}")[1]

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def variable(self, code: Code, s: Scan, dtype: str, name: str) -> Any:
        found = code.local(dtype, 1, name)
        code.store(found, nothing(s, dtype), i64(0))
        return found

    def advance(self, code: Code, s: Scan, variable: Any, value: Expr) -> None:
        code.store(variable, combine(s.op, tirx.BufferLoad(variable, [i64(0)]), value), i64(0))

    def tiles(self, scope: Scope, first: Expr, end: Expr, starts: dict[int, Expr]) -> None:
        """Positions ``first`` to ``end - 1``, a tile at a time."""
        code = scope.code
        carries: dict[int, Any] = {}
        for s in self.scans:
            carries[id(s)] = code.local(carry_type(s), 1, "carry")
            code.store(carries[id(s)], starts[id(s)], i64(0))
        count = code.bind(ceildiv(sub(end, first), self.tile), "tiles")
        with code.loop(count, "tile") as (t, body):
            number = sub(sub(count, i64(1)), t) if self.reverse else t
            at = body.bind(add(first, mul(number, i64(self.tile))), "at")
            self.one_tile(scope.inner(body, {}), at, end, carries, body.bind(t & i64(1), "parity"))

    def one_tile(self, scope: Scope, at: Expr, end: Expr, carries: dict[int, Any], parity: Expr) -> None:
        code, team = scope.code, self.team
        segment = add(at, mul(team.warp, i64(WARP * self.width * self.strips)))
        first = code.bind(add(segment, mul(team.lane, i64(self.width))), "first")
        starts = [code.bind(add(first, i64(WARP * self.width * j)), "start") for j in range(self.strips)]
        whole = [code.bind(tirx.Cast("int32", self.fits(start, end)), "whole") for start in starts]
        held = [{id(s): code.local(value_type(s), self.width, "held") for s in self.scans} for _ in starts]
        totals = [{id(s): self.variable(code, s, value_type(s), "total") for s in self.scans} for _ in starts]
        for j, start in enumerate(starts):
            self.take(scope, start, end, whole[j], held[j], totals[j])
        bases = [dict[int, Expr]() for _ in starts]
        for i, s in enumerate(self.scans):
            for j, base in enumerate(self.scan_totals(code, s, [t[id(s)] for t in totals], carries[id(s)], parity, i)):
                bases[j][id(s)] = base
        for j, start in enumerate(starts):
            self.give(scope, start, end, whole[j], held[j], bases[j])

    def fits(self, start: Expr, end: Expr) -> Expr:
        inside = start + i64(self.width) <= end
        return inside if self.flag is None else tirx.And(tirx.NE(self.flag, tirx.IntImm("int32", 0)), inside)

    def scan_totals(self, code: Code, s: Scan, totals: list[Any], carry: Any, parity: Expr, number: int) -> list[Expr]:
        """What comes before each of a thread's strips in the whole row; what is carried goes past the tile."""
        team, kind, empty = self.team, value_type(s), nothing(s, value_type(s))

        def join(a: Expr, b: Expr) -> Expr:
            return combine(s.op, a, b)

        order = range(self.strips - 1, -1, -1) if self.reverse else range(self.strips)
        found: dict[int, Expr] = {}
        sofar: Expr = empty
        for j in order:
            inclusive = team.warp_scan(code, code.bind(tirx.BufferLoad(totals[j], [i64(0)])), join)
            found[j] = code.bind(join(sofar, team.exclusive(code, inclusive, empty)))
            sofar = code.bind(join(sofar, team.of(code, inclusive, i64(WARP - 1))))
        earlier, whole = team.across(code, sofar, empty, join, parity, f"tile{number}")
        before = code.bind(join(as_type(tirx.BufferLoad(carry, [i64(0)]), kind), earlier), "before")
        self.advance(code, s, carry, as_type(whole, carry_type(s)))
        return [code.bind(join(before, found[j]), "base") for j in range(self.strips)]

    # -- strips --------------------------------------------------------------------------------------------------------
    def take(
        self, scope: Scope, start: Expr, end: Expr, whole: Expr, held: dict[int, Any], totals: dict[int, Any]
    ) -> None:
        """What the scans read of a strip. A whole one is scanned in its registers; of others there is the total."""
        code, lanes = scope.code, range(self.width)
        strips = Strips(self.kernel, self.over, self.width, self.flag, self.first_loads if self.width > 1 else {})
        with code.either(tirx.NE(whole, tirx.IntImm("int32", 0))) as (full, rest):

            def element(here: Scope, emit: Emit) -> None:
                lane = sub(here.coords[self.over], start)
                for s in self.scans:
                    here.code.store(held[id(s)], as_type(here.value(s.arg), value_type(s)), lane)

            strips._at_once(scope, full, start, element)
            for s in self.scans:
                so_far: Expr = nothing(s, value_type(s))
                for lane in reversed(lanes) if self.reverse else lanes:
                    value = full.bind(tirx.BufferLoad(held[id(s)], [i64(lane)]))
                    after = value if so_far is None else full.bind(combine(s.op, so_far, value))
                    full.store(held[id(s)], so_far if s.exclusive else after, i64(lane))
                    so_far = after
                full.store(totals[id(s)], so_far, i64(0))

            def single(here: Scope) -> None:
                for s in self.scans:
                    self.advance(here.code, s, totals[id(s)], as_type(here.value(s.arg), value_type(s)))

            self.one_by_one(scope, rest, start, end, single)

    def give(
        self, scope: Scope, start: Expr, end: Expr, whole: Expr, held: dict[int, Any], bases: dict[int, Expr]
    ) -> None:
        """The results of a strip."""
        strips = Strips(self.kernel, self.over, self.width, self.flag, self.later_loads if self.width > 1 else {})
        with scope.code.either(tirx.NE(whole, tirx.IntImm("int32", 0))) as (full, rest):

            def element(here: Scope, emit: Emit) -> None:
                lane = sub(here.coords[self.over], start)
                for s in self.scans:
                    value = combine(s.op, bases[id(s)], tirx.BufferLoad(held[id(s)], [lane]))
                    here.held[id(s)] = holding(here.bind(value))
                self.kernel.store_all(here, lambda code, place, coords, value: emit(place, value))

            strips._at_once(scope, full, start, element)
            running = {}
            for s in self.scans:
                running[id(s)] = rest.local(value_type(s), 1, "running")
                rest.store(running[id(s)], bases[id(s)], i64(0))

            def single(here: Scope) -> None:
                for s in self.scans:
                    before = here.bind(tirx.BufferLoad(running[id(s)], [i64(0)]))
                    after = here.bind(combine(s.op, before, as_type(here.value(s.arg), value_type(s))))
                    here.code.store(running[id(s)], after, i64(0))
                    here.held[id(s)] = holding(before if s.exclusive else after)
                self.kernel.store_all(here)

            self.one_by_one(scope, rest, start, end, single)

    def one_by_one(self, scope: Scope, code: Code, start: Expr, end: Expr, single: Any) -> None:
        """The elements of a strip that is not whole."""
        left = code.bind(tirx.Min(i64(self.width), sub(end, start)), "left")
        with code.loop(tirx.Max(left, i64(0)), "i") as (i, body):
            lane = sub(sub(left, i64(1)), i) if self.reverse else i
            single(scope.inner(body, {self.over: body.bind(add(start, lane), self.over)}, {}))
