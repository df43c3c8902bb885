"""How results leave a tensor-core kernel on sm_90a: sums in registers, swizzled shared memory, TMA.

A patch is 64 rows and 64 columns of a tile, 32 sums in a thread: thread t of a warpgroup has rows t/32·16 + t%32/4 and
8 below, and of each 8 columns the two from t%4·2 on. A box is what one TMA store moves, 64 rows of 128 bytes: a patch
of half-precision results is one, a patch of float32 results two. A box takes 16 registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T

from opsgen.lowering.statements import Expr

from . import hopper
from .tiles import BOX, WARPGROUP

STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group"
MATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16"
REGISTERS = 16
"""Of a thread, that hold a box."""

Results = Callable[[Sequence[Expr], Sequence[Expr], Sequence[Expr], Expr, Sequence[Expr]], Sequence[Sequence[Expr]]]
"""The results at two rows and two columns side by side, row after row, for each destination: of their sums, the layers,
the rows, the first column, and the words that TMA brought of what is read there, if it did: one a row."""
Write = Callable[[Sequence[Expr], Sequence[Expr], Sequence[Expr], Expr], None]
"""Stores the results; arguments as for `Results`, without words."""


@dataclass(frozen=True)
class Destination:
    """Where results of one value go: a tensor map with boxes of 64 rows and 128 bytes, innermost the columns."""

    map: Any
    dtype: str
    layers: tuple[int, ...] = ()
    """Which of the layers it has, in the order of its map."""
    address: Callable[[Expr, Expr], Expr] | None = None
    """Of a row and a column, where patches may be cut off: rows behind the end of a group are not stored."""
    columns: Expr = None
    """How many there are, an even number, for that."""

    @property
    def half(self) -> bool:
        return self.dtype not in ("float32", "int32")

    @property
    def boxes(self) -> int:
        """Of a patch."""
        return 1 if self.half else 2


def boxes_of_patch(destinations: Sequence[Destination]) -> int:
    return sum(d.boxes for d in destinations)


def slots_in_turn(slots: int, stores: int) -> int:
    """How many of the slots take turns, where a tile has so many stores: the next tile begins with the first again."""
    return slots if stores % slots == 0 else 1


class Boxes:
    """Packs and stores patches. ``me``: which consumer a warpgroup is; ``lead``: the thread that speaks to TMA."""

    def __init__(
        self, destinations: Sequence[Destination], shared: Any, slots: int, me: Expr, thread: Expr, lead: Expr
    ) -> None:
        self.destinations = destinations
        self.shared = shared
        self.slots = slots
        self.me = me
        self.lead = lead
        self.lane = thread % 32
        self.row = thread % WARPGROUP // 32 * 16
        self.matrix_row = self.row + self.lane // 8 % 2 * 8 + self.lane % 8
        self.matrix = self.lane // 16

    def pack(self, packed: Any, at: Expr, eight: Expr, values: Sequence[Sequence[Expr]]) -> None:
        """Puts the results of eight columns (``eight`` of 8) into registers: those of a patch from ``at`` on, and those
        of patches below it behind.
        """
        each = boxes_of_patch(self.destinations) * REGISTERS
        for destination, found in zip(self.destinations, values, strict=True):
            for i in range(len(found) // 4):
                first = at + i * each
                if destination.half:
                    for j in range(2):
                        both = hopper.pack(found[4 * i + 2 * j], found[4 * i + 2 * j + 1], destination.dtype)
                        T.buffer_store(packed, both, [first + eight * 2 + j])
                else:
                    for j in range(4):
                        T.buffer_store(packed, T.reinterpret("uint32", found[4 * i + j]), [first + eight * 4 + j])
            at = at + destination.boxes * REGISTERS

    def send(
        self, number: Expr, packed: Any, at: Expr, row: Expr, column: Expr, layers: Sequence[Expr], end: Expr = None
    ) -> None:
        """Stores the patch that is in registers from ``at`` on, at a row and a column of the results. ``number``: of
        the patch in its tile; ``end``: where destinations have addresses, rows from there on are not stored.
        """
        if all(d.address is None for d in self.destinations):
            self._send_whole(number, packed, at, row, column, layers)
            return
        with T.If(row + BOX <= end):
            with T.Then():
                self._send_whole(number, packed, at, row, column, layers)
            with T.Else():
                self._send_rows(packed, at, row, column, end)

    def _send_rows(self, packed: Any, at: Expr, row: Expr, column: Expr, end: Expr) -> None:
        """Stores a patch from registers, without the rows from ``end`` on."""
        for destination in self.destinations:
            assert destination.address is not None
            for eight in range(8):
                across = column + eight * 8 + self.lane % 4 * 2
                for below in range(2):
                    down = row + self.row + self.lane // 4 + below * 8
                    with T.If(T.And(down < end, across < destination.columns)), T.Then():
                        address = destination.address(down, across)
                        if destination.half:
                            T.evaluate(hopper.store_word(address, packed[at + eight * 2 + below]))
                        else:
                            first = at + eight * 4 + below * 2
                            T.evaluate(hopper.store_words(address, packed[first], packed[first + 1]))
            at = at + destination.boxes * REGISTERS
            # Slots are counted by groups of stores: an empty one for each box.
            for _ in range(destination.boxes):
                with T.If(self.lead), T.Then():
                    T.evaluate(T.ptx.cp.async_.bulk.commit_group())

    def _send_whole(self, number: Expr, packed: Any, at: Expr, row: Expr, column: Expr, layers: Sequence[Expr]) -> None:
        each = boxes_of_patch(self.destinations)
        index = 0
        for destination in self.destinations:
            place = [layers[d] for d in destination.layers]
            for part in range(destination.boxes):
                slot = (number * each + index) % self.slots * (BOX * BOX)
                self._wait(self.slots - 1)
                self._barrier()
                if destination.half:
                    self._fill_halves(packed, at, slot)
                else:
                    self._fill_floats(packed, at, slot)
                T.evaluate(T.ptx.fence.proxy.async_.shared__cta())
                self._barrier()
                source = self.shared.ptr_to([self.me, slot])
                first = column + part * 32
                with T.If(self.lead), T.Then():
                    store = T.ptx[STORE.format(2 + len(place))]
                    T.evaluate(store(T.address_of(destination.map), first, row, *place, source))
                    T.evaluate(T.ptx.cp.async_.bulk.commit_group())
                at = at + REGISTERS
                index += 1

    def _wait(self, pending: int) -> None:
        with T.If(self.lead), T.Then():
            T.evaluate(T.ptx.cp.async_.bulk.wait_group.read(pending))

    def _barrier(self) -> None:
        T.evaluate(T.ptx.bar.sync(T.Cast("uint32", 8 + self.me), T.uint32(WARPGROUP)))

    def take(self, words: Any, number: Expr) -> None:
        """Reads a patch of halves, which TMA brought into its box, as `_fill_halves` stores one: a warp what it
        overwrites itself.
        """
        for q in range(4):
            T.evaluate(hopper.load_matrices(words, q * 4, self._sixteen(number * (BOX * BOX), q)))

    def _sixteen(self, slot: Expr, q: int) -> Expr:
        """Where 16 bytes of a row lie that a thread says the address of, of the columns from 16 q on."""
        sixteen = T.bitwise_xor(q * 2 + self.matrix, self.lane % 8) * 8
        return self.shared.ptr_to([self.me, slot + self.matrix_row * BOX + sixteen])

    def _fill_halves(self, packed: Any, at: Expr, slot: Expr) -> None:
        for q in range(4):
            T.evaluate(T.ptx[MATRIX](self._sixteen(slot, q), *[packed[at + q * 4 + i] for i in range(4)]))

    def _fill_floats(self, packed: Any, at: Expr, slot: Expr) -> None:
        for q in range(4):
            # In units of two bytes: a row is 64, four floats are 8, and a thread has two of them.
            sixteen = T.bitwise_xor(q * 2 + self.lane % 4 // 2, self.lane // 4) * 8 + self.lane % 2 * 4
            for below in range(2):
                to = self.shared.ptr_to([self.me, slot + (self.row + self.lane // 4 + below * 8) * BOX + sixteen])
                first = at + q * 4 + below * 2
                T.evaluate(hopper.store_pair(to, packed[first], packed[first + 1]))
