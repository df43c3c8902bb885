"""Strips that a thread holds in registers as they lie in memory, and results that leave in whole strips."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from opsgen.dsl.dtypes import float32
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, add, i64, mul
from opsgen.lowering.to_tir import Held, Memory, Scope, storage_name

from .half_forms import HALVES
from .kernels import call

Emit = Callable[[Memory, Expr], None]
"""Stores a value of the element at hand in a memory."""

Element = Callable[[Scope, Emit, Expr], None]
"""Computes one element, in a scope that has its position; the last argument is its number among those of the thread."""


def bytes_of(memory: Memory) -> int:
    """Of an element, in memory."""
    return memory.dtype.bytes


def address(buffer: Any, at: Expr) -> Expr:
    """Of an element."""
    return tirx.address_of(tirx.BufferLoad(buffer, [at]))


def at_own_position(own: Mapping[str, Expr], value: Callable[[], Expr]) -> Held:
    """What is held for the element at position ``own``, and not for others."""

    def load(coords: Mapping[str, Expr]) -> Expr | None:
        if any(coords.get(d, own.get(d)) is not own.get(d) for d in own):
            return None
        return value()

    return load


@dataclass(eq=False)
class _Words(Memory):
    """bfloat16 in 32-bit words: one instruction makes a float of either half."""

    def load(self, coords: Mapping[str, Expr]) -> Expr:
        return call("float32", "opsgen_of_words", address(self.buffer, i64(0)), self.offset(coords))


class Registers:
    """``count`` strips of ``width`` positions along ``dim``, of all the memories that are given by node id.

    ``aligned``: each strip begins in memory at a multiple of its size, or of 16 bytes.
    """

    def __init__(
        self,
        kernel: Kernel,
        code: Code,
        dim: str,
        width: int,
        count: int,
        memories: Mapping[int, Memory],
        aligned: bool = True,
    ) -> None:
        self.kernel = kernel
        self.dim = dim
        self.width = width
        self.aligned = aligned or width == 1
        self.memories = list({id(m): m for m in memories.values()}.values())
        self._here = {id(m): self._strips(code, m, count) for m in self.memories}
        self._held = {node: self._here[id(m)] for node, m in memories.items()}

    def _strips(self, code: Code, memory: Memory, count: int) -> Memory:
        if memory.dtype.name != "bfloat16" or self.width % 2:
            return self._local(code, memory, self.width * count, "strip")
        name = f"{memory.name}_strip"
        buffer = code.local("uint32", self.width * count // 2, name)
        return _Words(name, (self.dim,), memory.dtype, buffer, {self.dim: i64(1)})

    def _local(self, code: Code, memory: Memory, size: int, suffix: str) -> Memory:
        name = f"{memory.name}_{suffix}"
        buffer = code.local(storage_name(memory.dtype), size, name)
        return Memory(name, (self.dim,), memory.dtype, buffer, {self.dim: i64(1)}, narrow=memory.narrow)

    def pieces(self, memory: Memory, slot: Expr) -> Iterator[tuple[int, int, Expr]]:
        """A strip's pieces that move at once: the first byte, how many, and the address here."""
        buffer, nbytes = self._here[id(memory)].buffer, self.width * bytes_of(memory)
        unit = tvm.DataType(buffer.dtype).bits // 8
        for done in range(0, nbytes, 16):
            yield done, min(nbytes, 16), address(buffer, add(mul(slot, i64(nbytes // unit)), i64(done // unit)))

    def fetch(self, code: Code, slot: Expr, coords: Mapping[str, Expr], besides: Container[int] = ()) -> None:
        """The strips that begin at ``coords``, as those of number ``slot``; ``besides`` memories by id."""
        for memory in (m for m in self.memories if id(m) not in besides):
            offset = code.bind(memory.offset(coords), "at")
            for done, nbytes, to in self.pieces(memory, slot):
                source = address(memory.buffer, add(offset, i64(done // bytes_of(memory))))
                code.call(self._function("load", nbytes, memory), to, source)

    def copy(self, code: Code, other: Registers) -> None:
        """Single elements of the same memories."""
        for memory in self.memories:
            to, source = (address(r._here[id(memory)].buffer, i64(0)) for r in (self, other))
            code.call(f"opsgen_move{bytes_of(memory)}", to, source)

    def _function(self, kind: str, nbytes: int, memory: Memory) -> str:
        if self.aligned:
            return f"opsgen_move{nbytes}"
        # What all rows share is rarely aligned where rows are.
        where = "across" if kind == "load" and memory.dims == (self.dim,) else "any"
        return f"opsgen_{kind}_{where}<{nbytes}, {bytes_of(memory)}>"

    def hold(self, code: Code) -> None:
        """Lets go what the compiler made of the strips before."""
        for here in self._here.values():
            code.call(f"opsgen_hold_all<{here.buffer.shape[0]}>", address(here.buffer, i64(0)))

    def run(
        self,
        scope: Scope,
        slot: Expr,
        start: Expr,
        element: Element,
        others: Registers | None = None,
        multiple: bool = False,
    ) -> None:
        """Computes the elements of a strip, and stores what they emit for places along the dim at once. ``others`` hold
        a strip alone; ``multiple``: it starts at a multiple of its width."""
        dim, width, code = self.dim, self.width, scope.code
        results: dict[int, tuple[Memory, Memory]] = {}
        with code.loop(width, "lane", "unrolled") as (lane, lanes):
            position = lanes.bind(add(start, lane), dim)
            if multiple:
                self.kernel.strips[id(position)] = (position, start, lane, width)
            inside = scope.inner(lanes, {dim: position}, {})
            index = add(mul(slot, i64(width)), lane)
            for registers, at in ((self, index), (others, lane)):
                for node, here in registers._held.items() if registers is not None else ():
                    inside.held[node] = at_own_position(inside.coords, partial(here.load, {dim: at}))

            def emit(place: Memory, value: Expr) -> None:
                if place.dims[-1:] != (dim,) or width == 1:
                    place.store(inside.code, inside.coords, value)
                    return
                if id(place) not in results:
                    results[id(place)] = (place, self._result(code, place))
                results[id(place)][1].store(inside.code, {dim: lane}, value)

            element(inside, emit, index)
        for place, here in results.values():
            self._leave(code, place, place.offset({**scope.coords, dim: start}), here.buffer)

    def _result(self, code: Code, place: Memory) -> Memory:
        """Where a strip of results waits: floats, if they are rounded two at a time."""
        if place.dtype.name not in HALVES:
            return self._local(code, place, self.width, "out")
        buffer = code.local("float32", self.width, f"{place.name}_out")
        return Memory(place.name, (self.dim,), float32, buffer, {self.dim: i64(1)})

    def _leave(self, code: Code, place: Memory, offset: Expr, values: Any) -> None:
        at, nbytes = code.bind(offset, "at"), self.width * bytes_of(place)
        if place.dtype.name in HALVES:
            words = code.local("uint32", self.width // 2, f"{place.name}_words")
            code.call(f"opsgen_round_{place.dtype.name}<{self.width}>", *(address(b, i64(0)) for b in (words, values)))
            values = words
        unit = tvm.DataType(values.dtype).bits // 8
        for done in range(0, nbytes, 16):
            to = address(place.buffer, add(at, i64(done // bytes_of(place))))
            code.call(self._function("store", min(nbytes, 16), place), to, address(values, i64(done // unit)))
