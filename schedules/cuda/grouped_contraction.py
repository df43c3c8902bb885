"""Grouped contractions on NVIDIA GPUs: the tiles of `contraction` and `mma`, over the rows of all groups.

A kernel of one block finds the groups' rows (segments.py). Then blocks take tiles of rows in turn, all groups in one
launch; a tile has rows of one group alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Expr, ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.targets.cuda import ARCHS

from . import contraction, mma, segments, tensor_cores
from .by_size import Make, tiles
from .conditions import undecided, waves
from .core_tiles import CoreTiles
from .mma_kernel import MmaKernel
from .tensor_cores import HALVES
from .tile_kernel import TileKernel


def build(context: Context, config: Config) -> list[Launch]:
    """The table of the groups' rows, and the kernels for small problems and for large ones."""
    problem = Problem(context.group)
    assert problem.segments is not None
    kind: Any
    chosen: dict[str, Any]
    unaligned: Any
    if problem.node.dtype.name in HALVES:
        kind = MmaKernel
        chosen, unaligned = mma.forms(context, problem)
    else:
        kind = CoreTiles
        chosen = contraction.forms(problem)
        unaligned = chosen["small"]

    def make(part: str, form: Any, vector: bool) -> Make:
        return lambda when: kind(context, problem, part, form, vector, vector, _GroupedTiles).build(when)

    found: list[Launch] = []
    for part, form in chosen.items():
        if form.rows not in segments.SIDES:
            continue
        busy = waves(tiles(context, problem, form.rows, form.columns), config["multiprocessors"], config["tenths_idle"])
        when = undecided(*(() if part == "small" else (busy,)))
        launch = make(part, form, True)(when) if when is not None else None
        if launch is not None:
            found.append(launch)
    last = make("any", unaligned, False)(())
    assert last is not None, "it takes everything"
    choice = f"group{context.group.index}"
    launches = [replace(launch, choice=choice) for launch in (*found, last)]
    return [segments.build_table(context, problem.segments), *launches]


class _GroupedTiles(TileKernel):
    """Tiles of rows that lie in one group each."""

    @contextmanager
    def tiles(self) -> Iterator[tuple[Scope, Expr, Expr]]:
        kernel, problem, side, code = self.kernel, self.problem, self.rows, self.kernel.code
        parts = problem.segments
        assert parts is not None
        table = segments.table(kernel, parts)
        others = problem.batch[1:]
        groups = self.extents[parts.groups]
        row_tiles = code.bind(segments.load(table, segments.tiles_line(side), groups), "row_tiles")
        column_tiles = code.bind(ceildiv(self.n, self.columns), "column_tiles")
        count = code.bind(mul(product_of(self.extents, others), row_tiles * column_tiles), "count")
        with self.tasks(count) as (task, found), found.when(task < count) as body:
            row_tile = body.bind(tirx.truncmod(task, row_tiles), "row_tile")
            rest = body.bind(tirx.truncdiv(task, row_tiles), "rest")
            group = segments.group_of_tile(body, table, side, row_tile, groups)
            begin, end = (body.bind(segments.load(table, 0, g), "edge") for g in (group, group + i64(1)))
            down = row_tile - segments.load(table, segments.tiles_line(side), group)
            first_row = body.bind(begin + down * i64(side), "first_row")
            batch = body.bind(tirx.truncdiv(rest, column_tiles), "batch")
            coords = {parts.groups: group, **unflatten(body, batch, others, self.extents)}
            first_column = body.bind(tirx.truncmod(rest, column_tiles) * i64(self.columns), "first_column")
            self.end = end
            yield Scope(kernel, body, coords), first_row, first_column

    def count(self) -> Extent:
        """Each group has a tile more than it fills, at most."""
        graph, problem = self.kernel.graph, self.problem
        assert problem.segments is not None
        down = cost.elements(graph, problem.rows) // self.rows + graph.extent(problem.segments.groups)
        across = (cost.elements(graph, problem.columns) + (self.columns - 1)) // self.columns
        return cost.elements(graph, problem.batch[1:]) * down * across

    def anywhere(self, dims: tuple[str, ...]) -> bool:
        return dims == self.problem.rows


def _default(group: Group, arch: str) -> Config:
    return {"multiprocessors": ARCHS[arch].sms, "tenths_idle": 3}


SCHEDULE = Schedule(
    name="cuda.grouped_contraction",
    target="cuda",
    pattern="grouped_contraction",
    region="any grouped contraction of floats that cuda.grouped_wgmma leaves",
    knobs={knob: mma.SCHEDULE.knobs[knob] for knob in ("multiprocessors", "tenths_idle")},
    serves=lambda group, arch: (
        compute_type(group.reductions[0].dtype).kind == "float" and not tensor_cores.grouped_by_wgmma(group, arch)
    ),
    default=_default,
    build=build,
)
