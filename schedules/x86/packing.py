"""Packing of a contraction's right operand on x86: [batch, column tile, k, NR], zero past the last column.

The right operand may be any expression: it is computed once here, not once for each row tile that uses it.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import is_transpose
from opsgen.dsl.dtypes import DType, compute_type
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Input, Tensor, walk
from opsgen.dsl.trace import ROWS
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Memory, Scope, compute_name
from opsgen.schedules.common.operands import Problem, contiguous
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Packing

from .kernels import new_kernel
from .vectors import REGISTER_FLOATS, strips, vectorizable

MOST_DIMS = 8
"""Of a packed weight: its header has room for their extents."""


def packable(context: Context, problem: Problem) -> Input | None:
    """The parameter that the right operand is, if nothing else reads it: a weight."""
    graph = context.partition.graph
    source: Tensor = problem.right
    while is_transpose(source):
        source = source.children()[0]
    readers: list[Tensor] = []
    walk(graph.outputs(), lambda n: readers.append(n) if any(c is source for c in n.children()) else None)
    if not isinstance(source, Input) or source.mutable or len(readers) != 1:
        return None
    if (graph.leading and ROWS in source.dims) or len(source.dims) > MOST_DIMS:
        return None
    return None if any(r.value is source for r in graph.results) else source


def packing(context: Context, config: Config) -> Packing | None:
    """How a weight is packed for this group, if it has one."""
    problem = Problem(context.group)
    source = packable(context, problem)
    if source is None:
        return None
    launch = pack(context, config, problem)
    dims = _packed_dims(Kernel("", context.partition, context.group, {}), problem, config["columns"])
    count = Extent.const(1)
    for extent in dims.values():
        count = count * extent
    # What each dim of the weight is, and which of several of its kind: their order is the order of the bytes.
    roles = {
        d: f"{letter}{i}"
        for letter, dims_ in (("b", problem.batch), ("n", problem.columns), ("k", problem.summed))
        for i, d in enumerate(dims_)
    }
    order = "".join(roles[d] for d in source.dims)
    dtype = compute_type(problem.node.dtype)
    layout = f"{context.arch}.columns{config['columns']}.{order}.{source.dtype.name}.{dtype.name}"
    return Packing(source.name, layout, count, dtype, launch)


def _packed_dims(kernel: Kernel, problem: Problem, width: int) -> dict[str, Extent]:
    def count(dims: tuple[str, ...]) -> Extent:
        return cost.elements(kernel.graph, dims)

    return {
        "batch": count(problem.batch),
        "tile": (count(problem.columns) + (width - 1)) // width,
        "k": count(problem.summed),
        "column": Extent.const(width),
    }


def packed_memory(kernel: Kernel, context: Context, problem: Problem, width: int) -> Memory:
    dims = _packed_dims(kernel, problem, width)
    dtype = compute_type(problem.node.dtype)
    source = packable(context, problem)
    if source is not None and source.name in context.packed:
        return kernel.packed_input(source.name, dims, dtype)
    return kernel.workspace(f"packed{context.group.index}", dims, dtype)


def pack(context: Context, config: Config, problem: Problem) -> Launch:
    """The kernel that packs."""
    kernel = new_kernel(context, "pack")
    packer = packer_of(kernel, context, config, problem)
    dims = (*problem.batch, *problem.columns, *problem.summed)
    kernel.cost(Extent.const(0), cost.elements(kernel.graph, dims) * 2, 8)
    extents = {d: kernel.extent(d) for d in dims}
    code = kernel.code
    tiles = code.bind(ceildiv(product_of(extents, problem.columns), config["columns"]), "tiles")
    tasks = code.bind(mul(product_of(extents, problem.batch), tiles), "tasks")
    with code.loop(tasks, "task", "parallel") as (task, body):
        batch = body.bind(tirx.truncdiv(task, tiles), "batch")
        tile = body.bind(tirx.truncmod(task, tiles), "tile")
        pack_tile(body, packer, problem, extents, batch, tile)
    return kernel.launch()


def packer_of(kernel: Kernel, context: Context, config: Config, problem: Problem) -> Packer:
    """Packs the right operand into the contraction's packed memory."""
    packed = packed_memory(kernel, context, problem, config["columns"])
    return Packer(
        kernel,
        context.arch,
        problem.right,
        problem.columns,
        problem.summed,
        problem.node.dtype,
        packed,
        config["columns"],
    )


def pack_tile(body: Code, packer: Packer, problem: Problem, extents: dict[str, Expr], batch: Expr, tile: Expr) -> None:
    """One column tile of one batch."""
    n = body.bind(product_of(extents, problem.columns), "n")
    scope = Scope(packer.kernel, body, unflatten(body, batch, problem.batch, extents))
    first = body.bind(tile * i64(packer.width), "first")
    start = packer.packed.offset({"batch": batch, "tile": tile, "k": i64(0), "column": i64(0)})
    start = body.bind(start, "panel")
    with body.either(first + i64(packer.width) <= n) as (full, partial):
        packer.full_tile(scope.inner(full, {}), first, start)
        packer.partial_tile(scope.inner(partial, {}), first, start, n)


class Packer:
    """Writes panels of an operand in a kernel: for each position of ``summed``, ``width`` neighbouring ``columns``."""

    def __init__(
        self,
        kernel: Kernel,
        arch: str,
        operand: Tensor,
        columns: tuple[str, ...],
        summed: tuple[str, ...],
        dtype: DType,
        packed: Memory,
        width: int,
    ) -> None:
        self.kernel = kernel
        self.operand = operand
        self.columns = columns
        self.summed = summed
        self.dtype = dtype
        self.packed = packed
        self.width = width
        self.lanes = REGISTER_FLOATS[arch]
        self.type = compute_name(dtype)
        self.extents = {d: kernel.extent(d) for d in (*columns, *summed)}

    def full_tile(self, scope: Scope, first: Expr, start: Expr) -> None:
        """A tile with all its columns: in vectors of columns, in blocks turned in registers, or one by one."""
        vectors = vectorizable((self.operand,)) and self.type == "float32" and self.width % self.lanes == 0
        last = self.summed[-1]
        if vectors and len(self.columns) == 1 and contiguous(self.kernel, self.operand, self.columns[0]):
            self.each_k(scope, lambda inside, k: self.step(inside, k, first, start, "vectorized"))
        elif vectors and len(self.summed) == 1 and contiguous(self.kernel, self.operand, last):

            def along(code: Code, k: Expr, kind: str, width: int, stage: int) -> None:
                if width > 1:
                    for c in range(0, self.width, self.lanes):
                        self.turned_block(scope.inner(code, {}), k, first, c, start)
                else:
                    self.step(scope.inner(code, {last: k}), k, first, start, "serial")

            strips(scope.code, i64(0), self.extents[last], (self.lanes, 1), along)
        else:
            self.each_k(scope, lambda inside, k: self.step(inside, k, first, start, "serial"))

    def each_k(self, scope: Scope, body: Any) -> None:
        """``body(scope, k)`` for each position of the summed dims, with the flat position."""
        count = scope.code.bind(product_of(self.extents, self.summed), "k")
        with scope.code.loop(count, "k") as (k, inner):
            body(scope.inner(inner, unflatten(inner, k, self.summed, self.extents)), k)

    def value(self, scope: Scope, code: Code, column: Expr) -> Expr:
        """The operand in a column, at the scope's position in the summed dims."""
        coords = unflatten(code, column, self.columns, self.extents)
        return scope.inner(code, coords).value_in(self.operand, self.dtype)

    def step(self, scope: Scope, k: Expr, first: Expr, start: Expr, kind: str) -> None:
        """All columns of the tile at one k."""
        at = scope.code.bind(start + mul(k, i64(self.width)), "at")
        with scope.code.loop(self.width, "column", kind) as (j, lanes):
            lanes.store(self.packed.buffer, self.value(scope, lanes, first + j), at + j)

    def partial_tile(self, scope: Scope, first: Expr, start: Expr, n: Expr) -> None:
        """A tile past whose last columns, from ``n`` on, there are zeros."""
        self.each_k(scope, lambda inside, k: self.partial_step(inside, k, first, start, n))

    def partial_step(self, scope: Scope, k: Expr, first: Expr, start: Expr, n: Expr) -> None:
        """The columns that there are, then zeros."""
        at = scope.code.bind(start + mul(k, i64(self.width)), "at")
        with scope.code.loop(self.width, "column") as (j, lanes), lanes.either(first + j < n) as (real, past):
            # A scope without a parent: what is computed under the condition stays under it.
            inside = Scope(self.kernel, real, scope.coords)
            real.store(self.packed.buffer, self.value(inside, real, first + j), at + j)
            past.store(self.packed.buffer, constant(0, self.type), at + j)

    def turned_block(self, scope: Scope, k: Expr, first: Expr, column: int, start: Expr) -> None:
        """A square of one register's length: read along k, turned by exchanging halves, quarters, …, written along
        columns. Column by column, an element would cost a load and a store of its own."""
        code, size = scope.code, self.lanes
        rows = []
        for c in range(size):
            line = code.local(self.type, size, "line")
            with code.loop(size, "lane", "vectorized") as (lane, lanes):
                here = scope.inner(lanes, {self.summed[-1]: add(k, lane)})
                lanes.store(line, self.value(here, lanes, first + i64(column + c)), lane)
            rows.append(code.bind(tirx.BufferLoad(line, [tirx.Ramp(i64(0), i64(1), size)]), "line"))
        for at, row in enumerate(turn(code, rows)):
            place = start + add(k, i64(at)) * i64(self.width) + i64(column)
            code.store(self.packed.buffer, row, tirx.Ramp(code.bind(place, "place"), i64(1), size))


def turn(code: Code, rows: list[Expr]) -> list[Expr]:
    """The transpose of a square of vectors. In a step of distance d, row i takes from row i + d the elements that
    belong i's side of the diagonal, and gives its own for them; after distances n/2, …, 2, 1 all are exchanged."""
    size = len(rows)
    distance = size // 2
    while distance:
        turned = list(rows)
        for i in range(size):
            if i & distance:
                continue
            a, b = rows[i], rows[i + distance]
            low = [e if not e & distance else size + e - distance for e in range(size)]
            high = [e + distance if not e & distance else size + e for e in range(size)]
            turned[i] = code.bind(tirx.Shuffle([a, b], [tirx.IntImm("int32", e) for e in low]), "low")
            turned[i + distance] = code.bind(tirx.Shuffle([a, b], [tirx.IntImm("int32", e) for e in high]), "high")
        rows = turned
        distance //= 2
    return rows
