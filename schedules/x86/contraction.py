"""Contractions on x86: the right operand packed into column tiles, register tiles of rows times columns.

Two kernels. The first writes the right operand, by whatever expression it has, as [batch, column tile, k, NR], zero
past its end. The second runs over blocks of rows and column tiles; a register tile's accumulators stay in registers
over the whole sum. A weight may come packed from the caller: then the first kernel is not there; with few rows the
second packs on the way.

With few rows packing costs more than it saves: where both operands are contiguous along the sum, a third kernel
(direct.py) takes those calls.

(A register tile of 8x48 spills and falls to a tenth.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope, compute_name
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import direct
from .kernels import new_kernel
from .packing import pack, pack_tile, packable, packed_memory, packer_of, packing
from .register_tile import RegisterTile
from .vectors import strips, widths


def build(context: Context, config: Config) -> list[Launch]:
    """The packing kernel and the product."""
    problem = Problem(context.group)
    source = packable(context, problem)
    given = source is not None and source.name in context.packed
    product = Product(context, config, problem, given).build()
    if given:
        return [product]
    rows = cost.elements(context.partition.graph, problem.rows)
    launches = [replace(pack(context, config, problem), when=((rows, ">", config["pack_on_the_way"]),)), product]
    few = direct.build(context, config, problem)
    if few is None:
        return launches
    limit = config["direct_rows"]
    return [replace(few, when=((rows, "<=", limit),)), launches[0], replace(product, when=((rows, ">", limit),))]


class Product:
    """The kernel that multiplies: blocks of rows times blocks of column tiles, in parallel.

    In a block, for each column tile, register tiles go down the rows (fewer at a time at the end) and lay their sums
    down in ``sums``; then the epilogue runs over them. Through memory that stays in the cache, because the epilogue is
    then one loop, not one copy for each row of a register tile, and nothing is computed past the last row.

    With few rows a task does all of them, and packs its column tile itself: the tile is still in the cache.
    """

    def __init__(self, context: Context, config: Config, problem: Problem, given: bool) -> None:
        self.problem = problem
        self.kernel = new_kernel(context, "product")
        self.width = config["columns"]
        self.heights = tuple(sorted({config["rows"], config["rows_at_end"], 1}, reverse=True))
        self.packed = packed_memory(self.kernel, context, problem, self.width)
        self.packer = None if given else packer_of(self.kernel, context, config, problem)
        self.rows_on_the_way = config["pack_on_the_way"]
        self.type = compute_name(problem.node.dtype)
        self.lanes = widths(context.arch, context.group, 1)
        dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
        self.extents = {d: self.kernel.extent(d) for d in dims}
        self.tile = RegisterTile(
            self.kernel, problem.left, problem.node.dtype, problem.summed, self.packed.buffer, self.width
        )
        self.block_rows = config["row_block"] * config["rows"]
        self.block_tiles = config["column_block"]
        self.kernel.cost(cost.flops(self.kernel.graph, context.computed()), Extent.const(0), config["flops_per_ns"])

    def build(self) -> Launch:
        code, extents, problem = self.kernel.code, self.extents, self.problem
        m = code.bind(product_of(extents, problem.rows), "m")
        n = code.bind(product_of(extents, problem.columns), "n")
        tiles = code.bind(ceildiv(n, self.width), "tiles")
        row_blocks = code.bind(ceildiv(m, self.block_rows), "row_blocks")
        column_blocks = code.bind(ceildiv(tiles, self.block_tiles), "column_blocks")
        batches = product_of(extents, problem.batch)
        each = i64(1)  # blocks of rows that a task does
        few = m <= i64(self.rows_on_the_way)
        if self.packer is not None:
            each = code.bind(tirx.Select(few, tirx.Max(row_blocks, each), each), "each")
        row_tasks = code.bind(tirx.truncdiv(row_blocks + each - i64(1), each), "row_tasks")
        tasks = code.bind(mul(batches, row_tasks * column_blocks), "tasks")
        with code.loop(tasks, "task", "parallel") as (task, body):
            row_task = body.bind(tirx.truncmod(task, row_tasks), "row_task")
            rest = body.bind(tirx.truncdiv(task, row_tasks), "rest")
            batch = body.bind(tirx.truncdiv(rest, column_blocks), "batch")
            scope = Scope(self.kernel, body, unflatten(body, batch, problem.batch, extents))
            sums = body.local(self.type, self.block_rows * self.width, "sums")
            first_tile = body.bind(tirx.truncmod(rest, column_blocks) * i64(self.block_tiles), "first_tile")
            here = body.bind(tirx.Min(i64(self.block_tiles), tiles - first_tile), "tiles_here")
            with body.loop(here, "tile") as (t, inner):
                tile = inner.bind(first_tile + t, "tile")
                if self.packer is not None:
                    with inner.when(few) as packing:
                        pack_tile(packing, self.packer, problem, extents, batch, tile)
                panel = self.packed.offset({"batch": batch, "tile": tile, "k": i64(0), "column": i64(0)})
                panel = inner.bind(panel, "panel")
                first_block = inner.bind(row_task * each, "first_block")
                with inner.loop(each, "block") as (b, block):
                    first_row = block.bind((first_block + b) * i64(self.block_rows), "first_row")
                    self.block(scope.inner(block, {}), first_row, m, tile, n, panel, sums)
        return self.kernel.launch()

    def block(self, scope: Scope, first_row: Expr, m: Expr, tile: Expr, n: Expr, panel: Expr, sums: Any) -> None:
        """A block of rows times one column tile."""
        code = scope.code
        rows = code.bind(tirx.Min(i64(self.block_rows), m - first_row), "rows")

        def down(at: Code, row: Expr, kind: str, height: int, stage: int) -> None:
            self.register_tile(scope.inner(at, {}), row, first_row, height, panel, sums)

        strips(code, i64(0), rows, self.heights, down)
        self.epilogue(scope, first_row, rows, code.bind(tile * i64(self.width), "first_column"), n, sums)

    def register_tile(self, scope: Scope, row: Expr, first_row: Expr, height: int, panel: Expr, sums: Any) -> None:
        """``height`` rows, from ``row`` of the block on, times one column tile, into ``sums``."""
        code, width = scope.code, self.width
        rows = []
        for i in range(height):
            at = code.bind(add(first_row + row, i64(i)), "row")
            rows.append(scope.inner(code, unflatten(code, at, self.problem.rows, self.extents)))
        for i, acc in enumerate(self.tile.sums(code, rows, panel)):
            start = code.bind((row + i64(i)) * i64(width), "start")
            with code.loop(width, "j", "vectorized") as (j, lanes):
                lanes.store(sums, tirx.BufferLoad(acc, [j]), start + j)

    def epilogue(self, scope: Scope, first_row: Expr, rows: Expr, first_column: Expr, n: Expr, sums: Any) -> None:
        """The group's stored values for a block of rows of one column tile."""
        code = scope.code
        columns = code.bind(tirx.Min(i64(self.width), n - first_column), "columns")
        with code.loop(rows, "i") as (i, body):
            at_row = body.bind(first_row + i, "row")
            row = scope.inner(body, unflatten(body, at_row, self.problem.rows, self.extents))
            start = body.bind(i * i64(self.width), "start")

            def step(inner: Code, at: Expr, kind: str, width: int, stage: int) -> None:
                with inner.loop(width, "j", kind) as (j, lanes):
                    self.store(row, lanes, first_column + add(at, j), tirx.BufferLoad(sums, [start + add(at, j)]))

            strips(body, i64(0), columns, self.lanes, step)

    def store(self, row: Scope, code: Code, column: Expr, total: Expr) -> None:
        """The stored values in one row, at one column or a vector of them."""
        coords = unflatten(code, column, self.problem.columns, self.extents)
        scope = row.inner(code, coords, held={id(self.problem.node): lambda _: total})
        self.kernel.store_all(scope)


# Register tiles: rows, rows at the end, columns. By benchmarks/sweep.py (linear+GELU, packed, geometric mean of four
# shapes over torch, on a Sapphire Rapids): 6x64 is 1.19x on one and 1.66x on 16 threads, 12x32 1.52x on 16; for AVX2,
# which torch is held to as well, 6x16 is 1.05x and 1.42x. Results in benchmarks/results/sweep-*.json. Batched products
# are attention's where it is not fused, whose columns are often 32 or fewer.
_TILES = {"avx2": (6, 3, 16), "avx512": (6, 3, 64)}
_BATCHED_TILES = {"avx2": (6, 3, 16), "avx512": (12, 4, 32)}
_ROW_BLOCK = {"avx2": 16, "avx512": 8}
_FLOPS_PER_NS = {"avx2": 50, "avx512": 100}


def _default(group: Group, arch: str) -> Config:
    height, at_end, width = (_BATCHED_TILES if Problem(group).batch else _TILES)[arch]
    wide = compute_type(group.reductions[0].dtype).name == "float64"
    return {
        "rows": height,
        "rows_at_end": at_end,
        "columns": width // 2 if wide else width,
        "row_block": _ROW_BLOCK[arch],
        "column_block": 1,
        "direct_rows": 24,
        "pack_on_the_way": 256,
        "flops_per_ns": _FLOPS_PER_NS[arch],
    }


SCHEDULE = Schedule(
    name="x86.contraction",
    target="x86",
    pattern="contraction",
    region="any contraction on avx2 and avx512; integers of 8 bits as int32",
    knobs={
        "rows": (4, 6, 8, 12),
        "rows_at_end": (1, 2, 3, 4, 6),
        "columns": (16, 32, 64),
        "row_block": (4, 8, 16, 32),
        "column_block": (1, 2, 4, 8),
        "direct_rows": (0, 4, 8, 12, 16, 24),
        "pack_on_the_way": (0, 128, 256, 512),
        "flops_per_ns": (50, 100),
    },
    serves=lambda group, arch: True,
    default=_default,
    build=build,
    packing=packing,
)
