"""Products of 8-bit integers on NVIDIA GPUs without tensor cores for them: dp4a multiplies and sums four at a time.

Region: both operands parameters of int8 or uint8, contiguous along the one dim of the sum. Tiles of both go through
shared memory in words of four elements; a thread sums eight rows times eight columns. Rows that are no multiple of 16
bytes, or do not begin at one, are left to the schedule for all types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Input
from opsgen.lowering.kernel import Launch, Param
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import holding
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import contraction as plain
from . import eight_bits
from .conditions import undecided
from .kernels import DeviceKernel, call, strided, synchronize

_SIDE = 128
"""Rows and columns of a tile."""
_DEPTH = 8
"""Words of a step along the sum: two threads bring 16 bytes each of a row."""
_PITCH = _SIDE + 4
_EACH = 8


class _Words:
    """An operand as words of four elements."""

    def __init__(self, kernel: DeviceKernel, operand: Input, own: tuple[str, ...], extent: Expr) -> None:
        self.memory = kernel.input(operand)
        self.own = own
        self.extent = extent
        data = self.memory.buffer.data
        self.words = tirx.decl_buffer((i64(1 << 47),), "uint32", f"{operand.name}_words", data=data, data_alignment=16)
        kernel._views.append((self.words, data))
        self.tile = kernel.shared("uint32", _DEPTH * _PITCH, f"{operand.name}_tile")
        self.aligned = [Param("input", operand.name)]
        self.aligned += [Param("input_stride", operand.name, d) for d in operand.dims[:-1]]

    def load(self, kernel: DeviceKernel, scope: Scope, first: Expr, start: Expr, count: Expr, summed: str) -> None:
        """A tile from the row ``first`` and the word ``start`` of ``count`` on; zeros past the last word."""
        code = scope.code
        row = code.bind(tirx.truncdiv(kernel.thread, i64(2)), "own_row")
        piece = code.bind(tirx.truncmod(kernel.thread, i64(2)) * i64(4), "piece")
        # Past the end, the last row is read instead: what comes of it is stored nowhere.
        at = code.bind(tirx.Min(first + row, self.extent - i64(1)), "at")
        extents = {d: kernel.extent(d) for d in self.own}
        coords = {**scope.coords, **unflatten(code, at, self.own, extents), summed: i64(0)}
        begin = code.bind((self.memory.offset(coords) >> i64(2)) + start + piece, "begin")
        four = code.local("uint32", 4, "four")
        with code.either(start + piece < count) as (known, beyond):
            places = (tirx.BufferLoad(four, [i64(0)]), tirx.BufferLoad(self.words, [begin]))
            known.call("opsgen_move16", *map(tirx.address_of, places))
            with beyond.loop(4, "i", "unrolled") as (i, body):
                body.store(four, constant(0, "uint32"), i)
        with code.loop(4, "i", "unrolled") as (i, body):
            body.store(self.tile, tirx.BufferLoad(four, [i]), (piece + i) * i64(_PITCH) + row)

    def taken(self, code: Code, line: Expr, place: Expr) -> Any:
        """A thread's words of one line of the tile: two fours, half a tile apart."""
        values = code.local("uint32", _EACH, "taken")
        for group in range(_EACH // 4):
            source = tirx.BufferLoad(self.tile, [add(add(line, i64(group * 64)), place * i64(4))])
            target = tirx.BufferLoad(values, [i64(group * 4)])
            code.call("opsgen_move16", tirx.address_of(target), tirx.address_of(source))
        return values


def _kernel(context: Context) -> Launch:
    problem = Problem(context.group)
    kernel = DeviceKernel(context, "dp4a", 256)
    code = kernel.code
    left, right = (eight_bits.parameter(x) for x in (problem.left, problem.right))
    assert left is not None and right is not None
    kinds = "".join("s" if x.dtype.kind == "int" else "u" for x in (left, right))
    extents = {d: kernel.extent(d) for d in (*problem.batch, *problem.rows, *problem.columns, *problem.summed)}
    m, n = (code.bind(product_of(extents, dims), "size") for dims in (problem.rows, problem.columns))
    (summed,) = problem.summed
    count = code.bind(extents[summed] >> i64(2), "words")
    sides = [_Words(kernel, left, problem.rows, m), _Words(kernel, right, problem.columns, n)]
    row_tiles, column_tiles = (code.bind(ceildiv(x, _SIDE), "tiles") for x in (m, n))
    across = code.bind(tirx.truncmod(kernel.thread, i64(16)), "across")
    down = code.bind(tirx.truncdiv(kernel.thread, i64(16)), "down")
    with kernel.tasks(mul(product_of(extents, problem.batch), row_tiles * column_tiles)) as (task, body):
        row_tile = body.bind(tirx.truncmod(task, row_tiles), "row_tile")
        rest = body.bind(tirx.truncdiv(task, row_tiles), "rest")
        batch = body.bind(tirx.truncdiv(rest, column_tiles), "batch")
        scope = Scope(kernel, body, unflatten(body, batch, problem.batch, extents))
        first_row = body.bind(row_tile * i64(_SIDE), "first_row")
        first_column = body.bind(tirx.truncmod(rest, column_tiles) * i64(_SIDE), "first_column")
        sums = body.local("int32", _EACH * _EACH, "sums")
        with body.loop(_EACH * _EACH, "i", "unrolled") as (i, inner):
            inner.store(sums, constant(0, "int32"), i)
        with strided(body, i64(0), count, i64(_DEPTH), "start") as (start, step):
            for words, first in zip(sides, (first_row, first_column), strict=True):
                words.load(kernel, scope.inner(step, {}), first, start, count, summed)
            synchronize(step)
            with step.loop(_DEPTH, "word", "unrolled") as (word, inner):
                line = inner.bind(word * i64(_PITCH), "line")
                a, b = (x.taken(inner, line, place) for x, place in zip(sides, (down, across), strict=True))
                with inner.loop(_EACH, "i", "unrolled") as (i, rows), rows.loop(_EACH, "j", "unrolled") as (j, cell):
                    at = i * i64(_EACH) + j
                    pair = (tirx.BufferLoad(x, [p]) for x, p in ((a, i), (b, j)))
                    cell.store(sums, call("int32", f"opsgen_dp4a_{kinds}", tirx.BufferLoad(sums, [at]), *pair), at)
            synchronize(step)
        _store(kernel, problem, scope, (first_row, down, m), (first_column, across, n), extents, sums)
    graph = context.partition.graph
    tiles = Extent.const(1)
    for dims in (problem.rows, problem.columns):
        tiles = tiles * ((cost.elements(graph, dims) + (_SIDE - 1)) // _SIDE)
    launch = kernel.launch_on(cost.elements(graph, problem.batch) * tiles, resident=2)
    return replace(launch, aligned=tuple((p, 16) for words in sides for p in words.aligned))


def _store(
    kernel: DeviceKernel,
    problem: Problem,
    scope: Scope,
    row: tuple[Expr, Expr, Expr],
    column: tuple[Expr, Expr, Expr],
    extents: dict[str, Expr],
    sums: Any,
) -> None:
    """The group's values at a thread's rows and columns; of both: the tile's first, the thread's place, the extent."""

    def place(code: Code, of: tuple[Expr, Expr, Expr], i: Expr) -> Expr:
        within = tirx.truncdiv(i, i64(4)) * i64(64) + tirx.truncmod(i, i64(4))
        return code.bind(of[0] + of[1] * i64(4) + within, "place")

    with scope.code.loop(_EACH, "i", "unrolled") as (i, rows):
        at_row = place(rows, row, i)
        with rows.when(at_row < row[2]) as some:
            here = scope.inner(some, unflatten(some, at_row, problem.rows, extents))
            with some.loop(_EACH, "j", "unrolled") as (j, cells):
                at_column = place(cells, column, j)
                with cells.when(at_column < column[2]) as one:
                    total = tirx.BufferLoad(sums, [i * i64(_EACH) + j])
                    coords = unflatten(one, at_column, problem.columns, extents)
                    kernel.store_all(here.inner(one, coords, held={id(problem.node): holding(total)}))


def build(context: Context, config: Config) -> list[Launch]:
    """The kernel for rows of whole 16 bytes, and those for all others and for few rows."""
    problem = Problem(context.group)
    graph = context.partition.graph
    k = graph.extent(problem.summed[0])
    rows = cost.elements(graph, problem.rows)
    found: list[Launch] = []
    when = undecided((rows, ">", config["few_rows"]), (k + k // 16 * -16, "<=", 0))
    if when is not None:
        found.append(replace(_kernel(context), when=when))
    found += plain.build(context, plain.SCHEDULE.default(context.group, context.arch))
    return [replace(launch, choice=f"group{context.group.index}") for launch in found]


SCHEDULE = Schedule(
    name="cuda.dp4a",
    target="cuda",
    pattern="contraction",
    region="products of two parameters of 8-bit integers, contiguous along the sum, that cuda.wgmma leaves",
    knobs={"few_rows": (0, 8, 16)},
    serves=eight_bits.by_dp4a,
    default=lambda group, arch: {"few_rows": 8},
    build=build,
)
