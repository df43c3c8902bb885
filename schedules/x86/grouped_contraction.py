"""Grouped contractions on x86: the kernels of a contraction, over the rows of one group after the other.

A task is a group and a column tile: it finds the group's rows, packs its tile if the group has any (unless the caller
packed the weights), and multiplies them all. With few rows a group, `direct` multiplies without packing.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import compute_type
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.schedules.common.segments import rows_of

from . import contraction, direct
from .packing import pack_tile, packable, packing


def build(context: Context, config: Config) -> list[Launch]:
    """The product, and the one for few rows a group."""
    problem = Problem(context.group)
    assert problem.segments is not None
    source = packable(context, problem)
    given = source is not None and source.name in context.packed
    product = _Grouped(context, config, problem, given).build()
    few = None if given else direct.build(context, config, problem)
    if few is None:
        return [product]
    graph = context.partition.graph
    rows, groups = graph.extent(problem.segments.rows), cost.elements(graph, (problem.segments.groups,))
    beyond = rows + groups * -config["direct_rows"]
    return [replace(few, when=((beyond, "<=", 0),)), replace(product, when=((beyond, ">", 0),))]


class _Grouped(contraction.Product):
    """Tasks are groups (and other batches) times blocks of column tiles, with all rows of the group."""

    def build(self) -> Launch:
        code, extents, problem = self.kernel.code, self.extents, self.problem
        m = code.bind(product_of(extents, problem.rows), "m")
        n = code.bind(product_of(extents, problem.columns), "n")
        tiles = code.bind(ceildiv(n, self.width), "tiles")
        column_blocks = code.bind(ceildiv(tiles, self.block_tiles), "column_blocks")
        tasks = code.bind(mul(product_of(extents, problem.batch), column_blocks), "tasks")
        with code.loop(tasks, "task", "parallel") as (task, body):
            batch = body.bind(tirx.truncdiv(task, column_blocks), "batch")
            scope = Scope(self.kernel, body, unflatten(body, batch, problem.batch, extents))
            sums = body.local(self.type, self.block_rows * self.width, "sums")
            begin, end = rows_of(scope, problem, m)
            blocks = body.bind(ceildiv(end - begin, self.block_rows), "blocks")
            first_tile = body.bind(tirx.truncmod(task, column_blocks) * i64(self.block_tiles), "first_tile")
            here = body.bind(tirx.Min(i64(self.block_tiles), tiles - first_tile), "tiles_here")
            with body.loop(here, "tile") as (t, inner):
                tile = inner.bind(first_tile + t, "tile")
                if self.packer is not None:
                    with inner.when(blocks > i64(0)) as used:
                        pack_tile(used, self.packer, problem, extents, batch, tile)
                panel = self.packed.offset({"batch": batch, "tile": tile, "k": i64(0), "column": i64(0)})
                panel = inner.bind(panel, "panel")
                with inner.loop(blocks, "block") as (b, block):
                    first_row = block.bind(begin + b * i64(self.block_rows), "first_row")
                    self.block(scope.inner(block, {}), first_row, end, tile, n, panel, sums)
        return self.kernel.launch()


SCHEDULE = Schedule(
    name="x86.grouped_contraction",
    target="x86",
    pattern="grouped_contraction",
    region="any grouped contraction of floats on avx2 and avx512",
    knobs=contraction.SCHEDULE.knobs,
    serves=lambda group, arch: compute_type(group.reductions[0].dtype).kind == "float",
    default=contraction.SCHEDULE.default,
    build=build,
    packing=packing,
)
