"""Contractions on CUDA cores: both operands' tiles in a ring in shared memory, a thread's sums in registers.

A warp's threads are four down and eight across: of a line of each tile they read 64 and 128 bytes at a time. Sums are
in the compute type, nothing is rounded before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Context

from .kernels import synchronize
from .pipelined import Ring
from .tile_kernel import TileKernel
from .word_tiles import CopiedWords, StagedWords

_DOWN, _ACROSS = 4, 8
"""Threads of a warp."""
_GROUP = 4
"""Rows (columns) of a thread that lie side by side."""


@dataclass(frozen=True)
class Form:
    """A tile's rows and columns, and those of a thread; ``depth``: steps of the sum in a stage. ``resident``: blocks
    that a multiprocessor has to hold."""

    rows: int
    columns: int
    down: int
    across: int
    depth: int
    stages: int
    resident: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.down * self.across)


LARGE = Form(256, 128, 16, 8, depth=16, stages=3, resident=1)
MEDIUM = Form(128, 64, 8, 8, depth=16, stages=3, resident=3)
SMALL = Form(64, 64, 8, 4, depth=16, stages=3, resident=4)
WIDE = Form(64, 64, 4, 4, depth=16, stages=2, resident=1)
"""For float64."""


class CoreTiles:
    """The kernel ``part`` with tiles of a form; with ``vector`` for operands that can be read 16 bytes at a time, else
    for any call. ``single``: see `TileKernel`."""

    def __init__(
        self,
        context: Context,
        problem: Problem,
        part: str,
        form: Form,
        vector: bool,
        single: bool,
        kernel: type[TileKernel] = TileKernel,
    ) -> None:
        self.form = form
        tiles = kernel(context, problem, part, form.rows, form.columns, form.threads, _GROUP, single)
        self.tiles = tiles
        self.size = 8 if tiles.type == "float64" else 4
        self.operands = [
            self._operand(operand, own, side, vector)
            for operand, own, side in (
                (problem.left, problem.rows, form.rows),
                (problem.right, problem.columns, form.columns),
            )
        ]
        self.buffer = tiles.kernel.dynamic(tiles.type)
        sizes = [o.line(form.depth) for o in self.operands]
        self.ring = Ring(tiles, self.operands, sizes, form.stages, self.buffer)
        across = form.columns // (_ACROSS * form.across)
        code = tiles.kernel.code
        self.row = code.bind(
            tirx.truncdiv(tiles.warp, i64(across)) * i64(_DOWN * form.down)
            + tirx.truncdiv(tiles.lane, i64(_ACROSS)) * i64(_GROUP),
            "row",
        )
        self.column = code.bind(
            tirx.truncmod(tiles.warp, i64(across)) * i64(_ACROSS * form.across)
            + tirx.truncmod(tiles.lane, i64(_ACROSS)) * i64(_GROUP),
            "column",
        )

    def _operand(self, operand: Tensor, own: tuple[str, ...], side: int, vector: bool) -> CopiedWords | StagedWords:
        through_registers = vector and StagedWords.serves(self.tiles, operand, own)
        if not through_registers and CopiedWords.serves(self.tiles, operand, own, side):
            return CopiedWords(self.tiles, operand, own, side, self.form.depth)
        return StagedWords(self.tiles, operand, own, side, self.form.depth, vector)

    def build(self, when: tuple[Comparison, ...]) -> Launch | None:
        """The kernel for calls that meet ``when``; None if there are no such calls."""
        with self.tiles.tiles() as (scope, first_row, first_column):
            sums = self.multiply(scope, first_row, first_column)
            self.store(scope, first_row, first_column, sums)
            if not self.tiles.single:
                synchronize(scope.code)
        return self.tiles.launch(when, self.form.resident, self.ring.size * self.size)

    # -- the sum -------------------------------------------------------------------------------------------------------
    def multiply(self, scope: Scope, first_row: Expr, first_column: Expr) -> Any:
        """The sums of a thread, row by row."""
        form, dtype = self.form, self.tiles.type
        self.a = scope.code.local(dtype, 2 * form.down, "a")
        self.b = scope.code.local(dtype, 2 * form.across, "b")
        count, firsts = form.down * form.across, (first_row, first_column)
        return self.ring.sum(scope, firsts, count, dtype, form.depth, 1, self._load, self._multiply)

    def _load(self, code: Code, step: int, stage: Expr) -> None:
        """A thread's elements of a line of each tile: fours, as far apart as the warp's fours reach."""
        form = self.form
        for operand, start, place, into, count, threads in (
            (self.operands[0], self.ring.starts[0], self.row, self.a, form.down, _DOWN),
            (self.operands[1], self.ring.starts[1], self.column, self.b, form.across, _ACROSS),
        ):
            first = code.bind(add(stage, place), "first")
            for group in range(count // _GROUP):
                for part in range(0, _GROUP, 16 // self.size):
                    at = add(first, i64(start + operand.line(step) + group * threads * _GROUP + part))
                    code.call(
                        "opsgen_move16",
                        tirx.address_of(tirx.BufferLoad(into, [i64(step % 2 * count + group * _GROUP + part)])),
                        tirx.address_of(tirx.BufferLoad(self.buffer, [at])),
                    )

    def _multiply(self, code: Code, step: int, sums: Any) -> None:
        form = self.form
        with (
            code.loop(form.down, "i", "unrolled") as (i, rows),
            rows.loop(form.across, "j", "unrolled") as (j, cell),
        ):
            at = i * i64(form.across) + j
            a = tirx.BufferLoad(self.a, [i + i64(step % 2 * form.down)])
            b = tirx.BufferLoad(self.b, [j + i64(step % 2 * form.across)])
            cell.store(sums, tirx.Add(tirx.BufferLoad(sums, [at]), tirx.Mul(a, b)), at)

    # -- the results ---------------------------------------------------------------------------------------------------
    def store(self, scope: Scope, first_row: Expr, first_column: Expr, sums: Any) -> None:
        """The group's stored values at a thread's rows and columns."""
        form, tiles, code = self.form, self.tiles, scope.code
        width = tiles.strip
        with code.loop(form.down, "i", "unrolled") as (i, body):
            row = body.bind(first_row + self.row + _spread(i, _DOWN), "row")
            with body.when(row < tiles.end) as inside:
                here = tiles.row(scope.inner(inside, {}), row)
                with inside.loop(form.across // width, "j", "unrolled") as (j, cell):
                    own = cell.bind(j * i64(width), "own")
                    column = cell.bind(first_column + self.column + _spread(own, _ACROSS), "column")
                    with cell.when(column < tiles.n) as known:
                        tiles.finish(here.inner(known, {}), column, sums, i * i64(form.across) + own)


def _spread(index: Expr, threads: int) -> Expr:
    """Where a thread's row (column) of that number lies, from its first on."""
    group, rest = tirx.truncdiv(index, i64(_GROUP)), tirx.truncmod(index, i64(_GROUP))
    return group * i64(threads * _GROUP) + rest
