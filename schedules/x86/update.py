"""Updates of single rows on x86: each source's number is put at its position, in order, so that the last one stays;
then all sources that find their own number there write their rows, in vectors.

What is done is as much as there are sources, however large the parameter is. The table of numbers is as long as the
parameter has positions, and only touched where sources go.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.scatters import destination
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.schedules.common.updates import winners, wins, written

from .kernels import new_kernel
from .vectors import REGISTER_FLOATS, strips, vectorizable

TASKS = 512
"""Into how many pieces the rows are cut at most."""


class _Build:
    def __init__(self, context: Context, config: Config) -> None:
        assert context.group.update is not None
        self.update = u = context.group.update
        self.config = config
        self.kernel: Kernel = new_kernel(context, "update")
        self.winners = winners(self.kernel, u)
        self.extents = {d: self.kernel.extent(d) for d in u.space}
        self.column = u.columns[-1] if u.columns else None
        self.outer = u.columns[:-1]
        register = REGISTER_FLOATS[context.arch]
        wide = vectorizable((u.value,))
        self.steps = (register * config["registers"], register, 1) if wide else (1,)

    def build(self, context: Context) -> Launch:
        graph, u = self.kernel.graph, self.update
        sources = cost.elements(graph, (*u.scatter.batch, u.source))
        self.kernel.cost(sources, sources * 4, self.config["flops_per_ns"])
        self.number()
        moved = cost.elements(graph, u.space)
        self.kernel.cost(cost.flops(graph, context.computed()), moved * 2, self.config["flops_per_ns"])
        self.write()
        return self.kernel.launch()

    def number(self) -> None:
        """The number of the last source that goes to each position."""
        code, s = self.kernel.code, self.update.scatter
        batches = code.bind(product_of({d: self.kernel.extent(d) for d in s.batch}, s.batch), "batches")
        with code.loop(batches, "batch", "parallel") as (batch, body):
            scope = Scope(self.kernel, body, unflatten(body, batch, s.batch, self.extents))
            with body.loop(self.extents[self.update.source], "source") as (source, inner):
                here = scope.inner(inner, {self.update.source: source})
                place, valid = destination(here, s)
                with inner.when(valid) as found:
                    self.winners.store(found, {**here.coords, **place}, source)

    def write(self) -> None:
        """The rows of the sources whose numbers stayed, each in blocks of columns."""
        code, u = self.kernel.code, self.update
        dims = (*u.scatter.batch, u.source, *self.outer)
        rows = product_of(self.extents, dims)
        block = self.config["block"]
        blocks = i64(1) if self.column is None else code.bind(ceildiv(self.extents[self.column], block), "blocks")
        pieces = code.bind(mul(rows, blocks), "pieces")
        chunk = code.bind(tirx.Max(ceildiv(pieces, TASKS), i64(1)), "chunk")
        tasks = code.bind(tirx.truncdiv(pieces + chunk - i64(1), chunk), "tasks")
        with code.loop(tasks, "task", "parallel") as (task, body):
            first = body.bind(task * chunk, "first")
            with body.loop(tirx.Min(chunk, sub(pieces, first)), "i") as (i, inner):
                piece = inner.bind(first + i, "piece")
                row = inner.bind(tirx.truncdiv(piece, blocks), "row") if self.column is not None else piece
                scope = Scope(self.kernel, inner, unflatten(inner, row, dims, self.extents))
                place, valid = destination(scope, u.scatter)
                with (
                    inner.when(valid) as inside,
                    inside.when(wins(scope, self.winners, place, scope.coords[u.source])) as stays,
                ):
                    here = scope.inner(stays, place)
                    start = stays.bind(tirx.truncmod(piece, blocks) * i64(block), "start")
                    self.row(here, start)

    def row(self, scope: Scope, start: Expr) -> None:
        """A block of columns of a row."""
        if self.column is None:
            self.store(scope)
            return
        code, column = scope.code, self.column
        length = code.bind(tirx.Min(i64(self.config["block"]), self.extents[column] - start), "length")

        def step(at: Code, position: Expr, kind: str, width: int, stage: int) -> None:
            with at.loop(width, "lane", kind) as (lane, lanes):
                self.store(scope.inner(lanes, {column: add(position, lane)}))

        strips(code, start, length, self.steps, step)

    def store(self, scope: Scope) -> None:
        self.kernel.store_values(scope, [(self.update.result, written(scope, self.update))])


SCHEDULE = Schedule(
    name="x86.update",
    target="x86",
    pattern="update",
    region="any update on avx2 and avx512",
    knobs={"registers": (1, 2, 4), "block": (1024, 4096), "flops_per_ns": (8,)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"registers": 2, "block": 4096, "flops_per_ns": 8},
    build=lambda context, config: [_Build(context, config).build(context)],
)
