"""Scatters on x86: the sources are put on a list for each destination, from the last to the first, and then each
destination goes along its list, its columns in vectors.

So a destination's sources are taken in their order, whoever does it, nobody waits for anybody, and every element of the
result is written once. Few columns take another way (direct_scatter.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.analysis.scatter import Scatter
from opsgen.dsl.dtypes import DTYPES
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import combine, holding, neutral, over_outer
from opsgen.schedules.common.scatters import at_source, contribution, destination, innermost
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import direct_scatter
from .kernels import new_kernel
from .vectors import REGISTER_FLOATS, strips, vectorizable

TASKS = 512
"""Into how many pieces the results are cut at most."""

_CLEARED = 16384
"""Heads of lists that one task empties."""


@dataclass(frozen=True)
class Lists:
    """``heads`` has, for each destination, the number of its first source, or -1; ``following`` has, for each source,
    that of the next one that goes to the same destination."""

    heads: Memory
    following: Memory

    @staticmethod
    def of(kernel: Kernel, group: Group, scatter: Scatter) -> Lists:
        def space(name: str, dims: tuple[str, ...]) -> Memory:
            extents = {d: kernel.graph.extent(d) for d in dims}
            return kernel.workspace(f"{name}{group.index}", extents, DTYPES["int64"])

        heads = space("heads", (*scatter.batch, *scatter.destinations))
        return Lists(heads, space("following", (*scatter.batch, *scatter.source)))


class _Build:
    def __init__(self, context: Context, config: Config) -> None:
        self.group = context.group
        assert self.group.scatter is not None
        self.scatter: Scatter = self.group.scatter
        self.config = config
        self.kernel: Kernel = new_kernel(context, "lists")
        s = self.scatter
        self.extents = {d: self.kernel.extent(d) for d in (*s.space, *s.source, *s.rest)}
        self.lists = Lists.of(self.kernel, self.group, s)
        column = innermost(self.kernel, self.group)
        assert column is not None
        self.column = column
        self.outer = tuple(d for d in s.columns if d != self.column)
        wide = vectorizable((s.value, *s.others, *self.group.stored))
        register = REGISTER_FLOATS[context.arch]
        self.steps = (register * config["registers"], register, 1) if wide else (1,)
        self.start = neutral(s.node)

    def build(self, context: Context) -> Launch:
        graph, s = self.kernel.graph, self.scatter
        self.clear()
        elements = cost.elements(graph, (*s.batch, *s.source))
        self.kernel.cost(elements, elements * 4, self.config["flops_per_ns"])
        self.link()
        moved = cost.elements(graph, (*s.batch, *s.node.over, *s.columns)) + cost.elements(graph, s.space)
        self.kernel.cost(cost.flops(graph, context.computed()), moved, self.config["flops_per_ns"])
        self.collect()
        return self.kernel.launch()

    def clear(self) -> None:
        """Empties all lists."""
        code, s = self.kernel.code, self.scatter
        heads = code.bind(product_of(self.extents, (*s.batch, *s.destinations)), "heads")
        self.kernel.cost(
            cost.elements(self.kernel.graph, ()), cost.elements(self.kernel.graph, (*s.batch, *s.destinations)), 8
        )
        with code.loop(code.bind(ceildiv(heads, _CLEARED), "pieces"), "task", "parallel") as (task, body):
            first = body.bind(task * i64(_CLEARED), "first")
            with body.loop(tirx.Min(i64(_CLEARED), sub(heads, first)), "i") as (i, inner):
                inner.store(self.lists.heads.buffer, i64(-1), add(first, i))

    def link(self) -> None:
        """Puts each source in front of its destination's list, the last one first."""
        code, s = self.kernel.code, self.scatter
        batches = code.bind(product_of(self.extents, s.batch), "batches")
        sources = code.bind(product_of(self.extents, s.source), "sources")
        with code.loop(batches, "batch", "parallel") as (batch, body):
            scope = Scope(self.kernel, body, unflatten(body, batch, s.batch, self.extents))
            with body.loop(sources, "back") as (back, inner):
                number = inner.bind(sources - i64(1) - back, "source")
                here = at_source(scope, inner, s, number, self.extents)
                coords, valid = destination(here, s)
                with inner.when(valid) as found:
                    place = found.bind(self.lists.heads.offset({**here.coords, **coords}), "place")
                    head = found.bind(tirx.BufferLoad(self.lists.heads.buffer, [place]), "head")
                    found.store(self.lists.following.buffer, head, self.lists.following.offset(here.coords))
                    found.store(self.lists.heads.buffer, number, place)

    def collect(self) -> None:
        """Goes along the list of each destination, for each block of columns."""
        code, s = self.kernel.code, self.scatter
        rows = product_of(self.extents, (*s.batch, *s.destinations, *self.outer))
        block = self.config["block"]
        blocks = code.bind(ceildiv(self.extents[self.column], block), "blocks")
        pieces = code.bind(mul(rows, blocks), "pieces")
        chunk = code.bind(tirx.Max(ceildiv(pieces, TASKS), i64(1)), "chunk")
        tasks = code.bind(tirx.truncdiv(pieces + chunk - i64(1), chunk), "tasks")
        with code.loop(tasks, "task", "parallel") as (task, body):
            first = body.bind(task * chunk, "first")
            with body.loop(tirx.Min(chunk, sub(pieces, first)), "piece") as (i, inner):
                piece = inner.bind(first + i, "piece")
                row = inner.bind(tirx.truncdiv(piece, blocks), "row")
                dims = (*s.batch, *s.destinations, *self.outer)
                scope = Scope(self.kernel, inner, unflatten(inner, row, dims, self.extents))
                self.block(scope, inner.bind(tirx.truncmod(piece, blocks) * i64(block), "start"))

    def block(self, scope: Scope, start: Expr) -> None:
        """A block of columns of a destination."""
        code, column = scope.code, self.column
        length = code.bind(tirx.Min(i64(self.config["block"]), self.extents[column] - start), "length")

        def step(at: Code, position: Expr, kind: str, width: int, stage: int) -> None:
            self.strip(scope, at, position, width)

        strips(code, start, length, self.steps, step)

    def strip(self, scope: Scope, code: Code, column: Expr, width: int) -> None:
        """``width`` columns of a destination."""
        s, kind = self.scatter, "vectorized" if width > 1 else "serial"
        total = code.local(self.start.ty.dtype, width, s.node.op)
        with code.loop(width, "j", kind) as (j, lanes):
            lanes.store(total, self.start, j)
        cursor = code.local("int64", 1, "cursor")
        code.store(cursor, tirx.BufferLoad(self.lists.heads.buffer, [self.lists.heads.offset(scope.coords)]), i64(0))
        body = Code()
        number = body.bind(tirx.BufferLoad(cursor, [i64(0)]), "source")
        here = at_source(scope, body, s, number, self.extents)
        following = tirx.BufferLoad(self.lists.following.buffer, [self.lists.following.offset(here.coords)])
        body.store(cursor, following, i64(0))

        def element(at: Scope) -> None:
            with at.code.loop(width, "j", kind) as (j, lanes):
                inside = at.inner(lanes, {self.column: add(column, j)})
                value = contribution(inside, s)
                lanes.store(total, combine(s.node.op, tirx.BufferLoad(total, [j]), value), j)

        over_outer(here, list(s.rest), self.extents, element)
        code.emit(tirx.While(tirx.BufferLoad(cursor, [i64(0)]) >= i64(0), body.block()))
        with code.loop(width, "j", kind) as (j, lanes):
            held = {id(s.node): holding(tirx.BufferLoad(total, [j]))}
            self.kernel.store_all(scope.inner(lanes, {self.column: add(column, j)}, held))


def build(context: Context, config: Config) -> list[Launch]:
    """A kernel for few columns, and one for many."""
    assert context.group.scatter is not None
    columns = cost.elements(context.partition.graph, context.group.scatter.columns)
    few, limit = columns.value, direct_scatter.COLUMNS
    found = []
    if few is None or few <= limit:
        (launch,) = direct_scatter.build(context, config)
        found.append(replace(launch, when=() if few is not None else ((columns, "<=", limit),)))
    if few is None or few > limit:
        launch = _Build(context, config).build(context)
        found.append(replace(launch, when=() if few is not None else ((columns, ">", limit),)))
    return found


SCHEDULE = Schedule(
    name="x86.scatter",
    target="x86",
    pattern="scatter",
    region="any scatter on avx2 and avx512",
    knobs={"registers": (2, 4), "block": (256, 1024), "flops_per_ns": (8,)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"registers": 4, "block": 1024, "flops_per_ns": 8},
    build=build,
)
