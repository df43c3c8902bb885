"""Row reductions on NVIDIA GPUs: reductions over the same dims and the maps between them, a row a team of threads.

A short row has a warp, a longer one a block. Where a row is gone over several times, what is read more than once is
kept in shared memory if it fits, and so are expensive values (exponentials); a row that is too long is read again, from
the second cache if it is not longer still. Where operands are contiguous along a result dim instead, threads of a warp
have neighbouring columns, and the warps of a block share the rows.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import float32
from opsgen.dsl.tensor import Tensor, walk
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import Pass, accumulator, holding, plan_passes, reduced
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.schedules.common.search import Search, is_search, searches
from opsgen.targets.cuda import ARCHS, WARP

from .conditions import undecided
from .kernels import DeviceKernel, combine, strided, synchronize
from .strip import Emit, Kept, Strips, aligned, is_float32, readable, width_for
from .team import ColumnTeam, RowTeam, parts_of

_SCRATCH = 4096
"""Bytes of shared memory of a block that are not for rows."""


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for rows of every length, each with the lengths that it is for."""
    group, graph = context.group, context.partition.graph
    if not searches(group):
        column = _along_columns(DeviceKernel(context, "columns", WARP), group)
        if column is not None:
            return [_Columns(context, config, column).build()]
    length = cost.elements(graph, group.over)
    short = config["warp_length"]
    room = ARCHS[context.arch].shared_per_block - _SCRATCH
    found: list[Launch] = []

    def attempt(part: str, size: int, threads: int, keep: bool, *when: Comparison) -> None:
        conditions = undecided(*when)
        if conditions is not None:
            found.append(_Rows(context, config, part, size, threads, keep).build(conditions))

    trial = _Rows(context, config, "trial", WARP, WARP, True)
    slots = len(trial.slots)
    fits = room // (4 * slots) // 8 * 8 if slots else 0
    teams = config["warp_threads"] // WARP
    attempt("warp", WARP, config["warp_threads"], fits >= teams * short, (length, "<=", short))
    if fits > short:
        size = config["block_threads"]
        attempt("block", size, size, True, (length, ">", short), (length, "<=", fits))
    size = config["long_threads"]
    attempt("long", size, size, False, (length, ">", max(fits, short)))
    return found


def _along_columns(kernel: DeviceKernel, group: Group) -> str | None:
    """The result dim along which most of what is reduced is contiguous, if there is more of it than along a reduced
    dim. What has more dims counts for more."""
    votes: dict[str, int] = {}

    def visit(node: Tensor) -> None:
        memory = kernel.memory(node)
        if memory is not None and set(memory.dims) & set(group.over):
            votes[memory.dims[-1]] = votes.get(memory.dims[-1], 0) + len(memory.dims)

    walk(tuple(group.reductions), visit)
    inside = sum(v for d, v in votes.items() if d in group.over)
    best = max((d for d in votes if d in group.space), key=lambda d: votes[d], default=None)
    return best if best is not None and votes[best] > inside else None


class _Rows:
    """A kernel in which ``size`` threads have a row; ``keep``: what is needed more than once stays in shared memory."""

    def __init__(self, context: Context, config: Config, part: str, size: int, threads: int, keep: bool) -> None:
        self.group = context.group
        self.config = config
        self.kernel = kernel = DeviceKernel(context, part, threads)
        self.passes = plan_passes(kernel, self.group)
        self.extents = {d: kernel.extent(d) for d in (*self.group.space, *self.group.over)}
        self.last = self.group.over[-1]
        self.dims = {*self.group.space, *self.group.over}
        self.team = RowTeam(kernel, size)
        self.single = len(self.group.over) == 1
        self.slots = self.plan_slots() if keep and self.single else []
        self.rows = kernel.code.bind(product_of(self.extents, self.group.space), "rows")
        self.length = kernel.code.bind(product_of(self.extents, self.group.over), "length")
        self.width, self.flag = self.plan_width()
        if self.slots:
            self.pitch = kernel.code.bind(mul(ceildiv(self.length, self.width), i64(self.width)), "pitch")
        self.at_hand: dict[int, Memory | None] = {}

    # -- what is kept, what is moved at once ---------------------------------------------------------------------------
    def roots(self, p: Pass) -> list[Tensor]:
        return [*(r.arg for r in p.reductions), *(k.node for k in p.keeps), *p.stores]

    def plan_slots(self) -> list[tuple[int, Tensor]]:
        """What is kept of a row: the pass that does it, and the node; rows read by several passes, and what is
        expensive."""
        slots: list[tuple[int, Tensor]] = []
        at_hand: dict[int, Memory | None] = {id(r): None for p in self.passes for r in p.reductions}
        needs: list[set[int]] = []
        for p in self.passes:
            rows = readable(self.kernel, self.roots(p), self.last, self.dims, at_hand)
            needs.append({key for key, m in rows.items() if set(m.dims) == self.dims})
            at_hand |= {id(k.node): None for k in p.keeps}
        nodes: dict[int, Tensor] = {}
        walk((*self.group.reductions, *self.group.stored), lambda n: nodes.update({id(n): n}))
        for i, p in enumerate(self.passes):
            again = set[int]().union(*needs[i + 1 :]) & needs[i]
            earlier = set[int]().union(*needs[:i])
            slots += [(i, nodes[key]) for key in nodes if key in again - earlier and is_float32(nodes[key])]
            slots += [(i, k.node) for k in p.keeps if is_float32(k.node)]
        return slots

    def plan_width(self) -> tuple[int, Expr | None]:
        if not self.single or searches(self.group):
            return 1, None
        roots = [n for p in self.passes for n in self.roots(p)]
        at_hand: dict[int, Memory | None] = {id(r): None for r in self.group.reductions}
        stored = [m for p in self.passes for n in p.stores for m in self.kernel.destinations(n)]
        places = [m for m in stored if m.dims[-1:] == (self.last,)]
        # Reductions that are at hand hide what lies behind them: each pass's own roots are looked at too.
        memories = [*readable(self.kernel, roots, self.last, self.dims, at_hand).values(), *places]
        width = width_for(memories)
        return width, aligned(self.kernel.code, memories, width) if width > 1 else None

    # -- code ----------------------------------------------------------------------------------------------------------
    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, team = self.kernel, self.team
        buffer = kernel.dynamic("float32") if self.slots else None
        with kernel.tasks(ceildiv(self.rows, team.teams)) as (task, body):
            row = body.bind(add(mul(task, i64(team.teams)), team.number), "row")
            if team.teams == 1:
                self.row(body, row, buffer)
                if team.waits:
                    synchronize(body)  # before what the threads share is written for the next row
            else:
                with body.when(row < self.rows) as inside:
                    self.row(inside, row, buffer)
        graph = kernel.graph
        rows = cost.elements(graph, self.group.space)
        blocks = (rows + (team.teams - 1)) // team.teams
        padded = (cost.elements(graph, self.group.over) + (self.width - 1)) // self.width * self.width
        shared = padded * (4 * len(self.slots) * team.teams) if self.slots else None
        return kernel.launch_on(blocks, when, shared, self.config["per_sm"])

    def row(self, code: Code, row: Expr, buffer: Any) -> None:
        group = self.group
        scope = Scope(self.kernel, code, unflatten(code, row, group.space, self.extents))
        self.at_hand = {}
        for number, p in enumerate(self.passes):
            self.run(scope, number, p, buffer)
        totals = [n for n in group.stored if set(n.dims) == set(group.space)]
        values = [(node, scope.value(node)) for node in totals]
        with code.when(tirx.EQ(self.team.rank, i64(0))) as first:
            self.kernel.store_values(scope.inner(first, {}), values)

    def run(self, scope: Scope, number: int, p: Pass, buffer: Any) -> None:
        """One pass over a row; what it found is held for the next."""
        code, team = scope.code, self.team
        state: dict[int, Any] = {
            id(r): Search.start(code, r) if is_search(r) else accumulator(code, r, 1, number) for r in p.reductions
        }
        keeps = {id(node): self.slot(node, buffer, code) for i, node in self.slots if i == number}
        nodes = {id(node): node for i, node in self.slots if i == number}

        def element(here: Scope, emit: Emit) -> None:
            for key, slot in keeps.items():
                emit(slot, here.value(nodes[key]))
            for r in p.reductions:
                value = reduced(here.value(r.arg), r)
                found = state[id(r)]
                if isinstance(found, Search):
                    found.step(here, r, value)
                else:
                    here.code.store(found, combine(r.op, tirx.BufferLoad(found, [i64(0)]), value), i64(0))
            values = [(node, here.value(node)) for node in p.stores]
            self.kernel.store_values(here, values, lambda at, place, coords, value: emit(place, value))

        first = code.bind(mul(team.rank, i64(self.width)), "first")
        with strided(code, first, self.length, i64(team.size * self.width), "start") as (start, body):
            if self.single:
                loads = readable(self.kernel, self.roots(p), self.last, self.dims, self.at_hand)
                strips = Strips(self.kernel, self.last, self.width, self.flag, loads)
                strips.run(scope.inner(body, {}), start, self.length, element)
            else:
                here = scope.inner(body, unflatten(body, start, self.group.over, self.extents))
                element(here, lambda place, value: place.store(here.code, here.coords, value))
        for r in p.reductions:
            parts = team.total(code, r, parts_of(code, r, state[id(r)]))
            scope.held[id(r)] = holding(parts[1] if is_search(r) else parts[0])
            self.at_hand[id(r)] = None
        self.at_hand |= keeps

    def slot(self, node: Tensor, buffer: Any, code: Code) -> Kept:
        """The row in shared memory for a node."""
        number = next(i for i, (_, n) in enumerate(self.slots) if n is node)
        base = mul(add(mul(self.team.number, i64(len(self.slots))), i64(number)), self.pitch)
        return Kept("kept", (self.last,), float32, buffer, {self.last: i64(1)}, code.bind(base, "base"))


class _Columns:
    """A kernel for operands that are contiguous along the result dim ``column``."""

    def __init__(self, context: Context, config: Config, column: str) -> None:
        self.group = context.group
        self.config = config
        self.column = column
        self.kernel = DeviceKernel(context, "columns", config["column_threads"])
        self.passes = plan_passes(self.kernel, self.group)
        self.extents = {d: self.kernel.extent(d) for d in (*self.group.space, *self.group.over)}
        self.team = ColumnTeam(self.kernel)

    def build(self) -> Launch:
        kernel, group, team = self.kernel, self.group, self.team
        code, columns = kernel.code, self.extents[self.column]
        outer = tuple(d for d in group.space if d != self.column)
        in_row = code.bind(ceildiv(columns, WARP), "column_blocks")
        length = code.bind(product_of(self.extents, group.over), "length")
        with kernel.tasks(mul(product_of(self.extents, outer), in_row)) as (task, body):
            row = body.bind(tirx.truncdiv(task, in_row), "row")
            wanted = body.bind(tirx.truncmod(task, in_row) * i64(WARP) + team.column, "wanted")
            # Threads past the last column do its work too, for all must come by the barriers, and store nothing.
            column = body.bind(tirx.Min(wanted, columns - i64(1)), self.column)
            scope = Scope(kernel, body, {**unflatten(body, row, outer, self.extents), self.column: column})
            for p in self.passes:
                self.run(scope, p, length, wanted < columns)
            totals = [n for n in group.stored if set(n.dims) == set(group.space)]
            values = [(node, scope.value(node)) for node in totals]
            own = tirx.And(tirx.EQ(team.rank, i64(0)), wanted < columns)
            with body.when(own) as first:
                kernel.store_values(scope.inner(first, {}), values)
            synchronize(body)
        graph = kernel.graph
        blocks = cost.elements(graph, outer) * ((graph.extent(self.column) + (WARP - 1)) // WARP)
        return kernel.launch_on(blocks, per_sm=self.config["per_sm"])

    def run(self, scope: Scope, p: Pass, length: Expr, inside: Expr) -> None:
        """One pass down the columns."""
        code, team = scope.code, self.team
        state = {id(r): accumulator(code, r, 1, 0) for r in p.reductions}
        with strided(code, team.rank, length, i64(team.size), "position") as (position, body):
            here = scope.inner(body, unflatten(body, position, self.group.over, self.extents))
            for r in p.reductions:
                value, buffer = reduced(here.value(r.arg), r), state[id(r)]
                body.store(buffer, combine(r.op, tirx.BufferLoad(buffer, [i64(0)]), value), i64(0))
            values = [(node, here.value(node)) for node in p.stores]
            with body.when(inside) as own:
                self.kernel.store_values(here.inner(own, {}), values)
        for r in p.reductions:
            scope.held[id(r)] = holding(team.total(code, r, parts_of(code, r, state[id(r)]))[0])


SCHEDULE = Schedule(
    name="cuda.row_reduction",
    target="cuda",
    pattern="row_reduction",
    region="any row reduction",
    knobs={
        "warp_length": (512, 1024, 2048),
        "warp_threads": (128, 256),
        "block_threads": (256, 512, 1024),
        "long_threads": (512, 1024),
        "column_threads": (256, 512),
        "per_sm": (16, 32),
    },
    serves=lambda group, arch: True,
    default=lambda group, arch: {
        "warp_length": 1024,
        "warp_threads": 128,
        "block_threads": 512,
        "long_threads": 512,
        "column_threads": 256,
        "per_sm": 32,
    },
    build=build,
)
