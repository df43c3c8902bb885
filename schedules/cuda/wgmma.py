"""Contractions on sm_90a's tensor cores: TMA brings tiles, wgmma multiplies, the epilogue runs in registers.

Region: both operands and the result of one half type, each contiguous along the sum or along its own rows (columns),
with 16-byte aligned bases and rows, as TMA wants them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.extent import Extent
from opsgen.dsl.op import Result
from opsgen.dsl.tensor import Input, Map, Tensor, walk
from opsgen.lowering.kernel import Comparison, Grid, Kernel, Launch, Param, TensorMap
from opsgen.lowering.statements import Code, Expr, i64
from opsgen.lowering.to_tir import Held, Memory, Scope
from opsgen.lowering.vector_math import Function
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.targets.cuda.asynchronous import SCRIPT

from . import contraction as plain
from . import few_rows, half_results, hopper, tensor_cores
from .conditions import undecided
from .kernels import DeviceKernel
from .tensor_cores import HALVES, Dims, operand
from .tiles import ALTERNATING, BOX, SHARED, SMALL, Form
from .wgmma_kernel import Operands, contraction

_TENSOR_MAP = T.handle("tensormap").ty


@dataclass(eq=False)
class _Pairs(Memory):
    """A memory of halves that is read two columns at a time: one load of four bytes for both."""

    words: Any = None
    column: str = ""
    pair: Any = None
    """Of the last position asked for: its two columns."""

    def load(self, coords: Mapping[str, Expr]) -> Expr:
        if self.pair is None or all(coords[self.column] is not c for c in self.pair()):
            return super().load(coords)
        first, second = self.pair()
        upper = coords[self.column] is second
        # A shift: a division of a signed number by 2 takes three instructions.
        place = tirx.BufferLoad(self.words, [self.offset({**coords, self.column: first}) >> i64(1)])
        word = hopper.load_word(T.address_of(place))
        sixteen = tirx.IntImm("uint32", 16)
        if self.dtype.name == "bfloat16":
            return tirx.reinterpret("float32", word & tirx.IntImm("uint32", 0xFFFF0000) if upper else word << sixteen)
        half = tirx.Cast("uint16", word >> sixteen if upper else word)
        return tirx.Cast("float32", tirx.reinterpret("float16", half))


class _Kernel(DeviceKernel):
    """A kernel whose epilogue reads pairs of columns, and whose body is a TIRx script."""

    columns: tuple[Expr, Expr] | None = None
    column_dim = ""

    def _strided(self, kind: str, name: str, dims: tuple[str, ...], dtype: Any) -> Memory:
        known = (kind, name) in self._memory
        memory = super()._strided(kind, name, dims, dtype)
        if known or dtype.name not in HALVES or not dims or dims[-1] != self.column_dim:
            return memory
        words = tirx.decl_buffer((i64(1 << 47),), "uint32", f"{name}_words", data=memory.buffer.data, data_alignment=4)
        self._views.append((words, memory.buffer.data))
        pairs = _Pairs(
            memory.name, memory.dims, memory.dtype, memory.buffer, memory.strides, words, dims[-1], lambda: self.columns
        )
        self._memory[kind, name] = pairs
        self.pairs += [Param(kind, name), *(Param(f"{kind}_stride", name, d) for d in dims[:-1])]
        return pairs

    def __init__(self, context: Context, part: str, threads: int) -> None:
        super().__init__(context, part, threads)
        self.pairs: list[Param] = []
        """Addresses and strides of what is read in pairs."""

    def tensor_map(self, name: str) -> Any:
        """The map of that name, as a parameter."""
        return self._param(Param("tensor_map", name), f"{name}_map", _TENSOR_MAP)

    def launch_script(self, script: Any, form: Form, blocks: Extent, maps: tuple[TensorMap, ...]) -> Launch:
        """The finished kernel."""
        declared = [tirx.DeclBuffer(buffer, data=var) for buffer, var in self._views]
        function = tirx.PrimFunc(list(self._params.values()), tirx.SeqStmt([*declared, script]) if declared else script)
        function = function.with_attr("tirx.noalias", True).with_attr(SCRIPT, True)
        if form.consumers > 1:  # setmaxnreg wants registers that are known at entry
            function = function.with_attr("tirx.launch_bounds_min_blocks_per_sm", 1)
        grid = Grid(blocks, form.threads, Extent.const(form.shared_memory), 1, form.cluster)
        aligned = [(p, 16) for m in maps for p in (m.memory, *m.strides)] + [(p, 4) for p in self.pairs]
        return Launch(self.name, function, tuple(self._params), (), grid, maps, tuple(dict.fromkeys(aligned)))


class _Epilogue:
    """The group's results at two rows and two columns side by side, from their sums.

    Past the end of the matrix positions are clamped: loads stay inside, and what they give is not stored.
    """

    def __init__(self, kernel: _Kernel, node: Tensor, dims: Dims, halves: bool) -> None:
        self.kernel = kernel
        self.node = node
        self.dims = dims
        self.sums: list[tuple[Tensor, Tensor, Function]] = []
        """Sums of one and a function, where another form serves: the sum, the function's argument, the form."""
        if halves:
            walk(tuple(kernel.group.stored), self._find_sum)

    def _find_sum(self, node: Tensor) -> None:
        found = half_results.one_plus(node)
        if found is not None:
            self.sums.append((node, *found))

    def _scopes(
        self, code: Code, layers: Sequence[Expr], rows: Sequence[Expr], columns: Sequence[Expr], sums: Sequence[Expr]
    ) -> list[Scope]:
        """One for each sum. What depends on columns alone is computed once for both rows."""
        outer = {d: code.bind(tirx.Cast("int64", x), d) for d, x in zip(self.dims.layers, layers, strict=True)}
        scope = Scope(self.kernel, code, outer)
        across = [scope.inner(code, {self.dims.column: c}) for c in columns]
        places = [(s, {self.dims.row: r}) for r in rows for s in across]
        return [self._place(s.inner(code, at), total) for (s, at), total in zip(places, sums, strict=True)]

    def _place(self, scope: Scope, total: Expr) -> Scope:
        """The scope, which is that of one sum, with what is held there."""
        scope.held[id(self.node)] = lambda _: total
        for node, argument, form in self.sums:
            scope.held[id(node)] = _held(scope, argument, form)
        return scope

    def values(
        self, sums: Sequence[Expr], layers: Sequence[Expr], rows: Sequence[Expr], column: Expr
    ) -> Sequence[Expr]:
        """The one stored value, in float32; statements that it needs go to the kernel under construction."""
        code = Code(scope="local")
        m, n = (tirx.Cast("int32", self.kernel.extent(d)) for d in (self.dims.row, self.dims.column))
        rows = [code.bind(tirx.Cast("int64", tirx.Min(r, m - 1)), "row") for r in rows]
        first = code.bind(tirx.Cast("int64", tirx.Min(column, n - 2)), "column")
        self.kernel.columns = (first, code.bind(first + i64(1), "column"))
        scopes = self._scopes(code, layers, rows, self.kernel.columns, [code.bind(s) for s in sums])
        found = [s.value(self.kernel.group.stored[0]) for s in scopes]
        self.kernel.columns = None
        for statement in code.statements:
            T.add_to_parent(statement)
        return found

    def store(self, sums: Sequence[Expr], layers: Sequence[Expr], rows: Sequence[Expr], column: Expr) -> None:
        """Computes and stores all the group's values, where the matrix has such a row and column."""
        code = Code(scope="local")
        m, n = (tirx.Cast("int32", self.kernel.extent(d)) for d in (self.dims.row, self.dims.column))
        for i, total in enumerate(sums):
            row, at = rows[i // 2], column + i % 2
            with code.when(tirx.And(row < m, at < n)) as inside:
                place, across = (inside.bind(tirx.Cast("int64", x)) for x in (row, at))
                (scope,) = self._scopes(inside, layers, [place], [across], [inside.bind(total)])
                self.kernel.store_all(scope)
        for statement in code.statements:
            T.add_to_parent(statement)


def _held(scope: Scope, argument: Tensor, form: Function) -> Held:
    return lambda _: half_results.compute(form, scope.value(argument), scope.bind)


def build_kernel(context: Context, form: Form, part: str) -> Launch:
    """One kernel for the context's group, without the conditions under which it is chosen."""
    problem = Problem(context.group)
    dims = Dims(problem)
    kernel = _Kernel(context, part, form.threads)
    kernel.column_dim = dims.column
    halves = all(n.dtype.name in HALVES for n in context.group.stored)
    if halves:
        kernel.elementary.update(half_results.FUNCTIONS)
    left, right = operand(problem.left), operand(problem.right)
    assert left is not None and right is not None
    result = single_result(kernel, dims)
    across = form.columns // form.cluster
    maps = [
        _map(kernel, dims, "left", left, (dims.sum, dims.row), (form.depth, form.rows)),
        _map(kernel, dims, "right", right, (dims.sum, dims.column), (form.depth, across)),
    ]
    if result is not None:
        maps.append(_map(kernel, dims, "result", result, (dims.column, dims.row), (BOX, BOX)))
    variables = [kernel.tensor_map(m.name) for m in maps]
    operands = Operands(
        variables[0],
        variables[1],
        variables[2] if result is not None else None,
        kernel.extent(dims.row),
        kernel.extent(dims.column),
        kernel.extent(dims.sum),
        left.dtype.name,
        left.dtype.name if result is None else result.dtype.name,
        left.dims[-1] != dims.sum,
        right.dims[-1] != dims.sum,
        tuple(kernel.extent(d) for d in dims.layers),
        dims.layers_of(left.dims),
        dims.layers_of(right.dims),
        () if result is None else dims.layers_of(result.value.dims),
    )
    epilogue = _Epilogue(kernel, problem.node, dims, halves)
    body = contraction(form, operands, epilogue.values if result is not None else None, epilogue.store).body
    return kernel.launch_script(body, form, _blocks(context, dims, form), tuple(maps))


def _blocks(context: Context, dims: Dims, form: Form) -> Extent:
    """The blocks that have a tile each."""
    graph = context.partition.graph
    down = (graph.extent(dims.row) + (form.rows * form.cluster - 1)) // (form.rows * form.cluster)
    across = (graph.extent(dims.column) + (form.columns - 1)) // form.columns
    return down * across * cost.elements(graph, dims.layers) * form.cluster


def _map(
    kernel: Kernel, dims: Dims, name: str, of: Input | Result, matrix: tuple[str, str], box: tuple[int, int]
) -> TensorMap:
    """``matrix``: its two dims, and ``box`` along them; innermost comes the one that is contiguous."""
    kind, its = ("input", of.dims) if isinstance(of, Input) else ("result", of.value.dims)
    inner, outer = matrix
    if its[-1] != inner:
        inner, outer, box = outer, inner, (BOX, box[0])
    order = (inner, outer, *(dims.layers[i] for i in dims.layers_of(its)))
    return TensorMap(
        name,
        Param(kind, of.name),
        of.dtype.name,
        tuple(kernel.graph.extent(d) for d in order),
        tuple(Param(f"{kind}_stride", of.name, d) for d in order[1:]),
        (*box, *(1 for _ in order[2:])),
    )


def single_result(kernel: Kernel, dims: Dims) -> Result | None:
    """The result that TMA can store: the group's only value, a half, read by no other group, contiguous by columns."""
    if len(kernel.group.stored) != 1:
        return None
    (node,) = kernel.group.stored
    results = [r for r in kernel.graph.results if r.value is node]
    if len(results) != 1 or kernel.read_elsewhere(node) or results[0].updates is not None:
        return None
    fits = results[0].dtype.name in HALVES and node.dims[-1] == dims.column
    return results[0] if fits else None


_MOST = 1 << 30
"""Rows, columns, or elements along the sum: positions are int32 in a kernel."""


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for few tiles, for many, and for numbers of tiles that would leave multiprocessors idle; and the plain
    ones, for memory that TMA does not take.
    """
    problem = Problem(context.group)
    dims = Dims(problem)
    graph = context.partition.graph
    m, n, k = (graph.extent(d) for d in (dims.row, dims.column, dims.sum))
    rows = cost.elements(graph, problem.rows)
    small, large = (_blocks(context, dims, form) for form in (SMALL, SHARED))
    sms = config["multiprocessors"]
    # In tenths: what the last wave of blocks leaves idle.
    waste = (large + (sms - 1)) // sms * (10 * sms) + large * -(10 + config["tenths_idle"])
    forms: list[tuple[str, Form, tuple[Comparison, ...]]] = [
        ("wgmma_small", SMALL, ((small, "<=", config["small_blocks"]),)),
        ("wgmma_shared", SHARED, ((waste, "<=", 0), (k, ">", config["shared_from"]))),
        ("wgmma_alternating", ALTERNATING, ()),
    ]
    few = few_rows.most(context, problem, config["few_rows"])
    always = ((rows, ">", few), (n, ">", 0), (k, ">", 0), *((d, "<=", _MOST) for d in (m, n, k)))
    found: list[Launch] = []
    for part, form, conditions in forms:
        when = undecided(*always, *conditions)
        if when is not None:
            found.append(replace(build_kernel(context, form, part), when=when))
    found += plain.build(context, plain.SCHEDULE.default(context.group, context.arch))
    choice = f"group{context.group.index}"
    return [replace(launch, choice=choice) for launch in found]


def _default(group: Group, arch: str) -> Config:
    """A shared tile's epilogue runs while the tensor cores wait: the heavier it is, the longer the sums it is worth.

    From there on it beats the other form (H200, bfloat16, ratios to cuBLAS or eager torch): alone from the start (1.03
    to 0.99 at 4096³), with a bias at 4096³ (1.03 to 0.99; 1.01 both at 4096×4096×2048), with GELU at 8192³ (1.07 to
    1.02; 1.09 both at 4096³, 1.12 to 1.19 at 4096×4096×2048).
    """
    maps: list[Map] = []
    walk(tuple(group.stored), lambda n: maps.append(n) if isinstance(n, Map) and group.holds(n) else None)
    functions = any(n.op in half_results.COSTLY for n in maps)
    return {
        "few_rows": 32,
        "small_blocks": 132,
        "multiprocessors": 132,
        "tenths_idle": 1,
        "shared_from": 4096 if functions else 2048 if len(maps) > 0 else 0,
    }


SCHEDULE = Schedule(
    name="cuda.wgmma",
    target="cuda",
    pattern="contraction",
    region="products of two parameters of a half type on sm_90a; what TMA cannot read is left to cuda.contraction",
    knobs={
        "few_rows": (0, 8, 16, 32),
        "small_blocks": (0, 66, 132),
        "multiprocessors": (114, 132),
        "tenths_idle": (0, 1, 2),
        "shared_from": (0, 1024, 2048, 4096),
    },
    serves=lambda group, arch: tensor_cores.by_wgmma(group, arch),
    default=_default,
    build=build,
)
