"""Contractions on NVIDIA GPUs without tensor cores: any types, any sizes, sums in the compute type.

Tiles of both operands go through shared memory, computed by whatever expressions they have; each thread sums a few rows
times a few columns in registers, and the epilogue runs there. Large problems have larger tiles, and few rows kernels of
their own (`few_rows`).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Scope, compute_name
from opsgen.schedules.common.operands import Problem, contiguous
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import eight_bits, few_rows, tensor_cores
from .conditions import undecided
from .kernels import DeviceKernel, strided, synchronize
from .strip import Emit, Strips, aligned, readable, width_for

_PAD = 4
"""Elements between the rows of a tile in shared memory: they keep 16 bytes' alignment, and spread over the banks."""


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for few rows, for small problems and for large ones, each with the sizes that it is for."""
    problem = Problem(context.group)
    graph = context.partition.graph
    rows = cost.elements(graph, problem.rows)
    results = cost.elements(graph, (*problem.batch, *problem.rows, *problem.columns))
    limit = few_rows.most(context, problem, config["few_rows"])
    few: tuple[Comparison, ...] = ((rows, ">", limit),) if limit else ()
    found = few_rows.build(context, problem, limit)
    for part, sign in (("small", "<="), ("large", ">")):
        conditions = undecided(*few, (results, sign, config["large_from"]))
        if conditions is not None:
            found.append(Tiles(context, config, problem, part, config[f"{part}_tile"]).build(conditions))
    return found


class Tiles:
    """The kernel for tiles of ``side`` rows and columns; 256 threads have a sixteenth of both each."""

    def __init__(self, context: Context, config: Config, problem: Problem, part: str, side: int) -> None:
        self.problem = problem
        self.config = config
        self.side = side
        self.each = side // 16
        self.depth = config["depth"]
        self.kernel = kernel = DeviceKernel(context, part, 256)
        self.type = compute_name(problem.node.dtype)
        dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
        self.extents = {d: kernel.extent(d) for d in dims}
        self.m, self.n, self.k = (
            kernel.code.bind(product_of(self.extents, dims), name)
            for name, dims in (("m", problem.rows), ("n", problem.columns), ("k", problem.summed))
        )
        self.pitch = side + _PAD
        self.left = kernel.shared(self.type, self.depth * self.pitch, "left")
        self.right = kernel.shared(self.type, self.depth * self.pitch, "right")

    def build(self, when: tuple[Comparison, ...]) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, problem, side = self.kernel, self.problem, self.side
        code = kernel.code
        self.prepare()
        row_tiles = code.bind(ceildiv(self.m, side), "row_tiles")
        column_tiles = code.bind(ceildiv(self.n, side), "column_tiles")
        self.place_threads()
        batches = product_of(self.extents, problem.batch)
        with kernel.tasks(mul(batches, row_tiles * column_tiles)) as (task, body):
            row_tile = body.bind(tirx.truncmod(task, row_tiles), "row_tile")
            rest = body.bind(tirx.truncdiv(task, row_tiles), "rest")
            batch = tirx.truncdiv(rest, column_tiles) if problem.batch else i64(0)
            batch = body.bind(batch, "batch")
            scope = Scope(kernel, body, unflatten(body, batch, problem.batch, self.extents))
            first_row = body.bind(row_tile * i64(side), "first_row")
            column_tile = tirx.truncmod(rest, column_tiles) if problem.batch else rest
            first_column = body.bind(column_tile * i64(side), "first_column")
            sums = self.multiply(scope, first_row, first_column)
            self.epilogue(scope, first_row, self.m, first_column, sums)
        graph = kernel.graph
        tiles = Extent.const(1)
        for dims in (problem.rows, problem.columns):
            tiles = tiles * ((cost.elements(graph, dims) + (side - 1)) // side)
        return kernel.launch_on(cost.elements(graph, problem.batch) * tiles, when, resident=2)

    def prepare(self) -> None:
        """What comes before the tasks: how operands are loaded and results stored."""
        problem = self.problem
        self.loaders = [
            _Loader(self, problem.left, problem.rows, self.m, self.left),
            _Loader(self, problem.right, problem.columns, self.n, self.right),
        ]
        self.prepare_epilogue()

    def place_threads(self) -> None:
        """A thread's place in a tile."""
        self.across = self.kernel.code.bind(tirx.truncmod(self.kernel.thread, i64(16)), "across")
        self.down = self.kernel.code.bind(tirx.truncdiv(self.kernel.thread, i64(16)), "down")

    # -- the sum -------------------------------------------------------------------------------------------------------
    def multiply(self, scope: Scope, first_row: Expr, first_column: Expr) -> Any:
        """The sums of a thread, row by row."""
        code, each = scope.code, self.each
        sums = code.local(self.type, each * each, "sums")
        with code.loop(each * each, "i", "unrolled") as (i, body):
            body.store(sums, constant(0, self.type), i)
        with strided(code, i64(0), self.k, i64(self.depth), "depth") as (start, body):
            for loader, first in zip(self.loaders, (first_row, first_column), strict=True):
                loader.load(scope.inner(body, {}), first, start)
            synchronize(body)
            with body.loop(self.depth, "step", "unrolled") as (step, inner):
                line = inner.bind(step * i64(self.pitch), "line")
                a = self.taken(inner, self.left, line, self.down, "a")
                b = self.taken(inner, self.right, line, self.across, "b")
                with inner.loop(each, "i", "unrolled") as (i, rows), rows.loop(each, "j", "unrolled") as (j, cell):
                    at = i * i64(each) + j
                    product = tirx.Mul(tirx.BufferLoad(a, [i]), tirx.BufferLoad(b, [j]))
                    cell.store(sums, tirx.Add(tirx.BufferLoad(sums, [at]), product), at)
            synchronize(body)
        return sums

    def taken(self, code: Code, tile: Any, line: Expr, place: Expr, name: str) -> Any:
        """A thread's elements of one line of a tile: fours, as far apart as sixteen threads' fours reach."""
        values = code.local(self.type, self.each, name)
        size = 8 if self.type == "float64" else 4
        for group in range(self.each // 4):
            at = add(add(line, i64(group * 64)), place * i64(4))
            for start in range(0, 4, 16 // size):
                code.call(
                    "opsgen_move16",
                    tirx.address_of(tirx.BufferLoad(values, [i64(group * 4 + start)])),
                    tirx.address_of(tirx.BufferLoad(tile, [add(at, i64(start))])),
                )
        return values

    # -- the epilogue --------------------------------------------------------------------------------------------------
    def prepare_epilogue(self) -> None:
        kernel, problem, group = self.kernel, self.problem, self.kernel.group
        self.strips: Strips | None = None
        if len(problem.columns) != 1:
            return
        last = problem.columns[0]
        dims = {*problem.batch, *problem.rows, *problem.columns}
        loads = readable(kernel, group.stored, last, dims, {id(problem.node): None})
        places = [m for n in group.stored for m in kernel.destinations(n) if m.dims[-1:] == (last,)]
        width = min(width_for([*loads.values(), *places]), 4) if places else 1
        if width > 1:
            flag = aligned(kernel.code, [*loads.values(), *places], width)
            self.strips = Strips(kernel, last, width, flag, loads)

    def epilogue(self, scope: Scope, first_row: Expr, end: Expr, first_column: Expr, sums: Any) -> None:
        """The group's stored values at a thread's rows and columns, without rows from ``end`` on."""
        code, each, problem = scope.code, self.each, self.problem
        with code.loop(each, "i", "unrolled") as (i, body):
            place = tirx.truncdiv(i, i64(4)) * i64(64) + tirx.truncmod(i, i64(4))
            row = body.bind(first_row + self.down * i64(4) + place, "row")
            with body.when(row < end) as inside:
                here = scope.inner(inside, unflatten(inside, row, problem.rows, self.extents))
                width = self.strips.width if self.strips is not None else 1
                with inside.loop(each // width, "j", "unrolled") as (j, cell):
                    own = cell.bind(j * i64(width), "own")
                    place = tirx.truncdiv(own, i64(4)) * i64(64) + tirx.truncmod(own, i64(4))
                    column = cell.bind(first_column + self.across * i64(4) + place, "column")
                    with cell.when(column < self.n) as known:
                        self.cells(here.inner(known, {}), column, i * i64(each) + own, sums)

    def cells(self, scope: Scope, column: Expr, at: Expr, sums: Any) -> None:
        """One strip of columns in a row, whose sums are from ``at`` on."""
        kernel, problem = self.kernel, self.problem

        def total_at(offset: Expr) -> Any:
            return lambda _: tirx.BufferLoad(sums, [add(at, offset)])

        if self.strips is None:
            coords = unflatten(scope.code, column, problem.columns, self.extents)
            kernel.store_all(scope.inner(scope.code, coords, held={id(problem.node): total_at(i64(0))}))
            return
        [dim] = problem.columns

        def element(here: Scope, emit: Emit) -> None:
            here.held[id(problem.node)] = total_at(here.coords[dim] - column)
            kernel.store_all(here, lambda code, place, coords, value: emit(place, value))

        self.strips.run(scope, column, self.n, element)


class _Loader:
    """Brings tiles of one operand into shared memory, a line for each step of the sum.

    Neighbouring threads read what is contiguous: strips along the sum, or along the operand's own dims.
    """

    def __init__(self, tiles: Tiles, operand: Tensor, own: tuple[str, ...], extent: Expr, into: Any) -> None:
        self.tiles = tiles
        self.operand = operand
        self.own = own
        self.extent = extent
        self.into = into
        kernel, problem = tiles.kernel, tiles.problem
        self.along_sum = not own or contiguous(kernel, operand, problem.summed[-1])
        dims = problem.summed if self.along_sum else own
        self.strips: Strips | None = None
        self.width = 1
        # The rows of a group begin anywhere, and strips only at multiples of their width.
        anywhere = problem.segments is not None and dims == problem.rows
        if len(dims) == 1 and not anywhere:
            loads = readable(kernel, [operand], dims[0], {*problem.batch, *own, *problem.summed})
            self.width = min(width_for(list(loads.values())), 8)
            if self.width > 1:
                self.strips = Strips(
                    kernel, dims[0], self.width, aligned(kernel.code, list(loads.values()), self.width), loads
                )

    def load(self, scope: Scope, first: Expr, start: Expr) -> None:
        """The tile from ``first`` on, steps of the sum from ``start`` on; zeros past the ends of both."""
        tiles, code = self.tiles, scope.code
        side, depth, width = tiles.side, tiles.depth, self.width
        count = side * depth // width
        threads = tiles.kernel.threads
        inner_count = (depth if self.along_sum else side) // width
        with code.loop(-(-count // threads), "turn", "unrolled") as (turn, body):
            number = body.bind(turn * i64(threads) + tiles.kernel.thread, "number")
            if count % threads:
                with body.when(number < i64(count)) as inside:
                    self.piece(scope.inner(inside, {}), number, inner_count, first, start)
            else:
                self.piece(scope.inner(body, {}), number, inner_count, first, start)

    def piece(self, scope: Scope, number: Expr, inner_count: int, first: Expr, start: Expr) -> None:
        """One strip of the tile."""
        tiles, code, width = self.tiles, scope.code, self.width
        quick = code.bind(tirx.truncmod(number, i64(inner_count)) * i64(width), "quick")
        slow = code.bind(tirx.truncdiv(number, i64(inner_count)), "slow")
        at, step = (slow, quick) if self.along_sum else (quick, slow)
        # Past the end, the last position is read instead: what comes of it is stored nowhere.
        position = code.bind(first + at, "position")
        k = code.bind(start + step, "k")
        problem = tiles.problem
        if self.along_sum:
            row = code.bind(tirx.Min(position, self.extent - i64(1)), "own")
            here = scope.inner(code, unflatten(code, row, self.own, tiles.extents))
            self.fill(here, problem.summed, k, tiles.k, lambda i: (step + i) * i64(tiles.pitch) + at)
        else:
            with code.either(k < tiles.k) as (known, beyond):
                here = scope.inner(known, unflatten(known, k, problem.summed, tiles.extents))
                line = code.bind(step * i64(tiles.pitch) + at, "line")
                self.fill(here, self.own, position, self.extent, lambda i: line + i)
                with beyond.loop(width, "lane", "unrolled") as (lane, body):
                    body.store(self.into, constant(0, tiles.type), line + lane)

    def fill(self, scope: Scope, dims: tuple[str, ...], start: Expr, end: Expr, place: Any) -> None:
        """Stores the operand at positions from ``start`` on along ``dims``, and zeros from ``end`` on."""
        tiles, code, width = self.tiles, scope.code, self.width

        def store(body: Code, lane: Expr, value: Expr) -> None:
            body.store(self.into, value, place(lane))

        if self.strips is None:
            with code.either(start < end) as (known, beyond):
                here = scope.inner(known, unflatten(known, start, dims, tiles.extents))
                store(known, i64(0), here.value_in(self.operand, tiles.problem.node.dtype))
                store(beyond, i64(0), constant(0, tiles.type))
            return
        with code.when(start + i64(width) > end) as short, short.loop(width, "lane", "unrolled") as (lane, body):
            store(body, lane, constant(0, tiles.type))
        [dim] = dims

        def element(here: Scope, emit: Emit) -> None:
            value = here.value_in(self.operand, tiles.problem.node.dtype)
            store(here.code, here.coords[dim] - start, value)

        with code.when(start < end) as known:
            self.strips.run(scope.inner(known, {}), start, end, element)


def _default(group: Group, arch: str) -> Config:
    wide = compute_type(group.reductions[0].dtype).name == "float64"
    return {
        "few_rows": few_rows.MOST,
        "small_tile": 64,
        "large_tile": 64 if wide else 128,
        "large_from": 1 << 21,
        "depth": 16,
    }


SCHEDULE = Schedule(
    name="cuda.contraction",
    target="cuda",
    pattern="contraction",
    region="any contraction that cuda.wgmma and cuda.dp4a leave",
    knobs={
        "few_rows": (0, 8, 16, 32, 64),
        "small_tile": (64,),
        "large_tile": (64, 128),
        "large_from": (1 << 20, 1 << 21, 1 << 22),
        "depth": (8, 16),
    },
    serves=lambda group, arch: not tensor_cores.by_wgmma(group, arch) and not eight_bits.by_dp4a(group, arch),
    default=_default,
    build=build,
)
