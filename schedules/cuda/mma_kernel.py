"""The kernel of the tensor-core contraction by mma.sync: tiles in a ring in shared memory, sums in float32 registers.

A warp's sums go through its own part of shared memory to rows of neighbouring columns, where the epilogue runs and
stores 16 bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, constant, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import unflatten
from opsgen.schedules.common.schedule import Context

from .exact_halves import terms
from .kernels import synchronize
from .mma_tiles import Copied, Layout, Staged
from .operand_tile import along_sum
from .pipelined import Ring
from .tile_kernel import TileKernel

_PAD = 8
"""Words between a warp's rows of sums, so that a store of eight rows meets all banks."""


@dataclass(frozen=True)
class Form:
    """A block's tile is ``rows`` by ``columns``, cut among ``down`` by ``across`` warps; ``depth`` steps of the sum
    are a stage. ``resident``: blocks that a multiprocessor has to hold."""

    rows: int
    columns: int
    down: int
    across: int
    depth: int
    stages: int
    resident: int

    @property
    def threads(self) -> int:
        return 32 * self.down * self.across

    @property
    def high(self) -> int:
        """Blocks of 16 rows of a warp."""
        return self.rows // self.down // 16

    @property
    def wide(self) -> int:
        """Blocks of 8 columns of a warp."""
        return self.columns // self.across // 8


class MmaKernel:
    """The kernel ``part``; with ``vector`` for memory that can be moved 16 bytes at a time, else for any
    call. ``single``: see `TileKernel`."""

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
        self.tiles = tiles = kernel(context, problem, part, form.rows, form.columns, form.threads, 8, single)
        pair = (problem.left, problem.right)
        self.dtype, counts = terms(pair, problem.node.dtype.name)
        self.left = self._operand(pair[0], problem.rows, form.rows, counts[0], vector)
        self.right = self._operand(pair[1], problem.columns, form.columns, counts[1], vector)
        self.products = [(i, j) for i in range(counts[0]) for j in range(counts[1]) if i + j < max(counts)]
        self.buffer = tiles.kernel.dynamic("float32")
        operands = (self.left, self.right)
        self.ring = Ring(tiles, operands, [o.terms * o.layout.words for o in operands], form.stages, self.buffer)
        self.pitch = form.wide * 8 + _PAD
        self.part = 16 * self.pitch
        self.shared = 4 * max(self.ring.size, form.down * form.across * self.part)
        code = tiles.kernel.code
        self.row = code.bind(tirx.truncdiv(tiles.warp, i64(form.across)) * i64(form.high * 16), "warp_row")
        self.column = code.bind(tirx.truncmod(tiles.warp, i64(form.across)) * i64(form.wide * 8), "warp_column")
        self.fragments = [
            o.layout.fragments(code, tiles.lane, first, count, right)
            for o, first, count, right in (
                (self.left, self.row, form.high, False), (self.right, self.column, form.wide // 2, True),
            )
        ]  # fmt: skip

    def _operand(self, operand: Tensor, own: tuple[str, ...], side: int, count: int, vector: bool) -> Copied | Staged:
        layout = Layout(side, self.form.depth, not along_sum(self.tiles, operand, own))
        if vector and Copied.serves(self.tiles, operand, own, self.dtype):
            return Copied(self.tiles, operand, own, layout)
        return Staged(self.tiles, operand, own, layout, self.dtype, count, vector)

    def build(self, when: tuple[Comparison, ...]) -> Launch | None:
        """The kernel for calls that meet ``when``; None if there are no such calls."""
        with self.tiles.tiles() as (scope, first_row, first_column):
            sums = self.multiply(scope, first_row, first_column)
            self.store(scope, first_row, first_column, sums)
        return self.tiles.launch(when, self.form.resident, self.shared)

    # -- the sum -------------------------------------------------------------------------------------------------------
    def multiply(self, scope: Scope, first_row: Expr, first_column: Expr) -> Any:
        """A thread's sums: of each block of 16 rows and 8 columns four."""
        form, code = self.form, scope.code
        self.a, self.b = (
            code.local("uint32", 2 * o.terms * size, name)
            for o, size, name in ((self.left, form.high * 4, "a"), (self.right, form.wide * 2, "b"))
        )
        count, firsts = form.high * form.wide * 4, (first_row, first_column)
        sums = self.ring.sum(scope, firsts, count, "float32", form.depth, 16, self._load, self._multiply)
        synchronize(code)
        return sums

    def _load(self, code: Code, step: int, stage: Expr) -> None:
        """Fragments of both operands at a step of a stage."""
        form = self.form
        for operand, fragment, start, into, blocks in (
            (self.left, self.fragments[0], self.ring.starts[0], self.a, form.high),
            (self.right, self.fragments[1], self.ring.starts[1], self.b, form.wide // 2),
        ):
            name = "opsgen_load_transposed" if operand.layout.across else "opsgen_load_matrices"
            for term in range(operand.terms):
                for number in range(blocks):
                    at = i64(((step % 2 * operand.terms + term) * blocks + number) * 4)
                    base = add(stage, i64(start + term * operand.layout.words))
                    place = add(base, fragment(number, step * 16))
                    code.call(
                        name,
                        tirx.address_of(tirx.BufferLoad(into, [at])),
                        tirx.address_of(tirx.BufferLoad(self.buffer, [place])),
                    )

    def _multiply(self, code: Code, step: int, sums: Any) -> None:
        """The products of a step, whose fragments are loaded."""
        form = self.form
        for i, j in self.products:
            left = (step % 2 * self.left.terms + i) * form.high * 4
            right = (step % 2 * self.right.terms + j) * form.wide * 2
            with (
                code.loop(form.high, "row", "unrolled") as (row, rows),
                rows.loop(form.wide, "column", "unrolled") as (column, body),
            ):
                at = (row * i64(form.wide) + column) * i64(4)
                body.call(
                    f"opsgen_mma_{self.dtype}",
                    tirx.address_of(tirx.BufferLoad(sums, [at])),
                    tirx.address_of(tirx.BufferLoad(self.a, [row * i64(4) + i64(left)])),
                    tirx.address_of(tirx.BufferLoad(self.b, [column * i64(2) + i64(right)])),
                )

    # -- the results ---------------------------------------------------------------------------------------------------
    def store(self, scope: Scope, first_row: Expr, first_column: Expr, sums: Any) -> None:
        """The group's stored values at a warp's rows and columns, 16 rows at a time."""
        form, tiles, code = self.form, self.tiles, scope.code
        mine = code.bind(tiles.warp * i64(self.part), "mine")
        pair = code.bind(
            mine + tirx.truncdiv(tiles.lane, i64(4)) * i64(self.pitch) + tirx.truncmod(tiles.lane, i64(4)) * i64(2),
            "pair",
        )
        row_from = code.bind(first_row + self.row, "row_from")
        column_from = code.bind(first_column + self.column, "column_from")
        width = tiles.strip
        strips = form.wide * 8 // width
        with code.loop(form.high, "block", "unrolled") as (block, body):
            with body.loop(form.wide, "column", "unrolled") as (column, inner):
                for half in range(2):
                    at = (block * i64(form.wide) + column) * i64(4) + i64(half * 2)
                    place = pair + (column * i64(8) + i64(half * 8 * self.pitch))
                    self._copy(inner, self.buffer, place, sums, at, 2)
            body.call("opsgen_synchronize_warp")
            with body.loop(16 * strips // 32, "turn") as (turn, each):
                number = each.bind(turn * i64(32) + tiles.lane, "number")
                down = each.bind(tirx.truncdiv(number, i64(strips)), "down")
                right = each.bind(tirx.truncmod(number, i64(strips)) * i64(width), "right")
                row = each.bind(row_from + (block * i64(16) + down), "row")
                column = each.bind(column_from + right, "column")
                with each.when(tirx.And(row < tiles.end, column < tiles.n)) as inside:
                    strip = inside.local("float32", width, "strip")
                    place = inside.bind(mine + (down * i64(self.pitch) + right), "place")
                    if len(self.products) > 1:
                        self._again(scope.inner(inside, {}), row, column, width, place)
                    for first in range(0, width, 4):
                        self._copy(inside, strip, i64(first), self.buffer, add(place, i64(first)), min(width, 4))
                    tiles.finish(tiles.row(scope.inner(inside, {}), row), column, strip, i64(0))
            body.call("opsgen_synchronize_warp")
        if not tiles.single:
            synchronize(code)

    def _again(self, scope: Scope, row: Expr, column: Expr, width: int, place: Expr) -> None:
        """Sums of a strip that are not finite, anew in float32: parts of a number times infinity are NaN, or infinities
        of either sign."""
        tiles, problem = self.tiles, self.tiles.problem
        magnitude, infinity = tirx.IntImm("int32", 0x7FFFFFFF), tirx.IntImm("int32", 0x7F800000)
        with scope.code.loop(width, "lane") as (lane, each):
            at = each.bind(column + lane, "column")
            bits = tirx.reinterpret("int32", tirx.BufferLoad(self.buffer, [place + lane])) & magnitude
            with each.when(tirx.And(at < tiles.n, bits >= infinity)) as body:
                total = body.local("float32", 1, "total")
                body.store(total, constant(0, "float32"), i64(0))
                here = tiles.row(scope.inner(body, {}), row)
                here = here.inner(body, unflatten(body, at, problem.columns, tiles.extents))
                with body.loop(tiles.k, "k") as (k, inner):
                    element = here.inner(inner, unflatten(inner, k, problem.summed, tiles.extents))
                    pair = (element.value_in(f, problem.node.dtype) for f in (problem.left, problem.right))
                    inner.store(total, tirx.Add(tirx.BufferLoad(total, [i64(0)]), tirx.Mul(*pair)), i64(0))
                body.store(self.buffer, tirx.BufferLoad(total, [i64(0)]), place + lane)

    def _copy(self, code: Code, to: Any, to_at: Expr, source: Any, at: Expr, count: int) -> None:
        """A few sums, all at once."""
        code.call(
            f"opsgen_move{4 * count}",
            tirx.address_of(tirx.BufferLoad(to, [to_at])),
            tirx.address_of(tirx.BufferLoad(source, [at])),
        )
