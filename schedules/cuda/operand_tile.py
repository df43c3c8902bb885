"""A tile of one operand on its way to shared memory: from device memory to registers, and from there, as computed.

Both halves are apart so that products run between them. A tile falls into pieces of ``width`` elements along the sum,
or along the operand's own dims where it is contiguous there; a thread has several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import is_transpose
from opsgen.dsl.tensor import At, Tensor
from opsgen.lowering.statements import Code, Expr, add, constant, i64
from opsgen.lowering.to_tir import Memory, Scope, storage_name
from opsgen.schedules.common.operands import contiguous
from opsgen.schedules.common.positions import unflatten

from .strip import bytes_of, move, width_for
from .tile_kernel import TileKernel


@dataclass(frozen=True)
class Piece:
    """Where a piece lies: in its tile (``at`` along the operand's own dims, ``step`` along the sum), and its own
    position, which is inside where the piece lies along the sum."""

    scope: Scope
    at: Expr
    step: Expr
    position: Expr


Store = Callable[[Code, Piece, Any], None]
"""Puts the values of a piece, a buffer of ``width`` floats, into shared memory."""


def read_directly(kernel: Any, root: Tensor, dims: set[str]) -> dict[int, Memory]:
    """All memory that a value reads at its own position, by node id."""
    found: dict[int, Memory] = {}
    stack, seen = [root], set[int]()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        memory = kernel.memory(n)
        if memory is not None:
            if set(memory.dims) <= dims:
                found[id(n)] = memory
        elif not isinstance(n, At) or is_transpose(n):
            stack.extend(n.children())
    return found


def plain_memory(kernel: Any, operand: Tensor) -> Memory | None:
    """The memory that an operand is, maybe with its dims in another order."""
    while kernel.memory(operand) is None and is_transpose(operand):
        (operand,) = operand.children()
    found: Memory | None = kernel.memory(operand)
    return found


class OperandTile:
    """Tiles of ``operand``: ``side`` positions along its own dims, ``depth`` along the sum.

    With ``vector``, memory is read 16 bytes at a time; the launch sees to it that it is aligned.
    """

    def __init__(
        self,
        tiles: TileKernel,
        operand: Tensor,
        own: tuple[str, ...],
        side: int,
        depth: int,
        vector: bool,
        width: int | None = None,
    ) -> None:
        self.tiles = tiles
        self.operand = operand
        self.own = own
        self.side = side
        self.depth = depth
        self.kernel = kernel = tiles.kernel
        problem = tiles.problem
        self.own_extent = tiles.m if own == problem.rows else tiles.n
        self.along_sum = along_sum(tiles, operand, own)
        self.dims = problem.summed if self.along_sum else own
        known = {*problem.batch, *own, *problem.summed}
        direct = read_directly(kernel, operand, known)
        last = self.dims[-1]
        self.loads = {key: m for key, m in direct.items() if m.dims[-1:] == (last,)}
        self.plain = plain_memory(kernel, operand) is not None and bool(self.loads)
        self.width = width or max(min(width_for(list(self.loads.values())), 8), 16 // (8 if self._wide else 4))
        self.width = min(self.width, side * depth // kernel.threads)
        self.vector = vector and self.can_vector(tiles, operand, own)
        if self.vector:
            for memory in self.loads.values():
                tiles.moved[id(memory)] = (memory, self.width)
            tiles.multiples.append((kernel.graph.extent(last), self.width))
        pieces = side * depth // self.width
        assert pieces % kernel.threads == 0, "threads have equal shares of a tile"
        self.turns = pieces // kernel.threads
        self.inner_count = (depth if self.along_sum else side) // self.width

    @property
    def _wide(self) -> bool:
        return self.tiles.type == "float64"

    @staticmethod
    def can_vector(tiles: TileKernel, operand: Tensor, own: tuple[str, ...]) -> bool:
        """Whether the operand reads memory along one dim that can be moved 16 bytes at a time."""
        dims = tiles.problem.summed if along_sum(tiles, operand, own) else own
        known = {*tiles.problem.batch, *own, *tiles.problem.summed}
        loads = [m for m in read_directly(tiles.kernel, operand, known).values() if m.dims[-1:] == dims[-1:]]
        return len(dims) == 1 and bool(loads) and not tiles.anywhere(dims)

    # -- a task --------------------------------------------------------------------------------------------------------
    def place(self, scope: Scope, first: Expr) -> None:
        """The thread's pieces of tiles from position ``first`` on, and registers for them."""
        tiles, code, width = self.tiles, scope.code, self.width
        self.pieces: list[Piece] = []
        apart, rest = divmod(self.kernel.threads, self.inner_count)
        places = [self._split(code, tiles.kernel.thread)]
        for turn in range(1, self.turns):
            if rest == 0:  # further along the slow side only: known distances need no registers
                places.append((places[0][0], code.bind(places[0][1] + i64(turn * apart), "slow")))
            else:
                places.append(self._split(code, tiles.kernel.thread + i64(turn * self.kernel.threads)))
        for quick, slow in places:
            at, step = (slow, quick) if self.along_sum else (quick, slow)
            position = code.bind(first + at, "position")
            inside = scope
            if self.along_sum:
                # Past the end, the last position is read instead: what comes of it is stored nowhere.
                position = code.bind(tirx.Min(position, self.own_extent - i64(1)), "own")
                inside = scope.inner(code, unflatten(code, position, self.own, tiles.extents))
            self.pieces.append(Piece(inside, at, step, position))
        self.raw = {
            key: code.local(storage_name(m.dtype), width * self.turns, f"{m.name}_raw") for key, m in self.loads.items()
        }

    def _split(self, code: Code, number: Expr) -> tuple[Expr, Expr]:
        """Of a piece's number: its first element on the side that is contiguous in memory, and where on the other."""
        quick = code.bind(tirx.truncmod(number, i64(self.inner_count)) * i64(self.width), "quick")
        return quick, code.bind(tirx.truncdiv(number, i64(self.inner_count)), "slow")

    def fetch(self, code: Code, start: Expr) -> None:
        """Memory of the tile at steps from ``start`` on, to registers; zeros past the ends."""
        width = self.width
        for turn, piece in enumerate(self.pieces):
            k = code.bind(start + piece.step, "k")
            for key, memory in self.loads.items():
                raw = self.raw[key]
                first = turn * width
                clear(code, raw, first, width * bytes_of(memory), bytes_of(memory))
                if self.vector:
                    with code.when(self._inside(piece, k, i64(0))) as known:
                        here = self._at(piece.scope.inner(known, {}), piece, k, i64(0))
                        offset = known.bind(memory.offset(here.coords), "at")
                        move(known, raw, i64(first), memory.buffer, offset, width * bytes_of(memory), bytes_of(memory))
                    continue
                with (
                    code.loop(width, "lane", "unrolled") as (lane, body),
                    body.when(self._inside(piece, k, lane)) as at,
                ):
                    here = self._at(piece.scope.inner(at, {}), piece, k, lane)
                    at.store(raw, tirx.BufferLoad(memory.buffer, [memory.offset(here.coords)]), i64(first) + lane)

    def put(self, code: Code, start: Expr, store: Store) -> None:
        """What was fetched for steps from ``start`` on, as values; zeros past the ends."""
        width, dtype = self.width, self.tiles.problem.node.dtype
        for turn, piece in enumerate(self.pieces):
            k = code.bind(start + piece.step, "k")
            values = code.local(self.tiles.type, width, "values")

            def element(scope: Scope, lane: Expr, turn: int = turn, piece: Piece = piece, k: Expr = k) -> Expr:
                here = self._at(scope, piece, k, lane)
                for key, memory in self.loads.items():
                    raw = Memory(
                        memory.name, ("lane",), memory.dtype, self.raw[key], {"lane": i64(1)}, narrow=memory.narrow
                    )
                    here.held[key] = _own(raw, here.coords, i64(turn * width) + lane)
                return here.value_in(self.operand, dtype)

            if self.plain:
                with code.loop(width, "lane", "unrolled") as (lane, body):
                    body.store(values, element(piece.scope.inner(body, {}), lane), lane)
            else:
                with code.loop(width, "lane", "unrolled") as (lane, body):
                    body.store(values, constant(0, self.tiles.type), lane)
                if self.vector:
                    with (
                        code.when(self._inside(piece, k, i64(0))) as known,
                        known.loop(width, "lane", "unrolled") as (lane, body),
                    ):
                        body.store(values, element(piece.scope.inner(body, {}), lane), lane)
                else:
                    with (
                        code.loop(width, "lane", "unrolled") as (lane, body),
                        body.when(self._inside(piece, k, lane)) as known,
                    ):
                        known.store(values, element(piece.scope.inner(known, {}), lane), lane)
            store(code, piece, values)

    def _inside(self, piece: Piece, k: Expr, lane: Expr) -> Expr:
        """Whether there is such an element."""
        if self.along_sum:
            return add(k, lane) < self.tiles.k
        return tirx.And(k < self.tiles.k, add(piece.position, lane) < self.own_extent)

    def _at(self, scope: Scope, piece: Piece, k: Expr, lane: Expr) -> Scope:
        """The scope of an element."""
        code, tiles = scope.code, self.tiles
        if self.along_sum:
            return scope.inner(code, unflatten(code, code.bind(add(k, lane), "k"), self.dims, tiles.extents))
        coords = unflatten(code, k, tiles.problem.summed, tiles.extents)
        own = unflatten(code, code.bind(add(piece.position, lane), "own"), self.own, tiles.extents)
        return scope.inner(code, {**coords, **own})


def along_sum(tiles: TileKernel, operand: Tensor, own: tuple[str, ...]) -> bool:
    """Whether neighbouring threads had better read along the sum."""
    return not own or contiguous(tiles.kernel, operand, tiles.problem.summed[-1])


def _own(memory: Memory, own: Mapping[str, Expr], lane: Expr) -> Callable[[Mapping[str, Expr]], Expr | None]:
    """The value in registers at an element's own position; elsewhere it is not held."""

    def load(coords: Mapping[str, Expr]) -> Expr | None:
        if any(coords.get(d, own.get(d)) is not own.get(d) for d in own):
            return None
        return memory.load({"lane": lane})

    return load


def clear(code: Code, buffer: Any, first: int, nbytes: int, size: int) -> None:
    """Zeros in a buffer whose elements have ``size`` bytes."""
    piece = min(nbytes, 16)
    for start in range(0, nbytes, piece):
        at = tirx.BufferLoad(buffer, [i64(first + start // size)])
        code.call(f"opsgen_clear{piece}", tirx.address_of(at))
