"""Grouped contractions on NVIDIA GPUs without tensor cores: the tiles of `contraction`, over the rows of all groups.

A kernel of one block finds the groups' rows (segments.py). Then blocks take tiles of rows in turn, all groups in one
launch; a tile has rows of one group alone.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import contraction, segments, tensor_cores
from .conditions import undecided


def build(context: Context, config: Config) -> list[Launch]:
    """The table of the groups' rows, and the kernels for small problems and for large ones."""
    problem = Problem(context.group)
    assert problem.segments is not None
    results = cost.elements(context.partition.graph, problem.node.dims)
    found = [segments.build_table(context, problem.segments)]
    for part, sign in (("small", "<="), ("large", ">")):
        conditions = undecided((results, sign, config["large_from"]))
        if conditions is not None:
            found.append(_GroupedTiles(context, config, problem, part, config[f"{part}_tile"]).build(conditions))
    return found


class _GroupedTiles(contraction.Tiles):
    """The kernel for tiles of ``side`` rows and columns."""

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, problem, side, code = self.kernel, self.problem, self.side, self.kernel.code
        parts = problem.segments
        assert parts is not None
        self.prepare()
        table = segments.table(kernel, parts)
        others = problem.batch[1:]
        groups = self.extents[parts.groups]
        row_tiles = code.bind(segments.load(table, segments.tiles_line(side), groups), "row_tiles")
        column_tiles = code.bind(ceildiv(self.n, side), "column_tiles")
        self.place_threads()
        with kernel.tasks(mul(product_of(self.extents, others), row_tiles * column_tiles)) as (task, body):
            row_tile = body.bind(tirx.truncmod(task, row_tiles), "row_tile")
            rest = body.bind(tirx.truncdiv(task, row_tiles), "rest")
            group = segments.group_of_tile(body, table, side, row_tile, groups)
            begin, end = (body.bind(segments.load(table, 0, g), "edge") for g in (group, group + i64(1)))
            down = row_tile - segments.load(table, segments.tiles_line(side), group)
            first_row = body.bind(begin + down * i64(side), "first_row")
            batch = body.bind(tirx.truncdiv(rest, column_tiles), "batch")
            coords = {parts.groups: group, **unflatten(body, batch, others, self.extents)}
            first_column = body.bind(tirx.truncmod(rest, column_tiles) * i64(side), "first_column")
            scope = Scope(kernel, body, coords)
            sums = self.multiply(scope, first_row, first_column)
            self.epilogue(scope, first_row, end, first_column, sums)
        graph = kernel.graph
        # Each group has a tile more than it fills, at most.
        down = cost.elements(graph, problem.rows) // side + graph.extent(parts.groups)
        across = (cost.elements(graph, problem.columns) + (side - 1)) // side
        return kernel.launch_on(cost.elements(graph, others) * down * across, when, resident=2)


def _default(group: Group, arch: str) -> Config:
    chosen = contraction.SCHEDULE.default(group, arch)
    return {knob: chosen[knob] for knob in SCHEDULE.knobs}


SCHEDULE = Schedule(
    name="cuda.grouped_contraction",
    target="cuda",
    pattern="grouped_contraction",
    region="any grouped contraction of floats that cuda.grouped_wgmma leaves",
    knobs={k: contraction.SCHEDULE.knobs[k] for k in ("small_tile", "large_tile", "large_from", "depth")},
    serves=lambda group, arch: (
        compute_type(group.reductions[0].dtype).kind == "float" and not tensor_cores.grouped_by_wgmma(group, arch)
    ),
    default=_default,
    build=build,
)
