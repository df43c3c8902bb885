"""Reductions of operands that are contiguous along a result dim: threads of a warp have neighbouring columns, and the
warps of a block share the rows."""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.tensor import Tensor, walk
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Expr, ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import Pass, accumulator, holding, plan_passes, reduced
from opsgen.schedules.common.schedule import Config, Context
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, combine, strided, synchronize
from .team import ColumnTeam, parts_of


def along_columns(kernel: DeviceKernel, group: Group) -> str | None:
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


class Columns:
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
