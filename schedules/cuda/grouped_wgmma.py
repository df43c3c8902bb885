"""Grouped contractions on sm_90a's tensor cores: the kernel of `wgmma`, whose tiles have rows of one group each.

A kernel of one block finds the groups' rows (segments.py); the blocks of the product take the tiles of all groups in
turn, and the group is a coordinate of the right operand's tensor map. Rows of a tile that lie behind the end of its
group are multiplied too, and not stored: full boxes leave by TMA, others from registers.

Region: as that of `wgmma`, with operands [rows, sum] and [groups, columns, sum] or [groups, sum, columns].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import tirx
from tvm.script import tirx as T

from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Expr
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import grouped_contraction as plain
from . import segments, tensor_cores
from .conditions import undecided
from .tensor_cores import Dims, operand, operand_type, product_of
from .tiles import ALTERNATING, BOX, SHARED, SMALL, Form
from .wgmma import places, reads_residual
from .wgmma_boxes import Destination
from .wgmma_epilogue import Epilogue
from .wgmma_kernel import Operands, Runs, contraction
from .wgmma_memory import ScriptKernel

# H200, bfloat16, ratios to torch._grouped_mm (torch 2.11) in interleaved rounds with a cold cache, the kernels that
# find the groups included; tokens×in×out of so many experts, even and uneven groups.
FORMS: dict[str, Form] = {
    "small": replace(SMALL, cluster=1),
    "alternating": replace(ALTERNATING, cluster=1),
    "shared": replace(SHARED, cluster=1),
    "shared_pair": replace(SHARED, cluster=2),
}
"""small: 1.28 to 1.49 at 300×4096×14336 of 8; 1.22 and 1.18 at 4096×768×2048 of 128 (alternating 1.20 and 1.15).
alternating: 1.06 and 1.07 at 16384×4096×14336 of 8, with SiLU 1.28 and 1.30 (eager); 1.01 and 1.18 at 8192×2048×1408 of
64; 1.18 and 1.05 at 3000×4096×4096 of 8. Where rows begin within lines, shared 0.92 at 6000×1000×1000 of 32 (0.88
alternating), shared_pair 0.91 and 0.90 at 4000×4104×1032 of 16 (shared 0.85 and 0.83), 1.03 and 1.01 at 8192×2104×3000
of 8 (shared 0.81 and 0.83), 1.08 at 40000×1032×4096 of 8 (shared 0.84)."""
_LINE = 64
"""Elements of 128 bytes."""
_MOST = 1 << 30
"""Rows, columns, or elements along the sum: positions are int32 in a kernel."""


def build_kernel(context: Context, form: Form, part: str) -> Launch | None:
    """One kernel, under the conditions without which it would not be right; None where TMA cannot store the results."""
    group, graph = context.group, context.partition.graph
    problem = Problem(group)
    parts = problem.segments
    assert parts is not None
    dims = Dims(problem)
    found = places(ScriptKernel(context, "trial", form.threads, dims.column), dims)
    left, right = operand(problem.left, group), operand(problem.right, group)
    assert left is not None and right is not None
    product = product_of(operand_type(left), operand_type(right), tf32=False)
    if found is None or product is None:
        return None
    kernel = ScriptKernel(context, part, form.threads, dims.column)
    left_map = kernel.operand_map("left", left, dims, (dims.sum, dims.row), (form.depth, form.rows))
    across = form.columns // form.cluster
    if right.dims[-1] != dims.sum and across % BOX:
        across = form.columns
    right_map = kernel.operand_map("right", right, dims, (dims.sum, dims.column), (form.depth, across))
    maps = [kernel.result_map(f"result{i}" if i else "result", p, dims) for i, (_, p) in enumerate(found)]
    m, n, k = (kernel.extent(d) for d in (dims.row, dims.column, dims.sum))
    # In the order of `places`.
    memories = [memory for node in group.stored for memory in kernel.destinations(node)]
    columns = tirx.Cast("int32", n)
    destinations = tuple(
        Destination(result_map, memory.dtype.name, (), _address_in(memory, dims), columns)
        for result_map, memory in zip(maps, memories, strict=True)
    )
    table = segments.table(kernel, parts)

    def entry(line: int) -> Callable[[Expr], Expr]:
        return lambda g: tirx.Cast("int32", segments.load(table, line, tirx.Cast("int64", g)))

    side = form.rows * form.cluster
    runs = Runs(entry(0), entry(segments.tiles_line(side)), tirx.Cast("int32", kernel.extent(parts.groups)))
    operands = Operands(
        left_map,
        right_map,
        destinations,
        m,
        n,
        k,
        product,
        right_across=right.dims[-1] != dims.sum,
        layers=(kernel.extent(parts.groups),),
        right_layers=(0,),
        residual=reads_residual(context, dims),
        runs=runs,
    )
    epilogue = Epilogue(kernel, problem.node, dims, [node for node, _ in found])
    body = contraction(form, operands, epilogue.values, epilogue.store).body
    # Each group has a tile of rows more than it fills, at most.
    down = graph.extent(dims.row) // side + graph.extent(parts.groups)
    tiles = down * ((graph.extent(dims.column) + (form.columns - 1)) // form.columns)
    return kernel.launch_script(body, form, tiles * form.cluster)


def _address_in(memory: Memory, dims: Dims) -> Callable[[Expr, Expr], Expr]:
    def address(row: Expr, column: Expr) -> Expr:
        coords = {dims.row: tirx.Cast("int64", row), dims.column: tirx.Cast("int64", column)}
        return T.address_of(tirx.BufferLoad(memory.buffer, [memory.offset(coords)]))

    return address


def conditions(context: Context, config: Config) -> dict[str, tuple[Comparison, ...]]:
    """When each form is taken: the first whose conditions a call meets.

    How rows fall to the groups is not known, only how many a group has on average. Tiles of few rows are for groups of
    few rows. Where rows of the operands begin within lines of 128 bytes, a tile's loads take longer than its products:
    larger tiles load less for each of them, and least where two blocks share the right operand's.
    """
    graph = context.partition.graph
    problem = Problem(context.group)
    assert problem.segments is not None
    rows, length = (graph.extent(d) for d in (problem.segments.rows, *problem.summed))
    groups = graph.extent(problem.segments.groups)
    odd = (length + length // _LINE * -_LINE, ">", 0)
    return {
        "small": ((rows + groups * -config["small_rows"], "<=", 0),),
        "shared_pair": (odd, (rows + groups * -config["pair_rows"], ">", 0)),
        "shared": (odd,),
        "alternating": (),
    }


def build(context: Context, config: Config) -> list[Launch]:
    """The table of the groups' rows, a kernel for each form, and the plain ones for memory that TMA does not take."""
    problem = Problem(context.group)
    graph = context.partition.graph
    assert problem.segments is not None
    dims = Dims(problem)
    rows, columns, length = (graph.extent(d) for d in (dims.row, dims.column, dims.sum))
    always: tuple[Comparison, ...] = (
        (columns, ">", 0), (length, ">", 0), (graph.extent(problem.segments.groups), "<=", _MOST),
        *((d, "<=", _MOST) for d in (rows, columns, length)),
    )  # fmt: skip
    found: list[Launch] = []
    for name, wanted in conditions(context, config).items():
        if undecided(*always, *wanted) is None:
            continue
        kernel = build_kernel(context, FORMS[name], f"wgmma_{name}")
        when = undecided(*always, *wanted, *kernel.when) if kernel is not None else None
        if kernel is not None and when is not None:
            found.append(replace(kernel, when=when))
    table, *others = plain.build(context, plain.SCHEDULE.default(context.group, context.arch))
    choice = f"group{context.group.index}"
    return [table, *(replace(launch, choice=choice) for launch in (*found, *others))]


SCHEDULE = Schedule(
    name="cuda.grouped_wgmma",
    target="cuda",
    pattern="grouped_contraction",
    region="grouped contractions of two operands of a half type on sm_90a",
    knobs={"small_rows": (0, 32, 64), "pair_rows": (192, 224, 256)},
    serves=lambda group, arch: tensor_cores.grouped_by_wgmma(group, arch),
    default=lambda group, arch: {"small_rows": 64, "pair_rows": 224},
    build=build,
)
