"""Online chains with few rows on x86: each share of the chain's dim reduces on its own, and shares are merged.

For attention this is decoding: a few queries, and a long cache of keys and values, which is read once. There are two
kernels, `Partial` and `Merge` (split_merge.py). A task of the first does a share of the positions for a few neighbours
along the last batch dim. Tile by tile it takes all of them in turn, so that heads that share keys find them in the
second cache: whether they do is not asked. In a tile

    scores    eight positions at a time, vectors along the sum
    passes    the chain's row links, level by level: vectors along the positions, folded at the end
    values    each contraction link's running values, repaired, plus weights times values: vectors along the columns
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.fusion import FusedChain, ValueLink
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import accumulator, combine, holding, over_outer, reduced
from opsgen.schedules.common.schedule import Config, Context

from .chain_passes import COLUMNS, FLOAT32, Running, load, plan, within
from .dot_products import DotProducts
from .kernels import new_kernel
from .split_shares import CHUNKS, HEADS, Shares, Spaces
from .tile_truth import TileTruth, Truth, where_visible, with_and_without_mask
from .value_tile import value_tile
from .vectors import fold, strips, vectorizable, widths

ROWS = (4, 1)
"""Rows of a register tile of values."""

WIDE = {"avx2": (), "avx512": (128,)}
"""Columns of one with a single row: memory is read in its order, as the hardware foresees."""


@dataclass
class Task:
    """What is the same throughout a task. ``first`` of ``heads`` positions along the last batch dim, which are
    ``batch`` and the following of all batches; ``packed``: where their rows are packed."""

    first: Expr
    heads: Expr
    batch: Expr
    share: Expr
    packed: Expr
    running: Running
    factors: dict[int, Any]
    buffers: list[Any]


class Partial:
    """The kernel that reduces each share."""

    def __init__(self, context: Context, config: Config) -> None:
        group = context.group
        assert group.fused is not None
        self.fused: FusedChain = group.fused
        self.arch = context.arch
        self.kernel = new_kernel(context, "partial")
        self.few = config["few_lanes"]
        self.tile_keys = config["split_keys"]
        f, graph = self.fused, self.kernel.graph
        dims = (*f.batch, *f.rows, *f.columns, f.over, *f.score.over)
        self.extents = {d: self.kernel.extent(d) for d in dims}
        self.passes = plan(f)
        self.spaces = Spaces(self.kernel, f, group.index, self.few)
        self.packed = self.spaces.packed(self.kernel)
        self.dots = DotProducts(self.kernel, self.arch, f.keys, f.score.dtype, f.score.over, self.packed.buffer)
        vectors = vectorizable((*(k.part for k in f.row_links), *(v.weight for v in f.value_links)))
        self.steps = widths(self.arch, group, 4) if vectors else (1,)
        read = (*f.batch, f.over)
        elements = cost.elements(graph, (*read, *f.score.over)) + cost.elements(graph, (*read, *f.columns))
        self.kernel.cost(cost.flops(graph, context.computed()), elements, config["flops_per_ns"])

    def build(self) -> Launch:
        code, f = self.kernel.code, self.fused
        shares = Shares.of(code, f, self.extents, self.tile_keys)
        self.m = shares.rows
        self.k = code.bind(product_of(self.extents, f.score.over), "k")
        tasks = code.bind(mul(mul(shares.outer, shares.count), shares.blocks), "tasks")
        chunk = code.bind(tirx.Max(ceildiv(tasks, CHUNKS), i64(1)), "chunk")
        chunks = code.bind(tirx.truncdiv(tasks + chunk - i64(1), chunk), "chunks")
        with code.loop(chunks, "c", "parallel") as (c, body):
            size = (self.few - 1) * self.tile_keys
            buffers = [body.local("float32", size, f"tile{i}") for i in range(self.passes.buffers)]
            first_task = body.bind(c * chunk, "first_task")
            count = body.bind(tirx.Min(chunk, tasks - first_task), "count")
            packed = body.bind(self.spaces.packed_start(self.packed, c), "packed")
            with body.loop(count, "task") as (i, inner):
                # Neighbours along the batch are done one after the other for the same share: they may read the same.
                task = inner.bind_apart(first_task + i, "task")
                rest = inner.bind_apart(tirx.truncdiv(task, shares.blocks), "rest")
                outer = inner.bind_apart(tirx.truncdiv(rest, shares.count), "outer")
                first = inner.bind_apart(tirx.truncmod(task, shares.blocks) * i64(HEADS), "first")
                one = Task(
                    first,
                    inner.bind_apart(tirx.Min(i64(HEADS), shares.heads - first), "here"),
                    inner.bind_apart(mul(outer, shares.heads) + first, "batch"),
                    inner.bind_apart(tirx.truncmod(rest, shares.count), "share"),
                    packed,
                    self.start(inner),
                    {},
                    buffers,
                )
                scope = Scope(self.kernel, inner, unflatten(inner, outer, f.batch[:-1], self.extents))
                self.task(scope, one, shares)
        return self.kernel.launch()

    # -- a task --------------------------------------------------------------------------------------------------------
    def start(self, code: Code) -> Running:
        now = {id(k.node): self.slots(code, "now", k.neutral) for k in self.fused.row_links}
        needed = {id(n) for k in self.fused.links for n in k.needs}
        return Running(now, {i: self.slots(code, "before", 0.0) for i in now if i in needed})

    def slots(self, code: Code, name: str, value: float) -> Any:
        """A number for each row of each head."""
        buffer = code.local("float32", HEADS * self.few, name)
        with code.loop(HEADS * self.few, "slot", "vectorized") as (slot, lanes):
            lanes.store(buffer, constant(value, "float32"), slot)
        return buffer

    def head(self, scope: Scope, code: Code, task: Task, h: Expr) -> Scope:
        """The scope of one of the task's positions along the last batch dim."""
        dims = self.fused.batch[-1:]
        return scope.inner(code, {d: code.bind(add(task.first, h), d) for d in dims})

    def at_row(self, head: Scope, code: Code, row: Expr) -> Scope:
        """The scope of a row. It has no parent: what it holds must be found from within it, whatever dims it has."""
        return Scope(self.kernel, code, {**head.coords, **unflatten(code, row, self.fused.rows, self.extents)})

    def each_row(self, scope: Scope, task: Task, body: Any) -> None:
        """``body(scope of the row, number of the head, row, number of both)``."""
        with scope.code.loop(task.heads, "head") as (h, outer):
            head = self.head(scope, outer, task, h)
            with outer.loop(self.m, "row") as (row, inner):
                slot = inner.bind(h * self.m + row, "slot")
                body(self.at_row(head, inner, row), h, row, slot)

    def task(self, scope: Scope, task: Task, shares: Shares) -> None:
        code, f = scope.code, self.fused
        for v in f.value_links:
            if v.link.repair is not None:
                task.factors[id(v.link)] = self.slots(code, "factor", 1.0)
        begin = code.bind_apart(task.share * shares.length, "begin")
        end = code.bind_apart(tirx.Min(begin + shares.length, self.extents[f.over]), "end")
        self.each_row(scope, task, lambda here, h, row, slot: self.prepare(here, task, h, row, slot))
        tiles = code.bind_apart(tirx.truncdiv(end - begin + shares.tile - i64(1), shares.tile), "tiles")
        with code.loop(tiles, "tile") as (t, inner):
            start = inner.bind(begin + t * shares.tile, "start")
            count = inner.bind(tirx.Min(shares.tile, end - start), "keys")
            self.tile(scope.inner(inner, {}), task, start, count)

        def store(here: Scope, h: Expr, row: Expr, slot: Expr) -> None:
            for i, k in enumerate(f.row_links):
                place = self.spaces.link(task.batch + h, task.share, i, row)
                here.code.store(self.spaces.links.buffer, tirx.BufferLoad(task.running.now[id(k.node)], [slot]), place)

        self.each_row(scope, task, store)

    def prepare(self, here: Scope, task: Task, h: Expr, row: Expr, slot: Expr) -> None:
        """Packs a row, and clears its running values."""
        code, f = here.code, self.fused
        *outer, last = f.score.over
        start = code.bind(task.packed + slot * self.k, "to")
        steps = self.dots.widths if vectorizable((f.queries,)) else (1,)

        def along(at: Scope) -> None:
            flat: Expr = i64(0)
            for d in outer:
                flat = mul(add(flat, at.coords[d]), self.extents[d])

            def step(inner: Code, k: Expr, kind: str, width: int, stage: int) -> None:
                place = inner.bind(start + self.flat(at, outer, k), "place")
                with inner.loop(width, "lane", kind) as (lane, lanes):
                    value = at.inner(lanes, {last: add(k, lane)}).value_in(f.queries, FLOAT32)
                    lanes.store(self.packed.buffer, value, place + lane)

            strips(at.code, i64(0), self.extents[last], steps, step)

        over_outer(here, outer, self.extents, along)
        for v in f.value_links:
            memory = self.spaces.values[id(v.link)].buffer
            place = code.bind(self.spaces.value(v, task.batch + h, task.share, row), "clear")

            def clear(
                at: Code, column: Expr, kind: str, width: int, stage: int, b: Any = memory, p: Expr = place
            ) -> None:
                with at.loop(width, "j", kind) as (j, lanes):
                    lanes.store(b, constant(0, "float32"), p + add(column, j))

            strips(code, i64(0), product_of(self.extents, f.columns), COLUMNS[self.arch], clear)

    def flat(self, at: Scope, outer: list[str], k: Expr) -> Expr:
        """The position in a packed row."""
        position: Expr = i64(0)
        for d in outer:
            position = add(mul(position, self.extents[d]), at.coords[d])
        return add(mul(position, self.extents[self.fused.score.over[-1]]), k)

    def tile(self, scope: Scope, task: Task, start: Expr, count: Expr) -> None:
        """``count`` positions of the chain's dim from ``start`` on, for one head after the other; those that a mask
        leaves out for all rows are skipped."""
        f = self.fused
        with scope.code.loop(task.heads, "head") as (h, code):
            head = self.head(scope, code, task, h)
            rows = TileTruth(head, f.rows, f.over, self.extents, i64(0), self.m)
            truth = rows.over_tile(f.mask, code, start, count) if f.mask is not None else None
            with where_visible(code, truth) as visible:
                self.head_tile(head.inner(visible, {}), task, h, start, count, truth)

    def head_tile(self, head: Scope, task: Task, h: Expr, start: Expr, count: Expr, truth: Truth | None) -> None:
        """The rows of one head."""
        self.scores(head, task, h, start, count)
        for code, unmasked in with_and_without_mask(head.code, truth):
            for number, links in enumerate(self.passes.links):
                if not links and not self.passes.keeps[number]:
                    continue
                with code.loop(self.m, "row") as (row, body):
                    slot = body.bind(h * self.m + row, "slot")
                    self.run_pass(self.at_row(head, body, row), task, number, row, slot, start, count, unmasked)
        for v in self.fused.value_links:
            self.accumulate(head, task, v, h, start, count)

    # -- scores --------------------------------------------------------------------------------------------------------
    def scores(self, head: Scope, task: Task, h: Expr, start: Expr, count: Expr) -> None:
        """The contraction's result for the tile: for each row a run of positions."""
        with head.code.loop(self.m, "row") as (row, body):
            packed = body.bind(task.packed + (h * self.m + row) * self.k, "from")
            to = body.bind(row * i64(self.tile_keys), "to")
            self.dots.products(head.inner(body, {}), self.fused.over, start, count, packed, task.buffers[0], to)

    # -- passes --------------------------------------------------------------------------------------------------------
    def run_pass(
        self,
        here: Scope,
        task: Task,
        number: int,
        row: Expr,
        slot: Expr,
        start: Expr,
        count: Expr,
        unmasked: bool,
    ) -> None:
        """The row links of one level over a row of the tile, and the values that are kept for later."""
        code, f, running = here.code, self.fused, task.running
        links = self.passes.links[number]
        before = {id(k.node): code.bind(running.repaired(here, k, slot)) for k in links}
        for link in self.passes.readers[number]:
            for n in link.needs:
                if id(n) not in here.held:
                    safe = code.bind(running.made_safe(here, link, n, slot), "safe")
                    here.held[id(n)] = holding(safe)
        parts = {id(k.node): [accumulator(code, k.node, w, i) for i, w in enumerate(self.steps)] for k in links}
        base = code.bind(row * i64(self.tile_keys), "base")

        def strip(inner: Code, position: Expr, kind: str, width: int, stage: int) -> None:
            at = inner.bind(base + position, "at")
            key = inner.bind(start + position, "key")
            with inner.loop(width, "lane", kind) as (lane, lanes):
                known = self.passes.known[number]
                held = {i: load(task.buffers[place], add(at, lane)) for i, place in known.items()}
                inside = here.inner(lanes, {f.over: add(key, lane)}, held)
                if unmasked:
                    for choice in f.masked:
                        inside.held.setdefault(id(choice), within(inside, choice.args[1]))
                values = [(k, reduced(inside.value(k.part), k.node)) for k in links]
                kept = [(place, inside.value_in(node, FLOAT32)) for node, place in self.passes.keeps[number]]
                for k, value in values:
                    buffer = parts[id(k.node)][stage]
                    lanes.store(buffer, combine(k.op, tirx.BufferLoad(buffer, [lane]), value), lane)
                for place, value in kept:
                    lanes.store(task.buffers[place], value, add(at, lane))

        strips(code, i64(0), count, self.steps, strip)
        for k in links:
            now = running.now[id(k.node)]
            total = fold(code, parts[id(k.node)], self.steps, partial(combine, k.op), k.op)
            if id(k.node) in running.before:
                code.store(running.before[id(k.node)], tirx.BufferLoad(now, [slot]), slot)
            code.store(now, combine(k.op, before[id(k.node)], total), slot)

    # -- values --------------------------------------------------------------------------------------------------------
    def accumulate(self, head: Scope, task: Task, v: ValueLink, h: Expr, start: Expr, count: Expr) -> None:
        """A contraction link's running values: repaired, plus the tile's weights times values."""
        code, f = head.code, self.fused
        factors = task.factors.get(id(v.link))
        if factors is not None:
            with code.loop(self.m, "row") as (row, body):
                slot = body.bind(h * self.m + row, "slot")
                body.store(factors, task.running.factor(self.at_row(head, body, row), v.link, slot), row)
        memory = self.spaces.values[id(v.link)].buffer
        weights = task.buffers[self.passes.place_of(v.weight)]
        places = (*WIDE[self.arch], *COLUMNS[self.arch]) if vectorizable((v.value,)) else (1,)

        def across(at: Code, column: Expr, kind: str, width: int, stage: int) -> None:
            def down(inner: Code, row: Expr, row_kind: str, height: int, row_stage: int) -> None:
                rows = [inner.bind(add(row, i64(i)), "row") for i in range(height)]
                to = [inner.bind(self.spaces.value(v, task.batch + h, task.share, r) + column, "to") for r in rows]
                repairs = [tirx.BufferLoad(factors, [r]) for r in rows] if factors is not None else None
                bases = [inner.bind(r * i64(self.tile_keys), "weights") for r in rows]

                def weights_at(here: Code, position: Expr) -> list[Expr]:
                    return [here.bind(tirx.BufferLoad(weights, [base + position]), "w") for base in bases]

                tile = (start, count), (column, width, kind)
                value_tile(inner, head, f, v.value, memory, to, repairs, weights_at, *tile)

            strips(at, i64(0), self.m, (1,) if width in WIDE[self.arch] else ROWS, down)

        strips(code, i64(0), product_of(self.extents, f.columns), places, across)
