"""Row reductions on x86: reductions over the same dims and the maps between them, a row at a time while it is in cache.

Reductions that need each other's results run in passes over the row. An expensive value (an exponential) that a later
pass needs too is kept, in the row of the result or of scratch memory. While a row's results are made, the next row is
fetched. Where the operands are contiguous along the reduced dim, vectors run along it and end in a tree; where they are
contiguous along a result dim, column_reduction.py takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Held, Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import Pass, accumulator, combine, holding, over_outer, plan_passes, reduced
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.schedules.common.search import Search, is_search, searches

from .column_reduction import along_columns, build_columns
from .kernels import new_kernel
from .streaming import LINE, STREAM_BYTES, Lines, Streaming, end
from .vectors import fold, strips, widths

CHUNKS = 256
"""Into how many pieces the rows are cut at most; each has its own scratch row."""

_CHUNK, _ELEMENT = "(chunk)", "(element)"
"""The dims of scratch memory; no dim of an op can have such a name."""


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for the group."""
    group = context.group
    kernel = new_kernel(context, "row_reduction")
    passes = plan_passes(kernel, group)
    over_elements = cost.elements(kernel.graph, (*group.space, *group.over))
    kernel.cost(cost.flops(kernel.graph, context.computed()), over_elements, config["flops_per_ns"])
    column = None if searches(group) else along_columns(kernel, group)
    if column is None:
        _build_rows(kernel, context, config, passes)
    else:
        build_columns(kernel, context, column, passes)
    return [kernel.launch()]


def _build_rows(kernel: Kernel, context: Context, config: Config, passes: list[Pass]) -> None:
    group = context.group
    steps = (1,) if searches(group) else widths(context.arch, group, config["registers"])
    code = kernel.code
    extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
    rows = code.bind(product_of(extents, group.space), "rows")
    normal = _Rows(kernel, group, passes, steps, None)
    streaming = Streaming(
        kernel, [n for p in passes for n in p.stores], (*group.space, *group.over), code, config["stream_bytes"]
    )
    streams = code.bind(streaming.chosen) if streaming.places and len(steps) > 1 else None
    chunk = code.bind(tirx.Max(ceildiv(rows, CHUNKS), i64(1)), "chunk")
    chunks = tirx.truncdiv(rows + chunk - i64(1), chunk)
    with code.loop(chunks, "task", "parallel") as (task, body):
        first = body.bind(task * chunk, "first")
        count = body.bind(tirx.Min(chunk, rows - first), "count")
        if streams is None:
            normal.build(body, task, first, count)
        else:
            with body.either(streams) as (past, through):
                _Rows(kernel, group, passes, steps, streaming).build(past, task, first, count)
                end(past)
                normal.build(through, task, first, count)


class _Rows:
    """The rows of a task, one after the other. With ``streaming``, results that it names go past the caches."""

    def __init__(
        self, kernel: Kernel, group: Group, passes: list[Pass], steps: tuple[int, ...], streaming: Streaming | None
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.passes = passes
        self.steps = steps
        self.streaming = streaming
        self.extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
        self.kept = self.places_of_kept()
        self.read = self.rows_read()
        self.written = [] if streaming else self.rows_of([n for p in passes for n in p.stores])

    # -- memory --------------------------------------------------------------------------------------------------------
    def is_row(self, memory: Memory) -> bool:
        """Whether it has an element for each element of the row, contiguous along it."""
        group = self.group
        return set(memory.dims) == set(group.space) | set(group.over) and memory.dims[-1] == group.over[-1]

    def rows_of(self, nodes: list[Tensor]) -> list[Memory]:
        return [m for n in nodes for m in self.kernel.destinations(n) if self.is_row(m)]

    def rows_read(self) -> list[Memory]:
        """The rows that a row is computed from."""
        found: list[Memory] = []
        stack: list[Tensor] = [*self.group.reductions, *self.group.stored]
        seen: set[int] = set()
        while stack:
            n = stack.pop()
            if id(n) in seen:
                continue
            seen.add(id(n))
            memory = self.kernel.memory(n)
            if memory is None:
                stack.extend(n.children())
            elif self.is_row(memory) and all(memory is not m for m in found):
                found.append(memory)
        return found

    def places_of_kept(self) -> dict[int, Memory]:
        """Where kept values lie: in the row of a result that is stored when they are needed for the last time (it will
        be in the cache anyway), or else in scratch memory of the chunk. In scratch, too, where results go past the
        caches, where a result overwrites a parameter, whose old value may be needed until the last pass, and where a
        position is read after others of the row were overwritten."""
        length = Extent.const(1)
        for d in self.group.over:
            length = length * self.kernel.graph.extent(d)
        padded = (length + 15) // 16 * 16  # rows of two threads share no cache line
        apart = self.streaming is not None or any(r.updates is not None for r in self.kernel.graph.results)
        places: dict[int, Memory] = {}
        for kept in (k for p in self.passes for k in p.keeps):
            dtype = compute_type(kept.node.dtype)
            stores = [] if apart or kept.elsewhere else [s for p in self.passes[kept.last :] for s in p.stores]
            taken = list(places.values())
            free = [m for m in self.rows_of(stores) if m.dtype == dtype and all(m is not t for t in taken)]
            name = f"scratch{self.group.index}_{len(places)}"
            dims = {_CHUNK: Extent.const(CHUNKS), _ELEMENT: padded}
            places[id(kept.node)] = free[0] if free else self.kernel.workspace(name, dims, dtype)
        return places

    def position_of_kept(self, memory: Memory, task: Expr, coords: Mapping[str, Expr]) -> Mapping[str, Expr]:
        if _CHUNK not in memory.dims:
            return coords
        position: Expr = i64(0)
        for d in self.group.over:
            position = add(mul(position, self.extents[d]), coords[d])
        return {_CHUNK: task, _ELEMENT: position}

    # -- code ----------------------------------------------------------------------------------------------------------
    def build(self, body: Code, task: Expr, first: Expr, count: Expr) -> None:
        """Rows ``first`` to ``first + count - 1``."""
        with body.loop(count, "row") as (i, code):
            row = code.bind(first + i, "row")
            scope = Scope(self.kernel, code, unflatten(code, row, self.group.space, self.extents))
            following = unflatten(code, add(row, i64(1)), self.group.space, self.extents)
            for p in self.passes:
                self.run(scope, p, task, following)
            totals = [n for n in self.group.stored if set(n.dims) == set(self.group.space)]
            self.kernel.store_values(scope, [(node, scope.value(node)) for node in totals])

    def run(self, scope: Scope, p: Pass, task: Expr, following: Mapping[str, Expr]) -> None:
        """One pass over a row; what it found is held for the next."""
        code = scope.code
        *outer, last = self.group.over
        state: dict[int, Any] = {}
        for r in p.reductions:
            each = [accumulator(code, r, w, i) for i, w in enumerate(self.steps)] if not is_search(r) else None
            state[id(r)] = Search.start(code, r) if each is None else each

        def along(at: Scope) -> None:
            def step(inner: Code, position: Expr, kind: str, width: int, stage: int) -> None:
                start = {**at.coords, last: position}
                if width > 1:
                    self.prefetch(inner, p, start, following, width)
                streamed = self.streaming if width > 1 and p.stores else None
                lines = Lines(streamed, inner, width) if streamed is not None else None
                with inner.loop(width, "lane", kind) as (lane, lanes):
                    here = at.inner(lanes, {last: add(position, lane)})
                    self.element(here, p, task, lane, stage, state)
                    values = [(node, here.value(node)) for node in p.stores]
                    self.kernel.store_values(here, values, lines.sink(lane) if lines else None)
                if lines is not None:
                    lines.flush(start)

            length, head = self.extents[last], i64(0)
            if self.streaming is not None and p.stores:
                head = self.streaming.head(at.code, {**at.coords, last: i64(0)}, length)
                with at.code.loop(head, "single") as (i, single):
                    step(single, i, "serial", 1, len(self.steps) - 1)
            strips(at.code, head, sub(length, head), self.steps, step)

        over_outer(scope, outer, self.extents, along)
        for r in p.reductions:
            found = state[id(r)]
            if isinstance(found, Search):
                value = found.found(code, r)
            else:
                value = fold(code, found, self.steps, partial(combine, r.op), r.op)
            scope.held[id(r)] = holding(value)
        for kept in p.keeps:
            scope.held[id(kept.node)] = self.load_kept(kept.node, task, scope.coords)

    def load_kept(self, node: Tensor, task: Expr, row: Mapping[str, Expr]) -> Held:
        """Kept is this row alone: at a position in another one the value is computed."""
        memory = self.kept[id(node)]

        def load(coords: Mapping[str, Expr]) -> Expr | None:
            if any(coords[d] is not row[d] for d in self.group.space):
                return None
            return memory.load(self.position_of_kept(memory, task, coords))

        return load

    def element(self, here: Scope, p: Pass, task: Expr, lane: Expr, stage: int, state: Mapping[int, Any]) -> None:
        """What a pass reduces and keeps at one position (or one vector of them)."""
        for kept in p.keeps:
            memory, value = self.kept[id(kept.node)], here.value(kept.node)
            memory.store(here.code, self.position_of_kept(memory, task, here.coords), value)
        for r in p.reductions:
            value = reduced(here.value(r.arg), r)
            found = state[id(r)]
            if isinstance(found, Search):
                found.step(here, r, value)
            else:
                buffer = found[stage]
                here.code.store(buffer, combine(r.op, tirx.BufferLoad(buffer, [lane]), value), lane)

    def prefetch(
        self, code: Code, p: Pass, start: Mapping[str, Expr], following: Mapping[str, Expr], width: int
    ) -> None:
        """The first of several passes fetches the lines that the last will write, the last those of the next row:
        the hardware does not look ahead past the end of a row, and reading would wait for writing to end."""
        if p is self.passes[-1]:
            for memory in self.read:
                _prefetch(code, "opsgen_prefetch", memory, {**start, **following}, width)
        if p is self.passes[0] and p is not self.passes[-1]:
            for memory in self.written:
                _prefetch(code, "opsgen_prefetch_write", memory, start, width)


def _prefetch(code: Code, function: str, memory: Memory, coords: Mapping[str, Expr], width: int) -> None:
    offset = code.bind(memory.offset(coords), "ahead")
    for i in range(0, width, max(LINE // memory.dtype.bytes, 1)):
        code.call(function, tirx.address_of(tirx.BufferLoad(memory.buffer, [offset + i64(i)])))


SCHEDULE = Schedule(
    name="x86.row_reduction",
    target="x86",
    pattern="row_reduction",
    region="any row reduction on avx2 and avx512",
    knobs={"registers": (1, 2, 4), "flops_per_ns": (8,), "stream_bytes": STREAM_BYTES},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"registers": 4, "flops_per_ns": 8, "stream_bytes": STREAM_BYTES[0]},
    build=build,
)
