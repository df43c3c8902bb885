"""Stores past the caches, for results that would not stay there.

A store first reads the line that it will overwrite, and lines that nobody reads soon push out others: where the
results of a launch exceed `stream_bytes`, whole lines are written without either. Such a store needs an address that is
a multiple of its size, so a row starts with single elements up to the next line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, i64, mul
from opsgen.lowering.to_tir import Memory

LINE = 64
"""Bytes of a cache line."""

_PIECES = (64, 32, 16)
"""Bytes that one store can write."""

STREAM_BYTES = (32 << 20, 8 << 20, 128 << 20)
"""Values of the knob: results of at least so many bytes go past the caches. The first is the default: an L3 cache's
size."""

SHORTEST = 512
"""Rows with fewer elements are not worth the single ones at their start."""


class Streaming:
    """Which results of a kernel can go past the caches, and when they do."""

    def __init__(self, kernel: Kernel, nodes: list[Tensor], dims: tuple[str, ...], code: Code, limit: int) -> None:
        """``nodes`` are stored along the last of ``dims``; the decision is made once, in ``code``."""
        self.last = dims[-1]
        found = [
            m for n in nodes for m in kernel.destinations(n) if set(m.dims) == set(dims) and m.dims[-1] == dims[-1]
        ]
        self.places = [m for m in found if m.dtype == found[0].dtype]
        if not self.places:
            return
        size = i64(self.places[0].dtype.bytes)
        moved = mul(kernel.expr(cost.elements(kernel.graph, dims)), size)
        conditions = [moved >= i64(limit), kernel.extent(self.last) >= i64(SHORTEST)]
        first, *others = self.places
        for m in others:  # all rows of all results begin at the same place in a line
            apart = self._address(code, m, {d: i64(0) for d in m.dims})
            apart = apart - self._address(code, first, {d: i64(0) for d in m.dims})
            for step in (apart, *((m.strides[d] - first.strides[d]) * size for d in dims[:-1])):
                conditions.append(tirx.EQ(step & i64(LINE - 1), i64(0)))
        self.chosen = reduce(tirx.And, conditions)

    def _address(self, code: Code, memory: Memory, coords: Mapping[str, Expr]) -> Expr:
        at = tirx.address_of(tirx.BufferLoad(memory.buffer, [memory.offset(coords)]))
        return code.bind(tirx.call_extern("int64", "opsgen_address", at), "address")

    def head(self, code: Code, coords: Mapping[str, Expr], length: Expr) -> Expr:
        """How many elements from ``coords`` on lie before the next line, at most ``length``."""
        memory = self.places[0]
        address = self._address(code, memory, coords)
        before = tirx.truncdiv((i64(0) - address) & i64(LINE - 1), i64(memory.dtype.bytes))
        return code.bind(tirx.Min(before, length), "head")


class Lines:
    """One vector step's results on their way: collected in registers by `take`, stored by `flush`."""

    def __init__(self, streaming: Streaming, code: Code, width: int) -> None:
        self.streaming = streaming
        self.code = code
        self.width = width
        self.size = next((s for s in _PIECES if self.bytes % s == 0), 0)
        self.held: list[tuple[Memory, Any]] = []

    @property
    def bytes(self) -> int:
        return self.width * self.streaming.places[0].dtype.bytes

    def take(self, code: Code, place: Memory, coords: Mapping[str, Expr], lane: Expr, value: Expr) -> None:
        """Keeps one lane's value of a result, or stores it where the result does not go past the caches."""
        if not self.size or all(place is not m for m in self.streaming.places):
            place.store(code, coords, value)
            return
        line = next((held for memory, held in self.held if memory is place), None)
        if line is None:
            line = self.code.local(place.buffer.dtype, self.width, "line")
            self.held.append((place, line))
        Memory("line", ("lane",), place.dtype, line, {"lane": i64(1)}).store(code, {"lane": lane}, value)

    def sink(self, lane: Expr) -> Callable[[Code, Memory, Mapping[str, Expr], Expr], None]:
        """What takes the place of `Memory.store` for one lane."""
        return lambda code, place, coords, value: self.take(code, place, coords, lane, value)

    def flush(self, coords: Mapping[str, Expr]) -> None:
        """Stores what was taken, from the position of the first lane on."""
        for place, line in self.held:
            count = self.size // place.dtype.bytes
            name = f"opsgen_stream_{place.buffer.dtype}x{count}"
            offset = self.code.bind(place.offset(coords), "to")
            for i in range(0, self.width, count):
                piece = tirx.BufferLoad(line, [tirx.Ramp(i64(i), i64(1), count)])
                self.code.call(name, tirx.address_of(tirx.BufferLoad(place.buffer, [offset + i64(i)])), piece)


def end(code: Code) -> None:
    """After the last of a task's stores: they become visible before anything that follows."""
    code.call("opsgen_stream_end")
