"""Tiles in shared memory for CUDA cores: a line for each step of the sum.

What is contiguous along the sum is transposed on its way: through registers, 16 bytes at a time, or element by element
beside the threads, where memory needs no alignment but its own. The latter takes a turn of shared memory for each row
that a warp reads (ncu, H200), a third of what the products take.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import Tensor
from opsgen.lowering.statements import Code, Expr, add, i64, mul
from opsgen.lowering.to_tir import Memory, Scope

from .operand_tile import OperandTile, Piece, along_sum, plain_memory
from .tile_kernel import TileKernel

_STEPS = 8
"""Steps of the sum that a warp copies of four rows: 32 bytes of each, to different banks."""
_GAP = 8
"""Elements."""


class CopiedWords:
    """Tiles of memory that is the operand, with elements of the compute type."""

    asynchronous = True

    def __init__(self, tiles: TileKernel, operand: Tensor, own: tuple[str, ...], side: int, depth: int) -> None:
        self.tiles = tiles
        memory = plain_memory(tiles.kernel, operand)
        assert memory is not None
        self.memory: Memory = memory
        self.bytes = memory.dtype.bytes
        self.own, self.side, self.depth = own, side, depth
        self.pitch = side + 16 // self.bytes
        self.own_extent = tiles.m if own == tiles.problem.rows else tiles.n
        self.along_sum = along_sum(tiles, operand, own)
        threads = tiles.threads
        if self.along_sum:
            self.apart, self.steps = threads // _STEPS, depth // _STEPS
            self.turns = side // self.apart
        else:
            self.apart, self.steps = threads // side, 1
            self.turns = depth // self.apart

    @staticmethod
    def serves(tiles: TileKernel, operand: Tensor, own: tuple[str, ...], side: int) -> bool:
        """Whether the operand is such memory, with one own dim and one that is summed, and threads come out even."""
        memory = plain_memory(tiles.kernel, operand)
        if memory is None or memory.dtype.name != tiles.type or len(own) != 1 or len(tiles.problem.summed) != 1:
            return False
        rows = tiles.threads // _STEPS if along_sum(tiles, operand, own) else side
        return memory.dtype.bytes in (4, 8) and (side % rows == 0 and tiles.threads % rows == 0)

    def line(self, step: int) -> int:
        """Where the elements of a step begin; lines are 16 bytes longer than what they hold."""
        return step * self.pitch

    def place(self, scope: Scope, first: Expr) -> None:
        """The thread's elements of tiles from position ``first`` on."""
        code, thread = scope.code, self.tiles.kernel.thread
        inner = _STEPS if self.along_sum else self.side
        quick = code.bind(tirx.truncmod(thread, i64(inner)), "quick")
        slow = code.bind(tirx.truncdiv(thread, i64(inner)), "slow")
        at, self.step = (slow, quick) if self.along_sum else (quick, slow)
        self.to = code.bind(self.step * i64(self.pitch) + at, "to")
        (own,), (summed,) = self.own, self.tiles.problem.summed
        position = code.bind(first + at, "position")
        self.left = code.bind(self.own_extent - position, "left")
        self.scope = scope.inner(code, {own: position})
        self.stride = code.bind(mul(self.memory.strides[own if self.along_sum else summed], i64(self.apart)), "apart")

    def begin(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Starts to copy the tile at ``start`` to ``base``."""
        (summed,) = self.tiles.problem.summed
        to = code.bind(base + self.to, "to")
        k = code.bind(start + self.step, "k")
        beyond = code.bind(self.tiles.k - k, "beyond")
        offset = code.bind(self.memory.offset(self.scope.inner(code, {summed: k}).coords), "at")
        for turn in range(self.turns):
            if turn:
                offset = code.bind(offset + self.stride, "at")
            for step in range(self.steps):
                apart = i64(turn * self.apart)
                inside = (
                    tirx.And(beyond > i64(step * _STEPS), self.left > apart)
                    if self.along_sum
                    else tirx.And(beyond > apart, self.left > i64(0))
                )
                line = turn * self.apart * (1 if self.along_sum else self.pitch) + self.line(step * _STEPS)
                code.call(
                    f"opsgen_copy{self.bytes}",
                    tirx.address_of(tirx.BufferLoad(buffer, [add(to, i64(line))])),
                    tirx.address_of(tirx.BufferLoad(self.memory.buffer, [add(offset, i64(step * _STEPS))])),
                    inside,
                )

    def end(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Nothing: threads wait for copies together."""


class StagedWords:
    """Tiles that go through registers, where the operand's expression is computed."""

    asynchronous = False

    def __init__(
        self, tiles: TileKernel, operand: Tensor, own: tuple[str, ...], side: int, depth: int, vector: bool
    ) -> None:
        self.size = 8 if tiles.type == "float64" else 4
        self.side = side
        self.tile = OperandTile(tiles, operand, own, side, depth, vector)

    @staticmethod
    def serves(tiles: TileKernel, operand: Tensor, own: tuple[str, ...]) -> bool:
        """Whether memory is read 16 bytes at a time."""
        return OperandTile.can_vector(tiles, operand, own)

    def line(self, step: int) -> int:
        """Where the elements of a step begin. Every four lines are followed by a gap, so that pieces of four along the
        sum go to different banks."""
        return step * self.side + step // 4 * _GAP

    def place(self, scope: Scope, first: Expr) -> None:
        self.tile.place(scope, first)

    def begin(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        self.tile.fetch(code, start)

    def end(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """A piece along the sum goes to as many lines, another to one."""
        tile = self.tile

        def store(code: Code, piece: Piece, values: Any) -> None:
            gaps = tirx.truncdiv(piece.step, i64(4)) * i64(_GAP)
            line = code.bind(base + (piece.step * i64(self.side) + gaps) + piece.at, "line")
            if tile.along_sum:
                for lane in range(tile.width):
                    code.store(buffer, tirx.BufferLoad(values, [i64(lane)]), add(line, i64(self.line(lane))))
                return
            for start in range(0, tile.width, 16 // self.size):
                code.call(
                    "opsgen_move16",
                    tirx.address_of(tirx.BufferLoad(buffer, [add(line, i64(start))])),
                    tirx.address_of(tirx.BufferLoad(values, [i64(start)])),
                )

        tile.put(code, start, store)
