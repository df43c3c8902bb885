"""Tiles of operands in shared memory for ldmatrix: rows of halves, their pieces of 16 bytes swizzled.

A tile has rows along the operand's own dims where the operand is contiguous along the sum, else along the sum. Of eight
rows below each other, pieces with the same number lie in different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import Tensor
from opsgen.lowering.statements import Code, Expr, add, i64, mul
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import unflatten

from .kernels import call
from .operand_tile import OperandTile, Piece, along_sum, plain_memory
from .tile_kernel import TileKernel

CHUNK = 8
"""Elements of a piece of 16 bytes."""
_WORDS = 4
"""Words of one."""


@dataclass(frozen=True)
class Layout:
    """``side`` positions along the operand's own dims, ``depth`` along the sum; ``across``: rows are along the sum."""

    side: int
    depth: int
    across: bool

    @property
    def chunks(self) -> int:
        """Pieces of a row."""
        return (self.side if self.across else self.depth) // CHUNK

    @property
    def words(self) -> int:
        """Of a tile: 4 bytes each."""
        return self.side * self.depth // 2

    def at(self, row: Expr, chunk: Expr) -> Expr:
        """Where a piece lies, in words."""
        turn = row & i64(7) if self.chunks >= 8 else tirx.truncdiv(row, i64(8 // self.chunks)) & i64(self.chunks - 1)
        return row * i64(self.chunks * _WORDS) + (chunk ^ turn) * i64(_WORDS)

    def fragments(self, code: Code, lane: Expr, first: Expr, count: int, right: bool) -> Callable[[int, int], Expr]:
        """Of the 16 × 16 elements with a number from ``first`` on (a multiple of 16) along the own dims, at a step of
        the sum: the row of 16 bytes that a thread names to ldmatrix, in words."""
        eight = tirx.truncmod(lane, i64(8))
        middle = tirx.truncmod(tirx.truncdiv(lane, i64(8)), i64(2))
        upper = tirx.truncdiv(lane, i64(16))
        own, summed = (upper, middle) if right else (middle, upper)
        line = self.chunks * _WORDS
        if self.across:
            row = summed * i64(8) + eight
            chunk = tirx.truncdiv(first, i64(CHUNK)) + own
            bases = [code.bind(self.at(row, add(chunk, i64(2 * i))), "from") for i in range(count)]
            return lambda number, step: add(bases[number], i64(step * line))
        row = first + own * i64(8) + eight
        steps = {s: code.bind(self.at(row, add(summed, i64(s // CHUNK))), "from") for s in range(0, self.depth, 16)}
        return lambda number, step: add(steps[step], i64(number * 16 * line))


class Staged:
    """Tiles that go through registers, where the operand's expression is computed."""

    asynchronous = False

    def __init__(
        self, tiles: TileKernel, operand: Tensor, own: tuple[str, ...], layout: Layout, dtype: str, terms: int,
        vector: bool,
    ) -> None:  # fmt: skip
        self.tiles = tiles
        self.layout = layout
        self.dtype = dtype
        self.terms = terms
        self.tile = OperandTile(tiles, operand, own, layout.side, layout.depth, vector, CHUNK)
        memory = plain_memory(tiles.kernel, operand)
        self.bits = self.tile.plain and memory is not None and memory.dtype.name == dtype

    def place(self, scope: Scope, first: Expr) -> None:
        self.tile.place(scope, first)

    def begin(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Reads the tile at ``start``, into registers."""
        self.tile.fetch(code, start)

    def end(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Puts it into shared memory."""
        if self.bits:
            for turn, piece in enumerate(self.tile.pieces):
                (raw,) = self.tile.raw.values()
                self._move(code, buffer, self._place(code, piece, base), raw, turn * CHUNK)
            return
        self.tile.put(code, start, lambda body, piece, values: self._round(body, piece, values, buffer, base))

    def _place(self, code: Code, piece: Piece, base: Expr) -> Expr:
        row, along = (piece.step, piece.at) if self.layout.across else (piece.at, piece.step)
        return code.bind(base + self.layout.at(row, tirx.truncdiv(along, i64(CHUNK))), "place")

    def _round(self, code: Code, piece: Piece, values: Any, buffer: Any, base: Expr) -> None:
        """The values as halves, and what is left of them as further halves."""
        place = self._place(code, piece, base)
        for term in range(self.terms):
            packed = code.local("uint32", CHUNK // 2, "packed")
            with code.loop(CHUNK // 2, "pair", "unrolled") as (pair, body):
                both = [body.bind(tirx.BufferLoad(values, [pair * i64(2) + i64(i)]), "value") for i in range(2)]
                if term + 1 < self.terms:
                    near = [body.bind(call("float32", "opsgen_nearest_bfloat16", x), "near") for x in both]
                    for i, (x, y) in enumerate(zip(both, near, strict=True)):
                        body.store(values, call("float32", "opsgen_beyond", x, y), pair * i64(2) + i64(i))
                body.store(packed, call("uint32", f"opsgen_pack_{self.dtype}", *both), pair)
            self._move(code, buffer, add(place, i64(term * self.layout.words)), packed, 0)

    def _move(self, code: Code, buffer: Any, place: Expr, source: Any, at: int) -> None:
        code.call(
            "opsgen_move16",
            tirx.address_of(tirx.BufferLoad(buffer, [place])),
            tirx.address_of(tirx.BufferLoad(source, [i64(at)])),
        )


class Copied:
    """Tiles of memory that holds the operand as it is, copied 16 bytes at a time beside the threads."""

    asynchronous = True
    terms = 1

    def __init__(self, tiles: TileKernel, operand: Tensor, own: tuple[str, ...], layout: Layout) -> None:
        self.tiles = tiles
        self.own = own
        self.layout = layout
        memory = plain_memory(tiles.kernel, operand)
        assert memory is not None
        self.memory: Memory = memory
        self.own_extent = tiles.m if own == tiles.problem.rows else tiles.n
        tiles.moved[id(memory)] = (memory, CHUNK)
        tiles.multiples.append((tiles.kernel.graph.extent(memory.dims[-1]), CHUNK))
        self.turns = layout.side * layout.depth // CHUNK // tiles.threads

    @staticmethod
    def serves(tiles: TileKernel, operand: Tensor, own: tuple[str, ...], dtype: str) -> bool:
        """Whether the operand is such memory: contiguous along the sum, or along its only own dim."""
        memory = plain_memory(tiles.kernel, operand)
        if memory is None or memory.dtype.name != dtype:
            return False
        dims = tiles.problem.summed if along_sum(tiles, operand, own) else own
        return len(dims) == 1 and memory.dims[-1:] == dims and not tiles.anywhere(dims)

    def place(self, scope: Scope, first: Expr) -> None:
        """The thread's pieces of tiles from position ``first`` on."""
        tiles, code, layout = self.tiles, scope.code, self.layout
        apart, rest = divmod(tiles.threads, layout.chunks)
        assert rest == 0 and apart % 8 == 0, "a thread's pieces lie below each other, swizzled alike"
        self.chunk = code.bind(tirx.truncmod(tiles.kernel.thread, i64(layout.chunks)), "chunk")
        self.row = code.bind(tirx.truncdiv(tiles.kernel.thread, i64(layout.chunks)), "row")
        self.to = code.bind(layout.at(self.row, self.chunk), "to")
        self.apart = apart
        position = self.row if not layout.across else self.chunk * i64(CHUNK)
        self.position = code.bind(first + position, "position")
        self.left = code.bind(self.own_extent - self.position, "left")
        dims = tiles.problem.summed if layout.across else self.own
        self.step = None
        if len(dims) == 1:  # pieces are equally far apart: no position is computed for each
            self.step = code.bind(mul(self.memory.strides[dims[0]], i64(apart)), "apart")
        self.scopes = [scope.inner(code, {self.own[0]: self.position})]
        if not layout.across:
            # Past the end, the last position is named instead, or none is read.
            owns = [self.position]
            if self.step is None:
                rows = [first + self.row + i64(turn * apart) for turn in range(self.turns)]
                owns = [code.bind(tirx.Min(row, self.own_extent - i64(1)), "own") for row in rows]
            self.scopes = [scope.inner(code, unflatten(code, own, self.own, tiles.extents)) for own in owns]

    def begin(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Starts to copy the tile at ``start`` to ``base``."""
        tiles, layout = self.tiles, self.layout
        to = code.bind(base + self.to, "to")
        first = self.row if layout.across else self.chunk * i64(CHUNK)
        k = code.bind(start + first, "k")
        beyond = code.bind(tiles.k - k, "beyond")
        along, down = (self.left, beyond) if layout.across else (beyond, self.left)
        offset: Expr = None
        for turn in range(self.turns):
            scope = self.scopes[min(turn, len(self.scopes) - 1)]
            if self.step is None or offset is None:
                at = k if self.step is not None or not layout.across else code.bind(k + i64(turn * self.apart), "k")
                here = scope.inner(code, unflatten(code, at, tiles.problem.summed, tiles.extents))
                offset = code.bind(self.memory.offset(here.coords), "at")
            else:
                offset = code.bind(offset + self.step, "at")
            place = add(to, i64(turn * self.apart * layout.chunks * _WORDS))
            code.call(
                "opsgen_copy16",
                tirx.address_of(tirx.BufferLoad(buffer, [place])),
                tirx.address_of(tirx.BufferLoad(self.memory.buffer, [offset])),
                tirx.And(along > i64(0), down > i64(turn * self.apart)),
            )

    def end(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Nothing: threads wait for copies together."""
