"""Threads that reduce together, and how each of them comes to the total.

Totals are the same from run to run: who adds what to what depends on nothing but the sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import Reduce
from opsgen.lowering.statements import Code, Expr, add, constant, i64
from opsgen.lowering.to_tir import is_nan
from opsgen.schedules.common.search import Search, is_search
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, combine, exchange, rounds, synchronize

Parts = tuple[Expr, ...]
"""What is reduced together: one value, or of a search the best value, its position and whether there is one."""

Join = Callable[[Code, Parts, Parts], Parts]


def joining(r: Reduce) -> Join:
    """How two threads' parts of a reduction become one."""
    if not is_search(r):
        return lambda code, a, b: (code.bind(combine(r.op, a[0], b[0])),)

    def better(a: Expr, b: Expr) -> Expr:
        found = a > b if r.op == "argmax" else a < b
        if not a.ty.dtype.startswith("float"):
            return found
        return tirx.And(tirx.Or(found, is_nan(a)), tirx.Not(is_nan(b)))

    def join(code: Code, a: Parts, b: Parts) -> Parts:
        """The first extreme wins, whoever found it; a NaN wins over all numbers."""
        there, other = (tirx.NE(x[2], constant(0, "int32")) for x in (a, b))
        first = tirx.And(tirx.Not(better(a[0], b[0])), b[1] < a[1])
        takes = tirx.And(other, tirx.Or(tirx.Not(there), tirx.Or(better(b[0], a[0]), first)))
        take = code.bind(tirx.Cast("int32", takes), "take")
        chosen = tirx.NE(take, constant(0, "int32"))
        return (
            code.bind(tirx.Select(chosen, b[0], a[0])),
            code.bind(tirx.Select(chosen, b[1], a[1])),
            code.bind(a[2] | b[2]),
        )

    return join


def parts_of(code: Code, r: Reduce, state: Any) -> Parts:
    """What a thread found."""
    buffers = (state.best, state.position, state.seen) if isinstance(state, Search) else (state,)
    return tuple(code.bind(tirx.BufferLoad(b, [i64(0)]), r.op) for b in buffers)


class RowTeam:
    """``size`` threads that lie side by side in the block: part of a warp, a warp, or several whole warps."""

    def __init__(self, kernel: DeviceKernel, size: int) -> None:
        self.kernel = kernel
        self.size = size
        self.teams = kernel.threads // size
        code = kernel.code
        self.rank = kernel.thread if self.teams == 1 else code.bind(tirx.truncmod(kernel.thread, i64(size)), "rank")
        self.number = i64(0) if self.teams == 1 else code.bind(tirx.truncdiv(kernel.thread, i64(size)), "team")
        self._shared: dict[tuple[int, int], Any] = {}

    @property
    def waits(self) -> bool:
        """Whether the threads meet at barriers of the block, so that all of them must come by."""
        return self.size > WARP

    def total(self, code: Code, r: Reduce, parts: Parts) -> Parts:
        """The total of all threads of the team, in each of them."""
        join = joining(r)
        for other in rounds(min(self.size, WARP)):
            parts = join(code, parts, tuple(code.bind(exchange(p, other)) for p in parts))
        if not self.waits:
            return parts
        warps = self.size // WARP
        buffers = [self._buffer(r, i, p.ty.dtype, warps) for i, p in enumerate(parts)]
        lane = code.bind(tirx.truncmod(self.rank, i64(WARP)), "lane")
        with code.when(tirx.EQ(lane, i64(0))) as first:
            for buffer, part in zip(buffers, parts, strict=True):
                first.store(buffer, part, tirx.truncdiv(self.rank, i64(WARP)))
        synchronize(code)
        at = lane if warps == WARP else code.bind(tirx.truncmod(lane, i64(warps)), "at")
        parts = tuple(code.bind(tirx.BufferLoad(b, [at])) for b in buffers)
        for other in rounds(warps):
            parts = join(code, parts, tuple(code.bind(exchange(p, other)) for p in parts))
        return parts

    def _buffer(self, r: Reduce, part: int, dtype: str, warps: int) -> Any:
        if (id(r), part) not in self._shared:
            self._shared[id(r), part] = self.kernel.shared(dtype, warps, f"{r.op}_of_warps")
        return self._shared[id(r), part]


class ColumnTeam:
    """Threads that have the same column: one of each warp, for the threads of a warp have neighbouring columns."""

    def __init__(self, kernel: DeviceKernel) -> None:
        self.kernel = kernel
        self.size = kernel.threads // WARP
        self.column = kernel.code.bind(tirx.truncmod(kernel.thread, i64(WARP)), "lane")
        self.rank = kernel.code.bind(tirx.truncdiv(kernel.thread, i64(WARP)), "rank")
        self._shared: dict[tuple[int, int], Any] = {}

    def total(self, code: Code, r: Reduce, parts: Parts) -> Parts:
        """The total of all threads that have the column, in each of them."""
        join = joining(r)
        buffers = []
        for i, part in enumerate(parts):
            if (id(r), i) not in self._shared:
                self._shared[id(r), i] = self.kernel.shared(part.ty.dtype, self.kernel.threads, f"{r.op}_of_ranks")
            buffers.append(self._shared[id(r), i])
            code.store(buffers[-1], part, self.kernel.thread)
        synchronize(code)

        def of(rank: int) -> Parts:
            at = add(i64(rank * WARP), self.column)
            return tuple(code.bind(tirx.BufferLoad(b, [at])) for b in buffers)

        total = of(0)
        for rank in range(1, self.size):
            total = join(code, total, of(rank))
        return total
