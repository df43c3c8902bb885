"""Contractions with few rows on tensor cores: the right operand's columns are the instruction's sixteen rows.

Every element of the right operand is read once, 16 bytes a thread and from device memory straight to registers. The
order of positions within a sum is free as long as both operands have the same: a thread's 16 bytes are positions that
lie side by side, which it multiplies by the same positions of the rows. The fragments of mma.m16n8k16 (PTX manual) are
for thread 4g + p: columns g and g + 8 of the right operand, and row g of the left one.

H200, bfloat16, medians in µs with 256 MB written between the calls, `torch.nn.functional.linear` in brackets. A kernel
that does nothing but read the right operand takes 13.2 at 4096×4096 and 33.2 at 14336×4096.

    rows                      2            8           16           24           32
    4096×4096 (out×in)     15.2 (17.4)  15.3 (17.4)  15.6 (17.7)  18.8 (18.1)  19.1 (18.0)
    14336×4096             37.4 (40.4)  37.8 (41.0)  42.0 (40.8)  50.7 (40.5)  54.0 (40.9)
    4096×14336             36.0 (41.0)  36.7 (41.1)  37.8 (41.7)  42.2 (41.4)  44.4 (41.9)
    4104×4000              14.8 (17.9)  15.0 (17.9)  15.6 (18.0)
    5000×3072              15.1 (15.8)  15.6 (16.0)  17.3 (15.9)
    4000×4100              18.5 (26.4)  18.9 (26.8)  20.2 (28.0)

From 16 rows on what counts is the rows' own way from the second cache: every block reads all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import is_transpose
from opsgen.dsl.dtypes import DType, compute_type
from opsgen.dsl.tensor import Input, Map, Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, constant, i64, mul
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import unflatten
from opsgen.schedules.common.schedule import Context

from .kernels import call, strided
from .split_sums import Share, SplitSums
from .tensor_cores import HALVES

_PIECES = (16, 8)
"""Bytes that are loaded at once, where addresses and rows are multiples of them; elsewhere an element is."""
_BYTES = 16
"""Of a thread's strip of the right operand."""
_WORDS = _BYTES // 4
_AT_ONCE = _BYTES // 2
"""Positions of a strip of halves."""
_SMALL = frozenset({"int8", "uint8"})
"""Types whose values are exact in both halves: they are converted in registers."""


@dataclass(frozen=True)
class Operands:
    """A contraction as this kernel takes it: two parameters, and factors of the right one that no position of the sum
    changes.
    """

    left: Input
    right: Input
    factors: tuple[Tensor, ...]

    @staticmethod
    def of(problem: Problem) -> Operands | None:
        """Those of a problem, or None: the left operand is of a half type, the right of the same or a small one."""
        if len(problem.summed) != 1 or compute_type(problem.node.dtype).name != "float32":
            return None
        summed = set(problem.summed)
        left, none = _source(problem.left, summed)
        right, factors = _source(problem.right, summed)
        if left is None or right is None or none or left.dtype.name not in HALVES:
            return None
        if right.dtype != left.dtype and right.dtype.name not in _SMALL:
            return None
        if left.dims[-1] not in summed or right.dims[-1] not in summed:
            return None
        return Operands(left, right, factors)


def _source(node: Tensor, summed: set[str]) -> tuple[Input | None, tuple[Tensor, ...]]:
    """The parameter whose elements an operand has, and the factors without summed dims that it has beside them."""
    factors: list[Tensor] = []
    while not isinstance(node, Input):
        if is_transpose(node) or (isinstance(node, Map) and node.op == "cast" and _exact(node.args[0], node.dtype)):
            (node,) = node.children()
        elif isinstance(node, Map) and node.op == "mul" and len(node.args) == 2 and node.dtype.kind == "float":
            inner = [a for a in node.args if set(a.dims) & summed]
            if len(inner) != 1:
                return None, ()
            factors += [a for a in node.args if a is not inner[0]]
            node = inner[0]
        else:
            return None, ()
    return node, tuple(factors)


def _exact(source: Tensor, to: DType) -> bool:
    """Whether a cast changes no value."""
    if source.dtype == to or (source.dtype.name in HALVES and to.name in ("float32", "float64")):
        return True
    return source.dtype.name in _SMALL and to.kind == "float"


@dataclass(frozen=True)
class Form:
    """``tiles`` of eight rows; ``across`` tiles of sixteen columns a task; ``chunks`` of the sum that a warp loads
    before it multiplies, each of 64 bytes of a column; ``resident`` blocks of ``warps`` on a multiprocessor.
    """

    tiles: int
    across: int = 1
    warps: int = 8
    chunks: int = 4
    resident: int = 2

    @property
    def rows(self) -> int:
        """The most that it is for."""
        return 8 * self.tiles


@dataclass(frozen=True)
class _Strip:
    """Where a thread reads a row or column: its memory at ``at`` plus a position, if there is such a row or column."""

    memory: Memory
    at: Expr
    inside: Expr


class FewRowsMma(SplitSums):
    """The kernel for as many rows as the form has."""

    def __init__(self, context: Context, problem: Problem, operands: Operands, form: Form) -> None:
        self.operands, self.form = operands, form
        self.each = _BYTES // operands.right.dtype.bytes
        """Positions of the sum in a thread's strip."""
        rows, columns = form.rows, 16 * form.across
        step = 4 * self.each * form.chunks
        super().__init__(context, problem, f"few_rows_{rows}", form.warps, rows, columns, step)
        self.half = operands.left.dtype.name

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        code, form = self.code, self.form
        left, right = (self.kernel.input(n) for n in (self.operands.left, self.operands.right))
        flags = [(p, self._in_pieces((left, right), p)) for p in _PIECES]
        self.group = code.bind(self.lane >> i64(2), "group")
        self.place = code.bind(self.lane & i64(3), "place")
        self.own = code.bind(self.place * i64(self.each), "own")
        with self.tasks() as (body, share):
            self.sums = body.local("float32", form.tiles * form.across * 4, "sums")
            with body.loop(form.tiles * form.across * 4, "i", "unrolled") as (i, clear):
                clear.store(self.sums, constant(0, "float32"), i)
            columns = [self._column(body, share, right, i) for i in range(2 * form.across)]
            rows = [self._row(body, share, left, i) for i in range(form.tiles)]
            self._by_pieces(body, rows, columns, flags)
            self._keep_all(body)
            self.total(body)
        return self.launch(when, form.resident)

    def _in_pieces(self, memories: tuple[Memory, ...], piece: int) -> Expr:
        """Whether all strips can be loaded in pieces of so many bytes, each of which lies in a row or beyond it."""
        bad: Expr = None
        for memory in memories:
            size = memory.dtype.bytes
            address = call("int64", "opsgen_address", tirx.address_of(tirx.BufferLoad(memory.buffer, [i64(0)])))
            for value in (address, *(mul(memory.strides[d], i64(size)) for d in memory.dims[:-1]), self.k * i64(size)):
                bad = value if bad is None else bad | value
        return self.code.bind(tirx.EQ(bad & i64(piece - 1), i64(0)), "in_pieces")

    def _column(self, code: Code, share: Share, right: Memory, number: int) -> _Strip:
        """The thread's strips of one of its columns. One that is not there has an address too, and is not read."""
        column = code.bind(add(share.column, i64(number * 8)) + self.group, "column")
        coords = unflatten(code, column, self.problem.columns, self.extents)
        return self._strip(code, right, {**share.scope.coords, **coords}, column < self.n)

    def _row(self, code: Code, share: Share, left: Memory, number: int) -> _Strip:
        """The same of a row."""
        row = code.bind(add(self.group, i64(number * 8)), "row")
        coords = unflatten(code, row, self.problem.rows, self.extents)
        return self._strip(code, left, {**share.scope.coords, **coords}, row < self.m)

    def _strip(self, code: Code, memory: Memory, coords: Mapping[str, Expr], inside: Expr) -> _Strip:
        at = memory.offset({**coords, self.problem.summed[0]: self.own})
        return _Strip(memory, code.bind(at, "at"), inside)

    def _by_pieces(self, code: Code, rows: list[_Strip], columns: list[_Strip], flags: list[tuple[int, Expr]]) -> None:
        """The sum, by the largest pieces that memory allows."""
        if not flags:
            self._multiply(code, rows, columns, 0)
            return
        (piece, flag), *others = flags
        with code.either(flag) as (whole, rest):
            self._multiply(whole, rows, columns, piece)
            self._by_pieces(rest, rows, columns, others)

    def _multiply(self, code: Code, rows: list[_Strip], columns: list[_Strip], piece: int) -> None:
        """The warp's part of a task's sums. All of a step's strips of the right operand are under way at once, but for
        those that come element by element: they would take too many registers.
        """
        ahead = self.form.chunks if piece else 1
        with strided(code, self.first, self.k, self.stride, "step") as (step, outer):
            if ahead == self.form.chunks:
                self._chunks(outer, step, rows, columns, ahead, piece)
                return
            with outer.loop(self.form.chunks, "part") as (part, body):
                start = body.bind(step + part * i64(4 * self.each), "start")
                self._chunks(body, start, rows, columns, ahead, piece)

    def _chunks(
        self, code: Code, start: Expr, rows: list[_Strip], columns: list[_Strip], count: int, piece: int
    ) -> None:
        """So many chunks of the sum: first their loads, then their products."""
        strips = code.local("uint32", count * len(columns) * _WORDS, "strips")
        with code.loop(count, "chunk", "unrolled") as (chunk, loads):
            at = loads.bind(add(start, mul(chunk, i64(4 * self.each))), "at")
            left = self._left(loads, at)
            for i, column in enumerate(columns):
                place = mul(add(mul(chunk, i64(len(columns))), i64(i)), i64(_WORDS))
                self._load(loads, strips, place, column, at, left, piece, "stream")
        with code.loop(count, "chunk", "unrolled") as (chunk, products):
            for part in range(self.each // _AT_ONCE):
                at = products.bind(add(add(start, mul(chunk, i64(4 * self.each))), i64(part * _AT_ONCE)), "at")
                x = self._rows(products, rows, at, piece)
                for t in range(self.form.across):
                    first = mul(add(mul(chunk, i64(len(columns))), i64(2 * t)), i64(_WORDS))
                    upper = self._halves(products, strips, first, part)
                    lower = self._halves(products, strips, add(first, i64(_WORDS)), part)
                    self._products(products, t, upper, lower, x)

    def _rows(self, code: Code, rows: list[_Strip], at: Expr, piece: int) -> Any:
        """Of each row what two products need: eight positions."""
        x = code.local("uint32", self.form.tiles * _WORDS, "x")
        left = self._left(code, at)
        for i, row in enumerate(rows):
            self._load(code, x, i64(i * _WORDS), row, at, left, piece, "strip")
        return x

    def _left(self, code: Code, at: Expr) -> Expr:
        """How many positions of a strip that begins there lie within the sum, if any."""
        return code.bind(tirx.Cast("int32", tirx.Min(self.k - self.own - at, i64(self.each))), "left")

    def _load(
        self, code: Code, into: Any, place: Expr, strip: _Strip, at: Expr, left: Expr, piece: int, kind: str
    ) -> None:
        """Sixteen bytes from a position on, zeros from the end of the row on."""
        size = strip.memory.dtype.bytes
        count = tirx.Select(strip.inside, left * constant(size, "int32"), constant(0, "int32"))
        source = tirx.BufferLoad(strip.memory.buffer, [strip.at + at])
        name = f"opsgen_{kind}16" if piece == 16 else f"opsgen_strip{piece or size}"
        code.call(name, tirx.address_of(tirx.BufferLoad(into, [place])), tirx.address_of(source), count)

    def _halves(self, code: Code, strips: Any, first: Expr, part: int) -> list[Expr]:
        """Eight positions of a strip as pairs of halves."""
        small = self.operands.right.dtype.name
        if small == self.half:
            return [tirx.BufferLoad(strips, [add(first, i64(i))]) for i in range(_WORDS)]
        pairs = code.local("uint32", _WORDS, "pairs")
        for i in range(2):
            code.call(
                f"opsgen_unpack_{small}_{self.half}",
                tirx.address_of(tirx.BufferLoad(pairs, [i64(2 * i)])),
                tirx.BufferLoad(strips, [add(first, i64(2 * part + i))]),
            )
        return [tirx.BufferLoad(pairs, [i64(i)]) for i in range(_WORDS)]

    def _products(self, code: Code, across: int, upper: list[Expr], lower: list[Expr], x: Any) -> None:
        """Sixteen columns' strips times those of all rows."""
        form = self.form
        for q in range(0, len(upper), 2):
            a = code.local("uint32", 4, "a")
            for i, value in enumerate((upper[q], lower[q], upper[q + 1], lower[q + 1])):
                code.store(a, value, i64(i))
            for i in range(form.tiles):
                code.call(
                    f"opsgen_mma_{self.half}",
                    tirx.address_of(tirx.BufferLoad(self.sums, [i64((across * form.tiles + i) * 4)])),
                    tirx.address_of(tirx.BufferLoad(a, [i64(0)])),
                    tirx.address_of(tirx.BufferLoad(x, [i64(i * _WORDS + q)])),
                )

    def _keep_all(self, code: Code) -> None:
        """Hands the warp's sums over: a thread has two rows of columns g and g + 8 of each tile."""
        form = self.form
        for t in range(form.across):
            for i in range(form.tiles):
                for j in range(4):
                    value = tirx.BufferLoad(self.sums, [i64((t * form.tiles + i) * 4 + j)])
                    row = add(self.place * i64(2), i64(i * 8 + j % 2))
                    self.keep(code, value, row, add(self.group, i64(t * 16 + j // 2 * 8)))

    def completed(self, scope: Scope, total: Expr) -> Expr:
        """With the right operand's other factors."""
        for factor in self.operands.factors:
            total = scope.bind(tirx.Mul(total, scope.value_in(factor, self.problem.node.dtype)), "total")
        return total
