"""Contractions on sm_90a's tensor cores: TMA brings tiles, wgmma multiplies, the epilogue runs in registers.

Region: both operands in memory in one half type, each contiguous along the sum or along its own rows (columns), or in
8-bit types or float32 (as tf32), contiguous along the sum; with 16-byte aligned bases and rows, as TMA wants them.
Results of half types, float32 and int32 leave by TMA too, where they are contiguous along the columns; others are
stored one by one.
"""

from __future__ import annotations

from dataclasses import replace

from opsgen.analysis import cost
from opsgen.dsl.op import Result
from opsgen.dsl.tensor import Map, Tensor
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import contraction as plain
from . import few_rows, mma, tensor_cores
from .conditions import undecided
from .tensor_cores import HALVES, Dims, operand, operand_type, product_of
from .tiles import BOX, Form, forms
from .wgmma_boxes import Destination
from .wgmma_choice import CLUSTERS, Sizes, estimate
from .wgmma_epilogue import Epilogue
from .wgmma_kernel import Operands, can_fetch, contraction
from .wgmma_memory import ScriptKernel

_MOST_VALUES = 2
"""Results that leave by TMA: more do not fit in registers beside the sums."""


def build_kernel(context: Context, form: Form, part: str, by_tma: bool = True) -> Launch:
    """One kernel for the context's group, under the conditions without which it would not be right. A split form's runs
    in clusters of one block. ``by_tma``: whether results leave so, where they can.
    """
    group = context.group
    problem = Problem(group)
    dims = Dims(problem)
    kernel = ScriptKernel(context, part, form.threads, dims.column)
    left, right = operand(problem.left, group), operand(problem.right, group)
    assert left is not None and right is not None
    product = product_of(operand_type(left), operand_type(right), group.float32_products == "tf32")
    assert product is not None
    across = form.columns // form.cluster
    if right.dims[-1] != dims.sum and across % BOX:
        across = form.columns
    clipped = left.dims[-1] == dims.sum
    left_map = kernel.operand_map("left", left, dims, (dims.sum, dims.row), (form.depth, form.rows), clipped)
    right_map = kernel.operand_map("right", right, dims, (dims.sum, dims.column), (form.depth, across))
    nodes, destinations = [], []
    for i, (node, place) in enumerate((places(kernel, dims) if by_tma else None) or ()):
        its, dtype = (place.value.dims, place.dtype) if isinstance(place, Result) else (place.dims, place.dtype)
        result_map = kernel.result_map(f"result{i}" if i else "result", place, dims)
        nodes.append(node)
        destinations.append(Destination(result_map, dtype.name, dims.layers_of(its)))
    wanted = fetched(context, dims) if can_fetch(form, destinations) else None
    brought = None
    if wanted is not None:
        its_map = kernel.operand_map("brought", wanted, dims, (dims.column, dims.row), (BOX, BOX))
        brought = Destination(its_map, operand_type(wanted).name, dims.layers_of(wanted.dims))
    operands = Operands(
        left_map,
        right_map,
        tuple(destinations),
        kernel.extent(dims.row),
        kernel.extent(dims.column),
        kernel.extent(dims.sum),
        product,
        left.dims[-1] != dims.sum,
        right.dims[-1] != dims.sum,
        tuple(kernel.extent(d) for d in dims.layers),
        dims.layers_of(left.dims),
        dims.layers_of(right.dims),
        reads_residual(context, dims),
        brought,
        clipped,
    )
    epilogue = Epilogue(kernel, problem.node, dims, nodes, kernel.stored_in(wanted) if wanted is not None else "")
    body = contraction(form, operands, epilogue.values, epilogue.store).body
    return kernel.launch_script(body, form, sizes_of(context).clusters(form) * form.cluster)


def sizes_of(context: Context, epilogue: int = 0, defer: bool = False) -> Sizes:
    """The sizes of the group's problem."""
    group, graph = context.group, context.partition.graph
    problem = Problem(group)
    dims = Dims(problem)
    left, right = operand(problem.left, group), operand(problem.right, group)
    assert left is not None and right is not None
    return Sizes(
        graph.extent(dims.row),
        graph.extent(dims.column),
        graph.extent(dims.sum),
        cost.elements(graph, dims.layers),
        left.dims[-1] != dims.sum,
        right.dims[-1] != dims.sum,
        epilogue,
        defer,
    )


def places(kernel: ScriptKernel, dims: Dims) -> list[tuple[Tensor, Result | Memory]] | None:
    """Where TMA can store all of the group's values: halves, float32 and int32, contiguous along the columns. None if
    it cannot do that for all.
    """
    found: list[tuple[Tensor, Result | Memory]] = []
    for node in kernel.group.stored:
        results = [r for r in kernel.graph.results if r.value is node]
        if any(r.updates is not None for r in results):
            return None
        found += [(node, r) for r in results]
        if kernel.read_elsewhere(node):
            found += [(node, m) for m in kernel.destinations(node)[len(results) :]]
    if len(found) > _MOST_VALUES:
        return None
    for _, place in found:
        its = place.value.dims if isinstance(place, Result) else place.dims
        if place.dtype.name not in (*HALVES, "float32", "int32") or its[-1] != dims.column:
            return None
    return found


_MOST = 1 << 30
"""Rows, columns, or elements along the sum: positions are int32 in a kernel."""


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels of all forms, of which the one is taken that is estimated to be fastest; one for results that TMA cannot
    store as they lie; and those of mma.sync or of CUDA cores, for operands that it does not take.
    """
    problem = Problem(context.group)
    graph = context.partition.graph
    chosen = forms_of(context)
    kernels = {name: build_kernel(context, form, f"wgmma_{name}") for name, form in chosen.items()}
    one_half = all([m.dtype in HALVES for m in kernel.maps[2:]] == [True] for kernel in kernels.values())
    defer = one_half and not reads_residual(context, Dims(problem))
    sizes = sizes_of(context, epilogue_instructions(context), defer)
    rows = cost.elements(graph, problem.rows)
    extents = (sizes.m, sizes.n, sizes.k)
    always = (
        (rows, ">", few_rows.most(context, problem, config["few_rows"])),
        (sizes.n, ">", 0),
        (sizes.k, ">", 0),
        *((d, "<=", _MOST) for d in extents),
    )
    found: list[Launch] = []
    for name, kernel in kernels.items():
        form = chosen[name]
        assert kernel.grid is not None
        for split in (s for s in CLUSTERS if s > 1) if form.split else (1,):
            conditions: list[Comparison] = [*always, *kernel.when]
            if form.split:
                conditions.append((sizes.k, ">", form.depth * (split - 1)))  # each block has something to sum
            when = undecided(*conditions)
            if when is not None:
                grid = replace(kernel.grid, blocks=kernel.grid.blocks * split, cluster=split * form.cluster)
                found.append(replace(kernel, when=when, grid=grid, cost=estimate(form, sizes, split)))
    found = without_losers(found)
    loose = build_kernel(context, chosen.get("alternating") or chosen["square"], "wgmma_loose", by_tma=False)
    when = undecided(*always, *loose.when)
    if when is not None:
        found.append(replace(loose, when=when))
    others = mma if problem.node.dtype.name in HALVES else plain
    found += others.build(context, others.SCHEDULE.default(context.group, context.arch))
    choice = f"group{context.group.index}"
    return [replace(launch, choice=choice) for launch in found]


def without_losers(launches: list[Launch]) -> list[Launch]:
    """Without launches that another, whose conditions all calls meet, beats in all calls."""
    known = [x.cost.value for x in launches if x.cost is not None and x.cost.value is not None and not x.when]
    least = min(known, default=None)
    found = []
    for launch in launches:
        value = launch.cost.value if launch.cost is not None else None
        if least is None or value is None or value < least or (value == least and not launch.when):
            found.append(launch)
    return found


def forms_of(context: Context) -> dict[str, Form]:
    """The forms for a group's operands, by name."""
    group = context.group
    problem = Problem(group)
    left = operand(problem.left, group)
    assert left is not None
    dtype = operand_type(left)
    promoted = dtype.name in tensor_cores.FLOAT8 and group.float8_sums != "fast"
    return forms(dtype.bytes, dtype.kind != "float", promoted, fetched(context, Dims(problem)) is not None)


_WEIGHTS = {"erf": 11, "tanh": 8, "sigmoid": 4, "exp": 8, "exp2": 6, "log": 12, "log1p": 20, "sin": 25, "cos": 25,
            "pow": 40, "div": 8, "sqrt": 8, "rsqrt": 4}  # fmt: skip
"""Instructions of a map, about; others have one."""
_VECTOR, _MATRIX = 1, 10
"""Of a value that is read for each column, and of one for each sum: a residual takes a shared tile 15 % more time at
16384×4096×1024."""


def epilogue_instructions(context: Context) -> int:
    """What an epilogue issues or waits for, for each sum: the maps that the group computes of it, and what it reads."""
    own = context.partition.contents(context.group)[0]
    problem = Problem(context.group)
    columns, brought = set(problem.columns), fetched(context, Dims(problem))
    maps = sum(_WEIGHTS.get(n.op, 1) for n in own if isinstance(n, Map) and context.group.holds(n))
    reads = (_VECTOR if n is brought or set(n.dims) <= columns else _MATRIX for n in epilogue_reads(context))
    return maps + sum(reads)


def reads_residual(context: Context, dims: Dims) -> bool:
    """Whether an epilogue reads something for each sum."""
    return any(set(n.dims) >= {dims.row, dims.column} for n in epilogue_reads(context))


def fetched(context: Context, dims: Dims) -> Tensor | None:
    """What an epilogue reads for each sum, where TMA can bring it: one matrix of a half type, contiguous along the
    columns, of which one result of a half type is computed.
    """
    if [n.dtype.name in HALVES for n in context.group.stored] != [True]:
        return None
    found = [n for n in epilogue_reads(context) if set(n.dims) >= {dims.row, dims.column}]
    if len(found) != 1 or operand(found[0], context.group) is not found[0]:
        return None
    (node,) = found
    known = {dims.row, dims.column, *dims.layers}
    fits = operand_type(node).name in HALVES and node.dims[-1] == dims.column and set(node.dims) <= known
    return node if fits and len(dims.layers_of(node.dims)) <= tensor_cores.MOST_LAYERS else None


def epilogue_reads(context: Context) -> list[Tensor]:
    """What an epilogue reads from memory."""
    problem = Problem(context.group)
    operands = {id(operand(f, context.group)) for f in (problem.left, problem.right)}
    return [n for n in context.partition.contents(context.group)[1] if n.dims and id(n) not in operands]


SCHEDULE = Schedule(
    name="cuda.wgmma",
    target="cuda",
    pattern="contraction",
    region="products of two operands of a half type, of float8 or 8-bit integers, and of float32 where tf32 is "
    "allowed, on sm_90a; what TMA cannot read is left to others",
    knobs={"few_rows": (0, 8, 16, 32)},
    serves=lambda group, arch: tensor_cores.by_wgmma(group, arch),
    default=lambda group, arch: {"few_rows": 16},
    build=build,
)
"""From 17 rows on TMA and wgmma are as fast as the kernels for few rows or faster, where they take the operands. H200,
bfloat16, medians in µs, cold cache, cuBLAS and the kernels for few rows in brackets:

    rows                17                 24                 32                 48                 64
    4096×4096 (out×in)  16.0 (15.7)        15.9 (16.0, 17.3)  16.0 (15.4, 18.5)  15.9 (16.0)        15.6 (14.2)
    14336×4096          34.4 (33.7)        33.4 (32.9, 48.8)  34.3 (34.0, 51.6)  34.0 (34.3)        33.4 (34.4)
    4096×14336          36.4 (34.0)        36.1 (34.7, 40.4)  36.0 (34.4, 44.1)  36.9 (35.0)        36.7 (36.1)
    6144×4000           19.1 (17.6)        19.0 (17.6, 25.7)  18.6 (17.6, 26.7)  18.8 (17.9)        18.9 (17.6)
"""
