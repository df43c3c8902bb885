"""Online chains on x86: a contraction and the chain of reductions over its result, tile by tile.

A task does a block of rows. Their operand is packed as a panel, and each tile of the chain's dim goes through

    scores    register tiles of positions times the panel: one vector of rows for each position
    passes    the chain's row links, level by level: no result is needed along a vector, so nothing is folded
    values    each contraction link's running values, repaired, plus weights times values: register tiles of rows times
              columns

Memory does not grow with the chain's dim: what a task keeps is in scratch memory of its chunk of tasks.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.fusion import FusedChain, ValueLink
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Held, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import combine, reduced
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import split_merge
from .chain_passes import COLUMNS, FLOAT32, Running, hold, load, plan, stored, within
from .kernels import new_kernel
from .packing import Packer
from .register_tile import RegisterTile
from .tile_truth import TileTruth, Truth, where_visible, with_and_without_mask
from .value_tile import value_tile
from .vectors import strips, vectorizable

CHUNKS = 256
"""Into how many pieces the tasks are cut at most; each has scratch memory of its own."""

_CHUNK, _ROW, _K, _COLUMN = "(chunk)", "(row)", "(k)", "(column)"


class Rolling:
    """The kernel for blocks of ``lanes`` rows; calls have at least so many. The last block reaches back, so that it is
    whole."""

    def __init__(self, context: Context, config: Config, lanes: int) -> None:
        group = context.group
        assert group.fused is not None
        self.fused: FusedChain = group.fused
        self.group = group
        self.arch = context.arch
        self.kernel = new_kernel(context, f"rolling{lanes}")
        self.lanes = lanes
        self.kind = "vectorized" if lanes > 1 else "serial"
        self.tile_keys = config["keys"]
        self.heights = tuple(sorted({config["rows"], config["rows_at_end"], 1}, reverse=True))
        self.over = self.fused.over
        f = self.fused
        dims = (*f.batch, *f.rows, *f.columns, self.over, *f.score.over)
        self.extents = {d: self.kernel.extent(d) for d in dims}
        graph = self.kernel.graph
        chunks, rows = Extent.const(CHUNKS), Extent.const(lanes)
        self.panels = self.kernel.workspace(
            f"rows{group.index}", {_CHUNK: chunks, _K: cost.elements(graph, f.score.over), _ROW: rows}, FLOAT32
        )
        self.values = {
            id(v.link): self.kernel.workspace(
                f"values{group.index}_{i}",
                {_CHUNK: chunks, _ROW: rows, _COLUMN: cost.elements(graph, f.columns)},
                FLOAT32,
            )
            for i, v in enumerate(f.value_links)
        }
        self.passes = plan(self.fused)
        self.kernel.cost(cost.flops(graph, context.computed()), Extent.const(0), config["flops_per_ns"])

    def build(self) -> Launch:
        code, f = self.kernel.code, self.fused
        m = code.bind(product_of(self.extents, f.rows), "m")
        blocks = code.bind(ceildiv(m, self.lanes), "blocks")
        tasks = code.bind(mul(product_of(self.extents, f.batch), blocks), "tasks")
        chunk = code.bind(tirx.Max(ceildiv(tasks, CHUNKS), i64(1)), "chunk")
        chunks = code.bind(tirx.truncdiv(tasks + chunk - i64(1), chunk), "chunks")
        with code.loop(chunks, "c", "parallel") as (c, body):
            buffers = [
                body.local("float32", self.tile_keys * self.lanes, f"tile{i}") for i in range(self.passes.buffers)
            ]
            first_task = body.bind(c * chunk, "first_task")
            count = body.bind(tirx.Min(chunk, tasks - first_task), "count")
            with body.loop(count, "task") as (i, inner):
                task = inner.bind(first_task + i, "task")
                batch = inner.bind(tirx.truncdiv(task, blocks), "batch")
                block = inner.bind(tirx.truncmod(task, blocks), "block")
                first = inner.bind(tirx.Min(block * i64(self.lanes), m - i64(self.lanes)), "first")
                scope = Scope(self.kernel, inner, unflatten(inner, batch, f.batch, self.extents))
                self.task(scope, c, first, buffers)
        return self.kernel.launch()

    # -- a task --------------------------------------------------------------------------------------------------------
    def task(self, scope: Scope, chunk: Expr, first: Expr, buffers: list[Any]) -> None:
        """The rows from ``first`` on."""
        code, f = scope.code, self.fused
        panel = code.bind(self.panels.offset({_CHUNK: chunk, _K: i64(0), _ROW: i64(0)}), "panel")
        packer = Packer(self.kernel, self.arch, f.queries, f.rows, f.score.over, f.score.dtype, self.panels, self.lanes)
        packer.full_tile(scope.inner(code, {}), first, panel)
        running = self.start(code)
        for v in f.value_links:
            memory = self.values[id(v.link)]
            start = code.bind(memory.offset({_CHUNK: chunk, _ROW: i64(0), _COLUMN: i64(0)}), "start")
            size = code.bind(mul(i64(self.lanes), product_of(self.extents, f.columns)), "size")

            def clear(at: Code, i: Expr, kind: str, width: int, stage: int, m: Any = memory, s: Expr = start) -> None:
                with at.loop(width, "j", kind) as (j, lanes):
                    lanes.store(m.buffer, constant(0, "float32"), s + add(i, j))

            strips(code, i64(0), size, COLUMNS[self.arch], clear)
        n = self.extents[self.over]
        with code.loop(code.bind(ceildiv(n, self.tile_keys), "tiles"), "tile") as (t, inner):
            start = inner.bind(t * i64(self.tile_keys), "key")
            count = inner.bind(tirx.Min(i64(self.tile_keys), n - start), "keys")

            rows = TileTruth(scope, f.rows, self.over, self.extents, first, i64(self.lanes))
            truth = rows.over_tile(f.mask, inner, start, count) if f.mask is not None else None
            with where_visible(inner, truth) as visible:
                here = scope.inner(visible, {})
                self.tile(here, chunk, first, panel, start, count, running, buffers, truth)
        self.finish(scope.inner(code, {}), chunk, first, running)

    def start(self, code: Code) -> Running:
        now = {id(k.node): self.vector(code, "now") for k in self.fused.row_links}
        for k in self.fused.row_links:
            with code.loop(self.lanes, "lane", self.kind) as (lane, lanes):
                lanes.store(now[id(k.node)], constant(k.neutral, "float32"), lane)
        needed = {id(n) for k in self.fused.links for n in k.needs}
        return Running(now, {i: self.vector(code, "before") for i in now if i in needed})

    def vector(self, code: Code, name: str) -> Any:
        return code.local("float32", self.lanes, name)

    def row_coords(self, code: Code, first: Expr, lane: Expr) -> dict[str, Expr]:
        return unflatten(code, add(first, lane), self.fused.rows, self.extents)

    def tile(
        self,
        scope: Scope,
        chunk: Expr,
        first: Expr,
        panel: Expr,
        start: Expr,
        count: Expr,
        running: Running,
        buffers: list[Any],
        truth: Truth | None,
    ) -> None:
        """``count`` positions of the chain's dim from ``start`` on."""
        self.scores(scope, panel, start, count, buffers[0])
        for at, unmasked in with_and_without_mask(scope.code, truth):
            for number in range(len(self.passes.links)):
                self.run_pass(scope.inner(at, {}), number, first, start, count, running, buffers, unmasked)
        for v in self.fused.value_links:
            weights = buffers[self.passes.place_of(v.weight)]
            self.accumulate(scope, v, chunk, first, start, count, running, weights)

    # -- scores --------------------------------------------------------------------------------------------------------
    def scores(self, scope: Scope, panel: Expr, start: Expr, count: Expr, buffer: Any) -> None:
        """The contraction's result for the tile: for each position a vector of rows."""
        f = self.fused
        tile = RegisterTile(self.kernel, f.keys, f.score.dtype, f.score.over, self.panels.buffer, self.lanes)

        def down(code: Code, key: Expr, kind: str, height: int, stage: int) -> None:
            here = scope.inner(code, {})
            rows = [here.inner(code, {self.over: code.bind(add(start + key, i64(i)), "key")}) for i in range(height)]
            for i, acc in enumerate(tile.sums(code, rows, panel)):
                at = code.bind((key + i64(i)) * i64(self.lanes), "at")
                with code.loop(self.lanes, "j", self.kind) as (j, lanes):
                    lanes.store(buffer, tirx.BufferLoad(acc, [j]), at + j)

        strips(scope.code, i64(0), count, self.heights, down)

    # -- passes --------------------------------------------------------------------------------------------------------
    def run_pass(
        self,
        scope: Scope,
        number: int,
        first: Expr,
        start: Expr,
        count: Expr,
        running: Running,
        buffers: list[Any],
        unmasked: bool,
    ) -> None:
        """The row links of one level over the tile, and the values that are kept for later."""
        code, f = scope.code, self.fused
        links = self.passes.links[number]
        sums = {id(k.node): self.vector(code, "sum") for k in links}
        with code.loop(self.lanes, "lane", self.kind) as (lane, lanes):
            here = scope.inner(lanes, self.row_coords(lanes, first, lane))
            for k in links:
                lanes.store(sums[id(k.node)], running.repaired(here, k, lane), lane)
        moved = self.moved(scope, number, first, running)
        with code.loop(count, "key") as (r, body):
            at = body.bind(r * i64(self.lanes), "at")
            inside = scope.inner(body, {self.over: body.bind(start + r, "key")})
            with body.loop(self.lanes, "lane", self.kind) as (lane, lanes):
                held: dict[int, Held] = {
                    i: load(buffers[place], add(at, lane)) for i, place in self.passes.known[number].items()
                }
                held |= {i: load(buffer, lane) for i, buffer in moved.items()}
                here = inside.inner(lanes, self.row_coords(lanes, first, lane), held)
                if unmasked:
                    for choice in f.masked:
                        here.held.setdefault(id(choice), within(here, choice.args[1]))
                values = [(k, reduced(here.value(k.part), k.node)) for k in links]
                kept = [(place, here.value_in(node, FLOAT32)) for node, place in self.passes.keeps[number]]
                for k, value in values:
                    buffer = sums[id(k.node)]
                    lanes.store(buffer, combine(k.op, tirx.BufferLoad(buffer, [lane]), value), lane)
                for place, value in kept:
                    lanes.store(buffers[place], value, add(at, lane))
        for k in links:
            with code.loop(self.lanes, "lane", self.kind) as (lane, lanes):
                now = running.now[id(k.node)]
                if id(k.node) in running.before:
                    lanes.store(running.before[id(k.node)], tirx.BufferLoad(now, [lane]), lane)
                lanes.store(now, tirx.BufferLoad(sums[id(k.node)], [lane]), lane)

    def moved(self, scope: Scope, number: int, first: Expr, running: Running) -> dict[int, Any]:
        """What stands for earlier links in the values of a pass: their new values, made safe."""
        code = scope.code
        found: dict[int, Any] = {}
        for link in self.passes.readers[number]:
            for n in link.needs:
                if id(n) in found:
                    continue
                buffer = found[id(n)] = self.vector(code, "moved")
                with code.loop(self.lanes, "lane", self.kind) as (lane, lanes):
                    here = scope.inner(lanes, self.row_coords(lanes, first, lane))
                    lanes.store(buffer, running.made_safe(here, link, n, lane), lane)
        return found

    # -- values --------------------------------------------------------------------------------------------------------
    def accumulate(
        self,
        scope: Scope,
        v: ValueLink,
        chunk: Expr,
        first: Expr,
        start: Expr,
        count: Expr,
        running: Running,
        weights: Any,
    ) -> None:
        """A contraction link's running values: repaired, plus the tile's weights times values."""
        code, f = scope.code, self.fused
        factors = None
        if v.link.repair is not None:
            factors = self.vector(code, "factor")
            with code.loop(self.lanes, "lane", self.kind) as (lane, lanes):
                here = scope.inner(lanes, self.row_coords(lanes, first, lane))
                lanes.store(factors, running.factor(here, v.link, lane), lane)
        memory = self.values[id(v.link)]
        widths = COLUMNS[self.arch] if vectorizable((v.value,)) else (1,)

        def across(at: Code, column: Expr, kind: str, width: int, stage: int) -> None:
            def down(inner: Code, row: Expr, row_kind: str, height: int, row_stage: int) -> None:
                places = [
                    inner.bind(memory.offset({_CHUNK: chunk, _ROW: add(row, i64(i)), _COLUMN: column}), "to")
                    for i in range(height)
                ]
                repairs = (
                    [tirx.BufferLoad(factors, [add(row, i64(i))]) for i in range(height)]
                    if factors is not None
                    else None
                )

                def weights_at(here: Code, position: Expr) -> list[Expr]:
                    base = here.bind(add(position * i64(self.lanes), row), "weight")
                    return [here.bind(tirx.BufferLoad(weights, [base + i64(i)]), "w") for i in range(height)]

                tile = (start, count), (column, width, kind)
                value_tile(inner, scope, f, v.value, memory.buffer, places, repairs, weights_at, *tile)

            strips(at, i64(0), i64(self.lanes), self.heights, down)

        strips(code, i64(0), product_of(self.extents, f.columns), widths, across)

    # -- results -------------------------------------------------------------------------------------------------------
    def finish(self, scope: Scope, chunk: Expr, first: Expr, running: Running) -> None:
        """The group's stored values of the task's rows."""
        code, f = scope.code, self.fused
        of_rows, others = stored(self.group, f)

        def row_held(here: Scope, lane: Expr) -> None:
            hold(here, {k: load(running.now[id(k.node)], lane) for k in f.row_links})

        if of_rows:
            with code.loop(self.lanes, "lane", self.kind) as (lane, lanes):
                here = scope.inner(lanes, self.row_coords(lanes, first, lane))
                row_held(here, lane)
                self.kernel.store_values(here, [(n, here.value(n)) for n in of_rows])
        if not others:
            return
        with code.loop(self.lanes, "row") as (row, body):
            at_row = scope.inner(body, self.row_coords(body, body.bind(add(first, row), "at_row"), i64(0)))
            row_held(at_row, row)
            places = {
                id(v.link): body.bind(
                    self.values[id(v.link)].offset({_CHUNK: chunk, _ROW: row, _COLUMN: i64(0)}), "from"
                )
                for v in f.value_links
            }

            def step(inner: Code, column: Expr, kind: str, width: int, stage: int) -> None:
                with inner.loop(width, "j", kind) as (j, lanes):
                    here = at_row.inner(lanes, unflatten(lanes, add(column, j), f.columns, self.extents))
                    found = {}
                    for v in f.value_links:
                        found[v.link] = load(self.values[id(v.link)].buffer, places[id(v.link)] + add(column, j))
                    hold(here, found)
                    self.kernel.store_values(here, [(n, here.value(n)) for n in others])

            widths = COLUMNS[self.arch] if vectorizable(tuple(others)) else (1,)
            strips(body, i64(0), product_of(self.extents, f.columns), widths, step)


def build(context: Context, config: Config) -> list[Launch]:
    from dataclasses import replace

    fused = context.group.fused
    assert fused is not None
    rows = cost.elements(context.partition.graph, fused.rows)
    wide, narrow = config["lanes"], config["few_lanes"]
    return [
        replace(Rolling(context, config, wide).build(), when=((rows, ">=", wide),)),
        replace(Rolling(context, config, narrow).build(), when=((rows, ">=", narrow), (rows, "<", wide))),
        *(replace(launch, when=((rows, "<", narrow),)) for launch in split_merge.build(context, config)),
    ]


def _default(group: Any, arch: str) -> Config:
    if arch == "avx2":
        return {
            "lanes": 16,
            "few_lanes": 8,
            "keys": 96,
            "rows": 6,
            "rows_at_end": 4,
            "split_keys": 512,
            "flops_per_ns": 50,
        }
    return {
        "lanes": 64,
        "few_lanes": 16,
        "keys": 96,
        "rows": 6,
        "rows_at_end": 4,
        "split_keys": 512,
        "flops_per_ns": 100,
    }


SCHEDULE = Schedule(
    name="x86.online_chain",
    target="x86",
    pattern="online_chain",
    region="any online chain on avx2 and avx512",
    knobs={
        "lanes": (16, 32, 64),
        "few_lanes": (8, 16),
        "keys": (48, 96, 192),
        "rows": (4, 6, 8, 12),
        "rows_at_end": (2, 4),
        "split_keys": (128, 256, 512),
        "flops_per_ns": (50, 100),
    },
    serves=lambda group, arch: True,
    default=_default,
    build=build,
)
