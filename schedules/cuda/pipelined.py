"""The sum of a tile: a ring of stages in shared memory, filled ahead, and fragments of the next step in registers.

Each stage holds a tile of both operands. Those that lie in memory as they are wanted come by cp.async, some stages
ahead; others are read into registers one tile ahead of their stage, and computed behind the products of a step.
Fragments of the next step are loaded while those of this one are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tvm import tirx

from opsgen.lowering.statements import Code, Expr, add, constant, i64
from opsgen.lowering.to_tir import Scope

from .kernels import strided, synchronize
from .tile_kernel import TileKernel


class Operand(Protocol):
    """Brings an operand's tiles into shared memory."""

    asynchronous: bool
    """Whether they come by cp.async."""

    def place(self, scope: Scope, first: Expr) -> None:
        """Prepares for tiles from position ``first`` on along the own dims."""

    def begin(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Starts to bring the tile at step ``start`` of the sum to ``base``."""

    def end(self, code: Code, start: Expr, buffer: Any, base: Expr) -> None:
        """Puts there what comes through registers."""


Load = Callable[[Code, int, Expr], None]
"""Loads the fragments of a step from the stage at an offset; even and odd steps have registers of their own."""
Multiply = Callable[[Code, int, Any], None]
"""Adds the products of a step, whose fragments are loaded, to the sums."""


class Ring:
    """The stages: ``sizes`` are the elements of ``buffer`` that each operand's tile takes."""

    def __init__(
        self, tiles: TileKernel, operands: Sequence[Operand], sizes: Sequence[int], stages: int, buffer: Any
    ) -> None:
        self.tiles = tiles
        self.operands = operands
        self.asynchronous = any(o.asynchronous for o in operands)
        self.stages = stages if self.asynchronous else 2
        self.starts = [0, sizes[0]]
        self.stage = sum(sizes)
        self.buffer = buffer

    @property
    def size(self) -> int:
        """Elements of all stages."""
        return self.stages * self.stage

    def sum(
        self, scope: Scope, firsts: Sequence[Expr], count: int, dtype: str, depth: int, step: int, load: Load,
        multiply: Multiply,
    ) -> Any:  # fmt: skip
        """A thread's ``count`` sums over tiles of ``depth``, ``step`` of which are multiplied at a time."""
        code, tiles = scope.code, self.tiles
        sums = code.local(dtype, count, "sums")
        with code.loop(count, "i", "unrolled") as (i, body):
            body.store(sums, constant(0, dtype), i)
        for operand, first in zip(self.operands, firsts, strict=True):
            operand.place(scope, first)
        ahead = self.stages - 1
        for stage in range(ahead):
            self._begin(code, i64(stage * depth), i64(stage * self.stage))
            self._end(code, i64(stage * depth), i64(stage * self.stage))
        self._wait(code)
        reading, writing = (code.local("int32", 1, name) for name in ("reading", "writing"))
        code.store(reading, constant(0, "int32"), i64(0))
        code.store(writing, constant(ahead * self.stage, "int32"), i64(0))
        load(code, 0, i64(0))
        steps = depth // step
        with strided(code, i64(0), tiles.k, i64(depth), "start") as (start, body):
            following = body.bind(start + i64(ahead * depth), "following")
            to = body.bind(tirx.Cast("int64", tirx.BufferLoad(writing, [i64(0)])), "to")
            at = body.bind(tirx.Cast("int64", tirx.BufferLoad(reading, [i64(0)])), "from")
            for number in range(steps):
                if number == steps - 1:
                    self._end(body, following, to)
                    self._wait(body)
                    self._advance(body, reading)
                    at = body.bind(tirx.Cast("int64", tirx.BufferLoad(reading, [i64(0)])), "from")
                load(body, (number + 1) % steps, at)
                if number == 0:
                    self._begin(body, following, to)
                multiply(body, number, sums)
            self._advance(body, writing)
        if self.asynchronous:
            code.call("opsgen_wait_for_copies<0>")
        return sums

    def _begin(self, code: Code, start: Expr, to: Expr) -> None:
        for operand, at in zip(self.operands, self.starts, strict=True):
            operand.begin(code, start, self.buffer, add(to, i64(at)))
        if self.asynchronous:
            code.call("opsgen_copies_are_a_group")

    def _end(self, code: Code, start: Expr, to: Expr) -> None:
        for operand, at in zip(self.operands, self.starts, strict=True):
            operand.end(code, start, self.buffer, add(to, i64(at)))

    def _wait(self, code: Code) -> None:
        """Until the next stage is complete, and no thread reads the one before."""
        if self.asynchronous:
            code.call(f"opsgen_wait_for_copies<{self.stages - 2}>")
        synchronize(code)

    def _advance(self, code: Code, place: Any) -> None:
        following = code.bind(tirx.BufferLoad(place, [i64(0)]) + constant(self.stage, "int32"), "next")
        end = constant(self.size, "int32")
        code.store(place, tirx.Select(tirx.EQ(following, end), constant(0, "int32"), following), i64(0))
