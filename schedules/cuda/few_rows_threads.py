"""Contractions with few rows without tensor cores: any floats, operands computed by whatever expressions they have.

The threads of a block lie along the sum: each has strips of a few columns and of all rows in registers, multiplies
them, and the warps' sums come together at the end.

H200, float32, 4096×4096: 27.6 µs for one row (torch 31.8), 28.7 for four (38.7), 33.1 for eight (54.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, constant, i64
from opsgen.lowering.to_tir import Held, Memory, Scope, storage_name
from opsgen.schedules.common.operands import Problem, contiguous
from opsgen.schedules.common.schedule import Context
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, exchange, rounds, strided
from .split_sums import SplitSums
from .strip import aligned, bytes_of, move, readable, width_for


@dataclass(frozen=True)
class Form:
    """Rows and columns of a task, at most 32 sums; ``resident`` blocks of ``warps`` on a multiprocessor."""

    rows: int
    columns: int = 4
    warps: int = 8
    resident: int = 2


@dataclass(frozen=True)
class _Line:
    """A row or column of a task: where it is, the operand that it is of, and the memory that comes in strips."""

    scope: Scope
    operand: Tensor
    loads: Mapping[int, Memory]


class FewRowsThreads(SplitSums):
    """The kernel for as many rows as the form has."""

    @staticmethod
    def serves(context: Context, problem: Problem) -> bool:
        """Whether both operands are contiguous along the sum, which has one dim."""
        kernel = DeviceKernel(context, "trial", WARP)
        last = problem.summed[-1]
        both = (problem.left, problem.right)
        return len(problem.summed) == 1 and all(contiguous(kernel, operand, last) for operand in both)

    def __init__(self, context: Context, problem: Problem, form: Form) -> None:
        self.form = form
        [self.dim] = problem.summed
        trial = DeviceKernel(context, "trial", WARP)
        loads = {**_loads(trial, problem, problem.left), **_loads(trial, problem, problem.right)}
        self.width = width_for(list(loads.values()))
        part = f"few_rows_{form.rows}"
        super().__init__(context, problem, part, form.warps, form.rows, form.columns, WARP * self.width)

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, problem, form, code = self.kernel, self.problem, self.form, self.code
        left, right = (_loads(kernel, problem, operand) for operand in (problem.left, problem.right))
        memories = [*left.values(), *right.values()]
        flag = aligned(code, memories, self.width) if self.width > 1 else None
        first = code.bind(self.first + self.lane * i64(self.width), "first_own")
        with self.tasks() as (body, share):
            self.sums = body.local(self.type, form.rows * form.columns, "sums")
            with body.loop(form.rows * form.columns, "i", "unrolled") as (i, clear):
                clear.store(self.sums, constant(0, self.type), i)
            columns = [self.column_at(body, add(share.column, i64(i))) for i in range(form.columns)]
            lines = [_Line(share.scope.inner(body, c), problem.right, right) for c in columns]
            lines += [_Line(share.scope.inner(body, r), problem.left, left) for r in self.rows_of(body)]
            with strided(body, first, self.k, self.stride, "start") as (start, step):
                if flag is None:
                    self._one_by_one(step, start, lines)
                else:
                    fits = tirx.And(tirx.NE(flag, tirx.IntImm("int32", 0)), start + i64(self.width) <= self.k)
                    with step.either(fits) as (whole, rest):
                        self._at_once(whole, start, lines)
                        self._one_by_one(rest, start, lines)
            self._keep_all(body)
            self.total(body)
        return self.launch(when, form.resident)

    # -- a thread's positions of the sum -------------------------------------------------------------------------------
    def _at_once(self, code: Code, start: Expr, lines: list[_Line]) -> None:
        """A strip of each row and column. All their moves are under way before anything is computed."""
        strips = [{key: self._strip(code, line, m, start) for key, m in line.loads.items()} for line in lines]
        with code.loop(self.width, "lane", "unrolled") as (lane, body):
            position = body.bind(start + lane, self.dim)
            here = []
            for line, registers in zip(lines, strips, strict=True):
                inside = line.scope.inner(body, {self.dim: position}, {})
                inside.held.update({key: _held(memory, inside.coords, lane) for key, memory in registers.items()})
                here.append(inside)
            self._products(body, here, lines)

    def _one_by_one(self, code: Code, start: Expr, lines: list[_Line]) -> None:
        """The same where memory is not aligned, or the sum ends within the strip."""
        left = code.bind(tirx.Min(i64(self.width), self.k - start), "left")
        with code.loop(left, "lane") as (lane, body):
            position = body.bind(start + lane, self.dim)
            self._products(body, [line.scope.inner(body, {self.dim: position}) for line in lines], lines)

    def _strip(self, code: Code, line: _Line, memory: Memory, start: Expr) -> Memory:
        buffer = code.local(storage_name(memory.dtype), self.width, f"{memory.name}_strip")
        at = code.bind(memory.offset({**line.scope.coords, self.dim: start}), "at")
        size = bytes_of(memory)
        move(code, buffer, i64(0), memory.buffer, at, self.width * size, size)
        return Memory(f"{memory.name}_strip", (self.dim,), memory.dtype, buffer, {self.dim: i64(1)})

    def _products(self, code: Code, scopes: list[Scope], lines: list[_Line]) -> None:
        """Adds one position of the sum."""
        dtype, across = self.problem.node.dtype, self.form.columns
        values = [s.value_in(line.operand, dtype) for s, line in zip(scopes, lines, strict=True)]
        values = [code.bind(v, "value") for v in values]
        for r, x in enumerate(values[across:]):
            for c, w in enumerate(values[:across]):
                at = i64(r * across + c)
                code.store(self.sums, tirx.Add(tirx.BufferLoad(self.sums, [at]), tirx.Mul(x, w)), at)

    # -- the warp's sums -----------------------------------------------------------------------------------------------
    def _keep_all(self, code: Code) -> None:
        """The warp's sums, handed over. Threads halve what each of them has as they exchange it, so that a thread ends
        with one total, or a few with the same.
        """
        count = self.form.rows * self.form.columns
        size = 1 << (count - 1).bit_length()
        values = [tirx.BufferLoad(self.sums, [i64(i)]) if i < count else None for i in range(size)]
        spread = WARP // size
        for other in rounds():
            if size == 1:
                values = [self._joined(code, values[0], values[0], other)]
                continue
            size //= 2
            upper = tirx.NE(self.lane & i64(other), i64(0))
            values = [self._halved(code, upper, values[i], values[i + size], other) for i in range(size)]
        index = code.bind(tirx.truncdiv(self.lane, i64(spread)) if spread > 1 else self.lane, "index")
        mine = tirx.And(tirx.EQ(self.lane - index * i64(spread), i64(0)), index < i64(count))
        with code.when(mine) as body:
            row = body.bind(tirx.truncdiv(index, i64(self.form.columns)), "row")
            self.keep(body, values[0], row, body.bind(index - row * i64(self.form.columns), "column"))

    def _halved(self, code: Code, upper: Expr, first: Any, second: Any, other: int) -> Expr | None:
        """Of two sums, one a thread: the second where ``upper`` holds."""
        if first is None:
            return None
        second = constant(0, self.type) if second is None else second
        keeps = code.bind(tirx.Select(upper, second, first), "keeps")
        gives = code.bind(tirx.Select(upper, first, second), "gives")
        return self._joined(code, keeps, gives, other)

    def _joined(self, code: Code, mine: Expr, given: Expr, other: int) -> Expr:
        return code.bind(tirx.Add(mine, exchange(given, other)), "sum")


def _loads(kernel: DeviceKernel, problem: Problem, operand: Tensor) -> dict[int, Memory]:
    """What an operand is computed from and lies along the sum, by node id."""
    dims = {*problem.batch, *problem.summed, *operand.dims}
    return readable(kernel, [operand], problem.summed[0], dims)


def _held(memory: Memory, own: Mapping[str, Expr], lane: Expr) -> Held:
    """The strip's element, at the thread's own position; elsewhere the value is not held."""

    def load(coords: Mapping[str, Expr]) -> Expr | None:
        if any(coords.get(d, own.get(d)) is not own.get(d) for d in own):
            return None
        return memory.load(dict.fromkeys(memory.dims, lane))

    return load
