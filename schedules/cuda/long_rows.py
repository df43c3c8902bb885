"""Rows of any length, over any dims: a team of threads goes over a row once for each pass, from memory each time."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import Pass, accumulator, holding, plan_passes, reduced
from opsgen.schedules.common.schedule import Config, Context
from opsgen.schedules.common.search import Search, is_search

from . import half_forms
from .kernels import DeviceKernel, combine, strided
from .registers import Emit
from .row_forms import roots
from .strip import Strips, aligned, readable, width_for
from .team import RowTeam, parts_of


class LongRows:
    """A kernel in which ``size`` threads of a block of ``threads`` have a row."""

    def __init__(self, context: Context, config: Config, part: str, size: int, threads: int) -> None:
        self.group = context.group
        self.config = config
        self.kernel = kernel = DeviceKernel(context, part, threads)
        half_forms.use(kernel)
        self.passes = plan_passes(kernel, self.group)
        self.extents = {d: kernel.extent(d) for d in (*self.group.space, *self.group.over)}
        self.last = self.group.over[-1]
        self.dims = {*self.group.space, *self.group.over}
        self.at_hand = frozenset(id(r) for r in self.group.reductions)
        self.team = RowTeam(kernel, size)
        self.single = len(self.group.over) == 1
        self.rows = kernel.code.bind(product_of(self.extents, self.group.space), "rows")
        self.length = kernel.code.bind(product_of(self.extents, self.group.over), "length")
        self.width, self.flag = self.plan_width() if self.single else (1, None)

    def plan_width(self) -> tuple[int, Expr | None]:
        nodes = [n for p in self.passes for n in roots(p)]
        stored = [m for p in self.passes for n in p.stores for m in self.kernel.destinations(n)]
        places = [m for m in stored if m.dims[-1:] == (self.last,)]
        memories = [*readable(self.kernel, nodes, self.last, self.dims, self.at_hand).values(), *places]
        width = width_for(memories)
        return width, aligned(self.kernel.code, memories, width) if width > 1 else None

    def build(self, when: tuple[Comparison, ...], choice: str) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, team = self.kernel, self.team
        with team.tasks(ceildiv(self.rows, team.teams)) as (task, body):
            row = body.bind(add(mul(task, i64(team.teams)), team.number), "row")
            if team.teams == 1:
                self.row(body, row)
            else:
                with body.when(row < self.rows) as inside:
                    self.row(inside, row)
        blocks = (cost.elements(kernel.graph, self.group.space) + (team.teams - 1)) // team.teams
        return kernel.launch_on(blocks, when, per_sm=self.config["per_sm"], choice=choice)

    def row(self, code: Code, row: Expr) -> None:
        group = self.group
        scope = Scope(self.kernel, code, unflatten(code, row, group.space, self.extents))
        for number, p in enumerate(self.passes):
            self.run(scope, number, p)
        totals = [n for n in group.stored if set(n.dims) == set(group.space)]
        values = [(node, scope.value(node)) for node in totals]
        with code.when(tirx.EQ(self.team.rank, i64(0))) as first:
            self.kernel.store_values(scope.inner(first, {}), values)

    def run(self, scope: Scope, number: int, p: Pass) -> None:
        """One pass over a row; what it found is held for the next."""
        code, team = scope.code, self.team
        state: dict[int, Any] = {
            id(r): Search.start(code, r) if is_search(r) else accumulator(code, r, 1, number) for r in p.reductions
        }

        def element(here: Scope, emit: Emit) -> None:
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
                loads = readable(self.kernel, roots(p), self.last, self.dims, self.at_hand)
                strips = Strips(self.kernel, self.last, self.width, self.flag, loads)
                strips.run(scope.inner(body, {}), start, self.length, element)
            else:
                here = scope.inner(body, unflatten(body, start, self.group.over, self.extents))
                element(here, lambda place, value: place.store(here.code, here.coords, value))
        for r in p.reductions:
            parts = team.total(code, r, parts_of(code, r, state[id(r)]))
            scope.held[id(r)] = holding(parts[1] if is_search(r) else parts[0])
