"""Contractions on x86: the right operand packed into column tiles, register tiles of rows times columns, no blocking
over the sum.

Two kernels. The first writes the right operand, by whatever expression it has, as [batch, column tile, k, NR], zero
past its end. The second
runs over blocks of row and column tiles; a tile's accumulators stay in registers and go through the group's epilogue
when they are stored. Rows
past the end read the last row again, so that the inner loop has no branch; only stores are guarded.

Measured on a 16-core Sapphire Rapids and a 2-core Zen 3 with weights packed once: 150-170 of 172 GFLOP/s a core with
12x32 on AVX-512; 6x16 on
AVX2 is 1.07-1.24x torch's linear+GELU on one thread. (8x48 spills and falls to a tenth.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group, factors, is_transpose
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Input, Reduce, Tensor, walk
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul, sub, truncdiv
from opsgen.lowering.to_tir import Memory, Scope, compute_name
from opsgen.schedules.common.schedule import Config, Context, Packing, Schedule

from .vectors import strips, unflatten, vectorizable, widths

UNROLL = 4
"""Steps of the sum in one turn of the inner loop."""


class Problem:
    """The dims of a contraction by what they do: batch (both factors and the result), rows (left), columns (right),
    summed.
    """

    def __init__(self, group: Group) -> None:
        self.node: Reduce = group.reductions[0]
        pair = factors(self.node)
        assert pair is not None
        self.left, self.right = pair
        left, right = set(self.left.dims), set(self.right.dims)
        free = self.node.dims
        self.batch = tuple(d for d in free if d in left and d in right)
        self.rows = tuple(d for d in free if d in left and d not in right)
        self.columns = tuple(d for d in free if d in right and d not in left)
        self.summed = self.node.over


def build(context: Context, config: Config) -> list[Launch]:
    """The packing kernel and the product."""
    problem = Problem(context.group)
    source = packable(context, problem)
    if source is not None and source.name in context.packed:
        return [_product(context, config, problem)]
    return [_pack(context, config, problem), _product(context, config, problem)]


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
    return None if any(r.value is source for r in graph.results) else source


def packing(context: Context, config: Config) -> Packing | None:
    """How a weight is packed for this group, if it has one."""
    problem = Problem(context.group)
    source = packable(context, problem)
    if source is None:
        return None
    launch = _pack(context, config, problem)
    dims = _packed_dims(Kernel("", context.partition, context.group, {}), problem, config["columns"])
    count = Extent.const(1)
    for extent in dims.values():
        count = count * extent
    roles = {
        **dict.fromkeys(problem.batch, "b"),
        **dict.fromkeys(problem.columns, "n"),
        **dict.fromkeys(problem.summed, "k"),
    }
    order = "".join(roles[d] for d in source.dims)
    dtype = compute_type(problem.node.dtype)
    layout = f"{context.arch}.columns{config['columns']}.{order}.{source.dtype.name}.{dtype.name}"
    return Packing(source.name, layout, count, dtype, launch)


def _product_of(extents: Mapping[str, Expr], dims: tuple[str, ...]) -> Expr:
    total: Expr = i64(1)
    for d in dims:
        total = mul(total, extents[d])
    return total


def _packed_dims(kernel: Kernel, problem: Problem, width: int) -> dict[str, Extent]:
    def count(dims: tuple[str, ...]) -> Extent:
        return cost.elements(kernel.graph, dims)

    return {
        "batch": count(problem.batch),
        "tile": (count(problem.columns) + (width - 1)) // width,
        "k": count(problem.summed),
        "column": Extent.const(width),
    }


def _packed(kernel: Kernel, context: Context, problem: Problem, width: int) -> Memory:
    dims = _packed_dims(kernel, problem, width)
    dtype = compute_type(problem.node.dtype)
    source = packable(context, problem)
    if source is not None and source.name in context.packed:
        return kernel.packed_input(source.name, dims, dtype)
    return kernel.workspace(f"packed{context.group.index}", dims, dtype)


def _pack(context: Context, config: Config, problem: Problem) -> Launch:
    """The right operand as [batch, tile, k, NR]."""
    width = config["columns"]
    kernel = Kernel(f"{context.prefix}_pack", context.partition, context.group, context.spaces)
    packed = _packed(kernel, context, problem, width)
    name = compute_name(problem.node.dtype)
    extents = {d: kernel.extent(d) for d in (*problem.batch, *problem.columns, *problem.summed)}
    code = kernel.code
    dims = (*problem.batch, *problem.columns, *problem.summed)
    kernel.cost(Extent.const(0), cost.elements(kernel.graph, dims) * 2, 8)
    n = code.bind(_product_of(extents, problem.columns), "n")
    k = code.bind(_product_of(extents, problem.summed), "k")
    tiles = code.bind(ceildiv(n, width), "tiles")
    batches = _product_of(extents, problem.batch)
    with code.loop(code.bind(mul(batches, tiles), "tasks"), "task", "parallel") as (task, body):
        batch = body.bind(tirx.truncdiv(task, tiles), "batch")
        tile = body.bind(tirx.truncmod(task, tiles), "tile")
        scope = Scope(kernel, body, unflatten(body, batch, problem.batch, extents))
        first = body.bind(tile * i64(width), "first")
        vector = _contiguous_columns(kernel, problem) and vectorizable((problem.right,))

        def column(code: Code, k: Expr, at: Expr, j: Expr, inside: Scope) -> None:
            """One element: the right operand's value in column ``at``."""
            coords = {**inside.coords, **unflatten(code, at, problem.columns, extents)}
            value = Scope(kernel, code, coords).value(problem.right)
            packed.store(code, {"batch": batch, "tile": tile, "k": k, "column": j}, value)

        with body.loop(k, "k") as (ki, inner):
            inside = scope.inner(inner, unflatten(inner, ki, problem.summed, extents))
            with inner.either(first + i64(width) <= n) as (full, partial):
                with full.loop(width, "column", "vectorized" if vector else "serial") as (j, lanes):
                    column(lanes, ki, first + j, j, inside)
                with partial.loop(width, "column") as (j, lanes), lanes.either(first + j < n) as (real, past):
                    column(real, ki, first + j, j, inside)
                    packed.store(past, {"batch": batch, "tile": tile, "k": ki, "column": j}, constant(0, name))
    return kernel.launch()


def _contiguous_columns(kernel: Kernel, problem: Problem) -> bool:
    """Whether all that the right operand reads along its (only) column dim is contiguous there."""
    memories: list[Memory] = []
    stack: list[Tensor] = [problem.right]
    while stack:
        node = stack.pop()
        memory = kernel.memory(node)
        if memory is not None:
            memories.append(memory)
        else:
            stack.extend(node.children())
    along = [m for m in memories if set(m.dims) & set(problem.columns)]
    return len(problem.columns) == 1 and bool(along) and all(m.dims[-1:] == problem.columns for m in along)


def _product(context: Context, config: Config, problem: Problem) -> Launch:
    """The register-tiled product with the group's epilogue."""
    height, width = config["rows"], config["columns"]
    group = context.group
    kernel = Kernel(f"{context.prefix}_product", context.partition, group, context.spaces)
    packed = _packed(kernel, context, problem, width)
    dims = (*problem.batch, *problem.rows, *problem.columns, *problem.summed)
    extents = {d: kernel.extent(d) for d in dims}
    code = kernel.code
    nodes = list(group.members.values())
    kernel.cost(cost.flops(kernel.graph, tuple(nodes)) * 2, Extent.const(0), config["flops_per_ns"])
    m = code.bind(_product_of(extents, problem.rows), "m")
    n = code.bind(_product_of(extents, problem.columns), "n")
    row_tiles = code.bind(ceildiv(m, height), "row_tiles")
    column_tiles = code.bind(ceildiv(n, width), "column_tiles")
    row_blocks = code.bind(ceildiv(row_tiles, config["row_block"]), "row_blocks")
    column_blocks = code.bind(ceildiv(column_tiles, config["column_block"]), "column_blocks")
    batches = _product_of(extents, problem.batch)
    steps = widths(context.arch, group, 1)
    tasks = code.bind(mul(batches, row_blocks * column_blocks), "tasks")
    with code.loop(tasks, "task", "parallel") as (task, body):
        row_block = body.bind(tirx.truncmod(task, row_blocks), "row_block")
        rest = body.bind(tirx.truncdiv(task, row_blocks), "rest")
        column_block = body.bind(tirx.truncmod(rest, column_blocks), "column_block")
        batch = body.bind(tirx.truncdiv(rest, column_blocks), "batch")
        base = unflatten(body, batch, problem.batch, extents)
        scratch = body.scratch(compute_name(problem.node.dtype), height * width, "tile")
        first_column = column_block * i64(config["column_block"])
        columns_here = tirx.Min(i64(config["column_block"]), column_tiles - first_column)
        with body.loop(body.bind(columns_here, "columns_here"), "jp") as (jp, outer):
            column_tile = outer.bind(first_column + jp, "column_tile")
            first_row = row_block * i64(config["row_block"])
            rows_here = tirx.Min(i64(config["row_block"]), row_tiles - first_row)
            with outer.loop(outer.bind(rows_here, "rows_here"), "ip") as (ip, tile):
                row = tile.bind((first_row + ip) * i64(height), "first_row")
                _tile(
                    kernel,
                    problem,
                    packed,
                    tile,
                    base,
                    batch,
                    column_tile,
                    row,
                    m,
                    n,
                    extents,
                    height,
                    width,
                    scratch,
                    steps,
                )
    return kernel.launch()


def _tile(
    kernel: Kernel,
    problem: Problem,
    packed: Memory,
    code: Code,
    base: dict[str, Expr],
    batch: Expr,
    column_tile: Expr,
    first_row: Expr,
    m: Expr,
    n: Expr,
    extents: dict[str, Expr],
    height: int,
    width: int,
    tile: Any,
    steps: tuple[int, ...],
) -> None:
    """One register tile: accumulate over k in registers, lay the sums down in ``tile``, then the epilogue row by row.

    Through memory, because the epilogue is then one loop and not one copy a row, and rows and columns past the end
    cost nothing.
    """
    name = compute_name(problem.node.dtype)
    accumulators = [code.local(name, width, f"acc{i}") for i in range(height)]
    for acc in accumulators:
        with code.loop(width, "j", "vectorized") as (j, lanes):
            lanes.store(acc, constant(0, name), j)
    last = m - i64(1)
    rows = []
    for i in range(height):
        row = code.bind(tirx.Min(first_row + i64(i), last), "row") if i else first_row
        rows.append(unflatten(code, row, problem.rows, extents))
    start = code.bind(packed.offset({"batch": batch, "tile": column_tile, "k": i64(0), "column": i64(0)}), "panel")
    scopes = [Scope(kernel, code, {**base, **r}) for r in rows]
    _accumulate(problem, packed, code, scopes, accumulators, start, extents, width)
    for i, acc in enumerate(accumulators):
        with code.loop(width, "j", "vectorized") as (j, lanes):
            lanes.store(tile, tirx.BufferLoad(acc, [j]), i64(i * width) + j)
    first_column = code.bind(column_tile * i64(width), "first_column")
    columns_here = code.bind(tirx.Min(i64(width), n - first_column), "columns_here")
    with code.loop(code.bind(tirx.Min(i64(height), m - first_row), "rows_here"), "i") as (i, body):
        coords = {**base, **unflatten(body, body.bind(first_row + i, "row"), problem.rows, extents)}
        scope = Scope(kernel, body, coords)

        def step(inner: Code, at: Expr, kind: str, lanes_wide: int, stage: int) -> None:
            with inner.loop(lanes_wide, "j", kind) as (j, lanes):
                _epilogue(problem, scope, lanes, first_column, at + j, tile, i * i64(width), extents)

        strips(body, i64(0), columns_here, steps, step)


def _accumulate(
    problem: Problem,
    packed: Memory,
    code: Code,
    scopes: list[Scope],
    accumulators: list[Any],
    start: Expr,
    extents: dict[str, Expr],
    width: int,
) -> None:
    """The loop over the summed dims: one column vector times one element of each row."""
    *outer, last = problem.summed

    def nest(at: Code, dims: list[str], coords: dict[str, Expr], flat: Expr) -> None:
        if dims:
            with at.loop(extents[dims[0]], dims[0]) as (i, inner):
                step = _product_of(extents, problem.summed[problem.summed.index(dims[0]) + 1 :])
                nest(inner, dims[1:], {**coords, dims[0]: i}, add(flat, mul(i, step)))
            return
        quads = at.bind(truncdiv(extents[last], UNROLL), "quads")
        with at.loop(quads, "k4") as (q, inner):
            for u in range(UNROLL):
                step_at(inner, coords, q * i64(UNROLL) + i64(u), flat)
        done = mul(quads, i64(UNROLL))
        with at.loop(sub(extents[last], done), "k1") as (r, inner):
            step_at(inner, coords, done + r, flat)

    def step_at(at: Code, coords: dict[str, Expr], k: Expr, flat: Expr) -> None:
        offset = at.bind(start + (add(flat, k)) * i64(width), "at")
        for scope, acc in zip(scopes, accumulators, strict=True):
            here = scope.inner(at, {**coords, last: k})
            left = here.value(problem.left)
            with at.loop(width, "j", "vectorized") as (j, lanes):
                right = tirx.BufferLoad(packed.buffer, [offset + j])
                lanes.store(acc, tirx.Add(tirx.BufferLoad(acc, [j]), tirx.Mul(left, right)), j)

    nest(code, outer, {}, i64(0))


def _epilogue(
    problem: Problem,
    row: Scope,
    code: Code,
    first_column: Expr,
    at: Expr,
    tile: Any,
    tile_row: Expr,
    extents: dict[str, Expr],
) -> None:
    """The group's stored values in one row, at one column or a vector of them."""
    kernel = row.env
    assert isinstance(kernel, Kernel)
    coords = unflatten(code, first_column + at, problem.columns, extents)
    scope = row.inner(code, coords, held={id(problem.node): lambda _: tirx.BufferLoad(tile, [tile_row + at])})
    values = [(node, scope.value(node)) for node in kernel.group.stored]
    for node, value in values:
        for place in kernel.destinations(node):
            place.store(code, scope.coords, value)


def _default(group: Group, arch: str) -> Config:
    wide = compute_type(group.reductions[0].dtype).name == "float64"
    height, width, speed = {"avx2": (6, 16, 50), "avx512": (12, 32, 100)}[arch]
    return {
        "rows": height,
        "columns": width // 2 if wide else width,
        "row_block": 16,
        "column_block": 4,
        "flops_per_ns": speed,
    }


SCHEDULE = Schedule(
    name="x86.contraction",
    target="x86",
    pattern="contraction",
    region="any contraction of floats on avx2 and avx512",
    knobs={
        "rows": (4, 6, 8, 12),
        "columns": (16, 32, 64),
        "row_block": (4, 8, 16, 32),
        "column_block": (1, 2, 4, 8),
        "flops_per_ns": (50, 100),
    },
    serves=lambda group, arch: compute_type(group.reductions[0].dtype).kind == "float",
    default=_default,
    build=build,
    packing=packing,
)
