"""Kernels whose blocks compute tiles of a contraction's result: extents, the order of tiles, and the epilogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tvm import tirx

from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Comparison, Launch, Param
from opsgen.lowering.statements import Code, Expr, ceildiv, i64, mul
from opsgen.lowering.to_tir import Memory, Scope, compute_name
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Context

from .by_size import tiles as tiles_of
from .conditions import undecided
from .kernels import DeviceKernel
from .strip import Emit, Strips, aligned, alignment, readable, width_for

_BAND = 8
"""Rows of tiles walked together: the columns' tiles that they share stay in the second cache."""
_MOST_BLOCKS = (1 << 31) - 1
"""Of a launch."""


class TileKernel:
    """The kernel ``part`` for tiles of ``rows`` and ``columns`` by blocks of ``threads``.

    ``single``: each block has one tile, in launches that can have so many blocks; a loop over tiles takes registers.
    ``widest``: the most columns of the result that are stored at once.
    """

    def __init__(
        self,
        context: Context,
        problem: Problem,
        part: str,
        rows: int,
        columns: int,
        threads: int,
        widest: int,
        single: bool,
    ) -> None:
        self.single = single
        self.context = context
        self.problem = problem
        self.rows = rows
        self.columns = columns
        self.threads = threads
        self.kernel = kernel = DeviceKernel(context, part, threads)
        self.type = compute_name(problem.node.dtype)
        dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
        self.extents = {d: kernel.extent(d) for d in dims}
        self.m, self.n, self.k = (
            kernel.code.bind(product_of(self.extents, dims), name)
            for name, dims in (("m", problem.rows), ("n", problem.columns), ("k", problem.summed))
        )
        self.end = self.m
        """Rows from there on are not stored."""
        self.lane = kernel.code.bind(tirx.truncmod(kernel.thread, i64(32)), "lane")
        self.warp = kernel.code.bind(tirx.truncdiv(kernel.thread, i64(32)), "warp")
        self.moved: dict[int, tuple[Memory, int]] = {}
        """Memories that are read 16 bytes at a time, and elements of a strip: calls must bring them aligned."""
        self.multiples: list[tuple[Extent, int]] = []
        """Extents that must be multiples of a number."""
        self._prepare_epilogue(widest)

    # -- tiles ---------------------------------------------------------------------------------------------------------
    @contextmanager
    def tiles(self) -> Iterator[tuple[Scope, Expr, Expr]]:
        """The tiles of a block, one after the other: a scope that has the batch's position, first row and column."""
        kernel, problem, code = self.kernel, self.problem, self.kernel.code
        row_tiles = code.bind(ceildiv(self.m, self.rows), "row_tiles")
        column_tiles = code.bind(ceildiv(self.n, self.columns), "column_tiles")
        in_band = code.bind(column_tiles * i64(_BAND), "in_band")
        matrix = code.bind(row_tiles * column_tiles, "matrix")
        with self.tasks(mul(product_of(self.extents, problem.batch), matrix)) as (task, body):
            at = body.bind(tirx.truncmod(task, matrix), "tile") if problem.batch else task
            batch = body.bind(tirx.truncdiv(task, matrix), "batch") if problem.batch else i64(0)
            scope = Scope(kernel, body, unflatten(body, batch, problem.batch, self.extents))
            band = body.bind(tirx.truncdiv(at, in_band) * i64(_BAND), "band")
            rest = body.bind(tirx.truncmod(at, in_band), "rest")
            high = body.bind(tirx.Min(row_tiles - band, i64(_BAND)), "high")
            first_row = body.bind((band + tirx.truncmod(rest, high)) * i64(self.rows), "first_row")
            first_column = body.bind(tirx.truncdiv(rest, high) * i64(self.columns), "first_column")
            yield scope, first_row, first_column

    @contextmanager
    def tasks(self, count: Expr) -> Iterator[tuple[Expr, Code]]:
        """The numbers of a block's tiles."""
        if self.single:
            yield self.kernel.block, self.kernel.code
            return
        with self.kernel.tasks(count) as found:
            yield found

    def count(self) -> Extent:
        """The number of tiles."""
        return tiles_of(self.context, self.problem, self.rows, self.columns)

    def launch(self, when: tuple[Comparison, ...], resident: int, shared: int = 0) -> Launch | None:
        """The finished kernel for calls that meet ``when`` and bring aligned what is moved 16 bytes at a time; None
        where that cannot be."""
        found = list(when)
        if self.single:
            extra = undecided((self.count(), "<=", _MOST_BLOCKS))
            if extra is None:
                return None
            found += extra
        for extent, multiple in dict.fromkeys(self.multiples):
            rest = extent + extent // multiple * -multiple
            if rest.value is None:
                found.append((rest, "<=", 0))
            elif rest.value > 0:
                return None
        params: list[tuple[Param, int]] = []
        for memory, width in self.moved.values():
            address, strides = self.kernel.parameters_of(memory)
            for param in () if address.kind == "workspace" else (address, *strides):
                params.append((param, alignment(memory, width)))
        launch = self.kernel.launch_on(self.count(), tuple(found), Extent.const(shared), resident=resident)
        return replace(launch, aligned=tuple(dict.fromkeys(params)))

    # -- the epilogue --------------------------------------------------------------------------------------------------
    def _prepare_epilogue(self, widest: int) -> None:
        kernel, problem, group = self.kernel, self.problem, self.kernel.group
        self.strips: Strips | None = None
        if len(problem.columns) != 1:
            return
        last = problem.columns[0]
        dims = {*problem.batch, *problem.rows, *problem.columns}
        loads = readable(kernel, group.stored, last, dims, {id(problem.node): None})
        places = [m for n in group.stored for m in kernel.destinations(n) if m.dims[-1:] == (last,)]
        width = min(width_for([*loads.values(), *places]), widest) if places else 1
        if width > 1:
            flag = aligned(kernel.code, [*loads.values(), *places], width)
            self.strips = Strips(kernel, last, width, flag, loads)

    @property
    def strip(self) -> int:
        """Columns of the result that are stored at once."""
        return self.strips.width if self.strips is not None else 1

    def finish(self, scope: Scope, column: Expr, sums: Any, at: Expr) -> None:
        """Stores the group's values for a strip of columns of the scope's row, whose sums are in a buffer from ``at``
        on."""
        kernel, problem = self.kernel, self.problem
        node = id(problem.node)
        if self.strips is None:
            coords = unflatten(scope.code, column, problem.columns, self.extents)
            kernel.store_all(scope.inner(scope.code, coords, held={node: lambda _: tirx.BufferLoad(sums, [at])}))
            return
        [dim] = problem.columns

        def element(here: Scope, emit: Emit) -> None:
            place = at + (here.coords[dim] - column)
            here.held[node] = lambda _: tirx.BufferLoad(sums, [place])
            kernel.store_all(here, lambda code, place, coords, value: emit(place, value))

        self.strips.run(scope, column, self.n, element)

    def anywhere(self, dims: tuple[str, ...]) -> bool:
        """Whether tiles along the dims begin at any position, rather than at multiples of their size."""
        return False

    def row(self, scope: Scope, row: Expr) -> Scope:
        """The scope of a row."""
        return scope.inner(scope.code, unflatten(scope.code, row, self.problem.rows, self.extents))
