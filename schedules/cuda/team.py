"""Threads that reduce together, and how each of them comes to the total.

Totals are the same from run to run: who adds what to what depends on nothing but the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx

from opsgen.dsl.tensor import Reduce
from opsgen.lowering.statements import Code, Expr, add, constant, i64, mul, truncdiv
from opsgen.lowering.to_tir import is_nan
from opsgen.schedules.common.reductions import neutral
from opsgen.schedules.common.search import Search, is_search
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, combine, exchange, rounds, strided, synchronize

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
    """``size`` threads that lie side by side in the block: part of a warp, a warp, or several whole warps; or all those
    of the ``cluster`` blocks of a cluster."""

    def __init__(self, kernel: DeviceKernel, size: int, cluster: int = 1) -> None:
        self.kernel = kernel
        self.size = size
        self.cluster = cluster
        self.teams = kernel.threads // size
        code = kernel.code
        self.rank = kernel.thread if self.teams == 1 else code.bind(tirx.truncmod(kernel.thread, i64(size)), "rank")
        self.number = i64(0) if self.teams == 1 else code.bind(tirx.truncdiv(kernel.thread, i64(size)), "team")
        self.block = i64(0) if cluster == 1 else code.bind(tirx.truncmod(kernel.block, i64(cluster)), "block")
        self.rank_in_row = self.rank if cluster == 1 else code.bind(self.block * i64(size) + self.rank, "rank_in_row")
        self._shared: dict[tuple[int, int, int], Any] = {}
        self._turn: Expr = None  # whether the block's task is an odd one
        self._phase: Expr = None  # of barriers for it
        self.step: Expr = None  # from a block's task to its next

    @contextmanager
    def tasks(self, count: Expr) -> Iterator[tuple[Expr, Code]]:
        """The tasks of the thread's team, or of all teams of its block, who do one of them together."""
        kernel, code = self.kernel, self.kernel.code
        first, step = (truncdiv(x, self.cluster) for x in (kernel.block, kernel.blocks))
        self.step, count = code.bind(step, "step"), code.bind(count, "tasks")
        loop = Code(scope="local")
        with strided(loop, first, count, self.step, "task") as (task, body):
            if self.cluster > 1:
                turn = body.bind(tirx.Cast("int32", tirx.truncdiv(task, self.step)), "turn")
                self._turn, self._phase = (
                    turn & constant(1, "int32"),
                    (turn >> constant(1, "int32")) & constant(1, "int32"),
                )
            yield task, body
            if self.waits and self.cluster == 1:
                synchronize(body)  # before what the threads share is written for the next task
        if self.cluster > 1:
            code.call("opsgen_cluster_start")
        code.statements.extend(loop.statements)

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
        if self.cluster > 1:
            return self._of_cluster(code, r, parts)
        warps = self.size // WARP
        buffers = [self._buffer(r, i, p.ty.dtype, warps * self.teams) for i, p in enumerate(parts)]
        own = mul(self.number, i64(warps))
        lane = code.bind(tirx.truncmod(self.rank, i64(WARP)), "lane")
        with code.when(tirx.EQ(lane, i64(0))) as first:
            for buffer, part in zip(buffers, parts, strict=True):
                first.store(buffer, part, add(own, tirx.truncdiv(self.rank, i64(WARP))))
        synchronize(code)
        lanes = 1 << (warps - 1).bit_length()
        # Every group of lanes takes the warps in the same order, so that all threads have the same total.
        turn = lane if lanes == WARP else code.bind(tirx.truncmod(lane, i64(lanes)), "turn")
        at = code.bind(add(own, turn if lanes == warps else tirx.Min(turn, i64(warps - 1))), "at")
        parts = tuple(code.bind(tirx.BufferLoad(b, [at])) for b in buffers)
        if lanes > warps:
            some = turn < i64(warps)
            nothing = (neutral(r), i64(0), constant(0, "int32"))
            parts = tuple(code.bind(tirx.Select(some, p, n)) for p, n in zip(parts, nothing, strict=False))
        for other in rounds(lanes):
            parts = join(code, parts, tuple(code.bind(exchange(p, other)) for p in parts))
        return parts

    def _of_cluster(self, code: Code, r: Reduce, parts: Parts) -> Parts:
        """The total of all warps of all blocks: each sends its own to all blocks.

        Buffers and barriers alternate. Who sends for the next row but one has the totals of the next, and so has every
        warp begun with that and read those of this row.
        """
        join, warps = joining(r), self.size // WARP
        count = self.cluster * warps
        buffers = [self._buffer(r, i, p.ty.dtype, 2 * count, "blocks") for i, p in enumerate(parts)]
        barriers, odd = self._barriers(r), code.bind(tirx.Cast("int64", self._turn), "odd")
        barrier = tirx.address_of(tirx.BufferLoad(barriers, [odd]))
        base = code.bind(odd * i64(count), "base")
        nbytes = count * sum(tvm.DataType(p.ty.dtype).bits // 8 for p in parts)
        with code.when(tirx.EQ(self.rank, i64(0))) as first:
            first.call("opsgen_barrier_expect", barrier, constant(nbytes, "int32"))
        lane = code.bind(tirx.truncmod(self.rank, i64(WARP)), "lane")
        own = code.bind(base + self.block * i64(warps) + tirx.truncdiv(self.rank, i64(WARP)), "own")
        with code.when(lane < i64(self.cluster)) as each:
            for buffer, part in zip(buffers, parts, strict=True):
                place = tirx.address_of(tirx.BufferLoad(buffer, [own]))
                each.call("opsgen_cluster_send", place, part, barrier, tirx.Cast("int32", lane))
        code.call("opsgen_barrier_wait", barrier, self._phase)

        def of(number: int) -> Parts:
            at = lane if count >= WARP else tirx.truncmod(lane, i64(count))
            return tuple(code.bind(tirx.BufferLoad(b, [base + at + i64(number * WARP)])) for b in buffers)

        total = of(0)
        for number in range(1, count // WARP):
            total = join(code, total, of(number))
        for other in rounds(min(count, WARP)):
            total = join(code, total, tuple(code.bind(exchange(p, other)) for p in total))
        return total

    def _barriers(self, r: Reduce) -> Any:
        """Two that complete when all blocks have sent; initialised before the first task."""
        key = (id(r), 0, 2)
        if key not in self._shared:
            self._shared[key] = buffer = self.kernel.shared("uint64", 2, "arrived")
            with self.kernel.code.when(tirx.EQ(self.rank, i64(0))) as first:
                for i in range(2):
                    first.call("opsgen_barrier_init", tirx.address_of(tirx.BufferLoad(buffer, [i64(i)])))
        return self._shared[key]

    def _buffer(self, r: Reduce, part: int, dtype: str, size: int, of: str = "warps") -> Any:
        key = (id(r), part, int(of == "blocks"))
        if key not in self._shared:
            self._shared[key] = self.kernel.shared(dtype, size, f"{r.op}_of_{of}")
        return self._shared[key]


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
