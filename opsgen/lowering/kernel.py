"""One kernel under construction: its parameters, made as they are used, and the memory behind them.

A kernel takes pointers, run-time scalars, extents and strides, in the order in which they were first needed. The
launcher fills them in
(`Param` says with what); nothing is read from a DLTensor inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from ..analysis.groups import Group, Partition
from ..dsl.dtypes import DType, compute_type
from ..dsl.extent import Extent
from ..dsl.op import Graph, Result
from ..dsl.tensor import Input, Scalar, Tensor, walk
from .statements import Code, Expr, function, i64, known, mul, pointer, truncdiv, variable_name, view
from .to_tir import Environment, Memory, Scope, storage_name
from .vector_math import Function


@dataclass(frozen=True)
class Param:
    """What the launcher passes.

    ``kind`` is ``"input"``, ``"result"``, ``"workspace"`` (a pointer; ``name`` says which), ``"scalar"``, ``"dim"`` (an
    extent), ``"input_stride"`` or ``"result_stride"`` (of ``name`` along ``dim``, in elements; two kinds, because a
    result may have the name of an input), or ``"tensor_map"`` (the launch's map of that name).
    """

    kind: str
    name: str
    dim: str = ""
    dtype: str = ""


Comparison = tuple[Extent, str, int]
"""Of an expression of dims with a number: ``(rows, "<=", 12)``."""


@dataclass(frozen=True)
class Grid:
    """How many threads of a GPU run a kernel: ``blocks`` of ``threads``, each with ``shared`` bytes of dynamic shared
    memory. What is an extent is computed from a call's dims.

    With ``per_sm``, there are at most that many blocks for each multiprocessor of the device; a kernel must cope with
    fewer blocks than it asked for in any case, for a launch has a limit too (2^31 - 1).
    """

    blocks: Extent
    threads: int
    shared: Extent = field(default_factory=lambda: Extent.const(0))
    per_sm: int | None = None
    cluster: int = 1
    """Blocks that run together and reach each other's shared memory; their number divides that of the blocks."""


MAP_BYTES = {
    "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4,
    "tfloat32": 4,
}  # fmt: skip
"""What TMA moves, and the bytes of an element. tfloat32 is float32 in memory, rounded to 10 bits of mantissa."""


@dataclass(frozen=True)
class TensorMap:
    """What TMA is told of a memory (an input, a result or a workspace): ``extents`` and the ``box`` that a copy moves,
    innermost first, and ``strides`` in elements of all but the innermost dim. Boxes are 128 bytes wide, and swizzled.
    ``clipped``: a box has no more rows than there are; TMA fills such rows with zeros, which takes time.
    """

    name: str
    memory: Param
    dtype: str
    extents: tuple[Extent, ...]
    strides: tuple[Param | Extent, ...]
    box: tuple[int, ...]
    clipped: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel of a plan: the function, and what to pass."""

    name: str
    function: Any
    params: tuple[Param, ...]
    when: tuple[Comparison, ...] = ()
    """What a call's dims must meet for the kernel to run."""
    grid: Grid | None = None
    """On a GPU; None for a CPU's kernel."""
    maps: tuple[TensorMap, ...] = ()
    aligned: tuple[tuple[Param, int], ...] = ()
    """Addresses and strides (above 0) that must be multiples of so many bytes in a call for the kernel to run."""
    choice: str = ""
    """Of launches with the same name here, the first runs whose conditions a call meets, and no other."""
    cost: Extent | None = None
    """In any unit. Launches of a choice that follow each other and have costs compete: of those whose conditions a call
    meets, the cheapest is taken for the first."""


@dataclass(frozen=True)
class Workspace:
    """Memory between kernels of a plan: ``elements`` of ``dtype``, an expression over free dims."""

    name: str
    elements: Extent
    dtype: DType


Sink = Callable[[Code, Memory, Mapping[str, Expr], Expr], None]
"""Stores a value in a memory at a position."""


class Kernel(Environment):
    """The kernel ``name`` of a group. ``code`` is its body."""

    def __init__(
        self,
        name: str,
        partition: Partition,
        group: Group,
        spaces: dict[str, Workspace],
        elementary: Mapping[str, Function] | None = None,
        wide: Mapping[str, Function] | None = None,
    ) -> None:
        super().__init__(elementary, wide)
        self.name = name
        self.graph = partition.graph
        self.partition = partition
        self.group = group
        self.spaces = spaces
        self.code = Code()
        self._params: dict[Param, Any] = {}
        self._memory: dict[tuple[str, str], Memory] = {}
        self._nothing: Any = None
        self._views: list[tuple[Any, Any]] = []

    # -- parameters ----------------------------------------------------------------------------------------------------
    def _param(self, param: Param, var_name: str, dtype: str) -> Any:
        if param not in self._params:
            self._params[param] = tirx.Var(variable_name(var_name), dtype)
        return self._params[param]

    def expr(self, extent: Extent) -> Expr:
        """An extent as an int64 expression."""
        forms = {"add": lambda a, b: a + b, "mul": mul, "floordiv": tirx.truncdiv}
        return extent.fold(lambda n: self._param(Param("dim", n), n, "int64"), i64, lambda op, a, b: forms[op](a, b))

    def extent(self, dim: str) -> Expr:
        """The dim's extent. One that is bound to 0 comes out of memory all the same: TVM refuses a division by the
        number 0, even where it is never done."""
        found = self.expr(self.graph.extent(dim))
        if known(found) != 0:
            return found
        if self._nothing is None:
            first = Code(scope=self.code.scope)
            buffer = first.local("int64", 1, "nothing")
            first.store(buffer, i64(0), i64(0))
            self._nothing = first.bind(tirx.BufferLoad(buffer, [i64(0)]), "nothing")
            self.code.statements[:0] = first.statements
        return self._nothing

    def scalar(self, node: Scalar) -> Expr:
        dtype = scalar_type(self.graph)
        return self._param(Param("scalar", node.name, dtype=dtype), node.name, dtype)

    # -- memory --------------------------------------------------------------------------------------------------------
    def _pointer(self, kind: str, name: str, dtype: DType) -> Any:
        type_name = storage_name(dtype)
        var = pointer(f"{kind}_{name}_data", type_name)
        self._params[Param(kind, name)] = var
        buffer = view(var, type_name, name, dtype.bytes if kind != "workspace" else 64)
        self._views.append((buffer, var))
        return buffer

    def _strided(self, kind: str, name: str, dims: tuple[str, ...], dtype: DType) -> Memory:
        """The caller's memory: innermost stride 1, others as they come."""
        if (kind, name) not in self._memory:
            buffer = self._pointer(kind, name, dtype)
            strides: dict[str, Expr] = {}
            for d in dims[:-1]:
                strides[d] = self._param(Param(f"{kind}_stride", name, d), f"{kind}_{name}_{d}_stride", "int64")
            if dims:
                strides[dims[-1]] = i64(1)
            self._memory[kind, name] = Memory(name, dims, dtype, buffer, strides, narrow=self.narrow)
        return self._memory[kind, name]

    def workspace(self, name: str, dims: dict[str, Extent], dtype: DType) -> Memory:
        """Memory of the plan, dense in the order of ``dims``; made on first use."""
        count = Extent.const(1)
        for e in dims.values():
            count = count * e
        self.spaces.setdefault(name, Workspace(name, count, dtype))
        return self._dense("workspace", name, dims, dtype)

    def packed_input(self, name: str, dims: dict[str, Extent], dtype: DType) -> Memory:
        """An input that the caller packed: what follows its header, dense in the order of ``dims``."""
        return self._dense("input", name, dims, dtype)

    def _dense(self, kind: str, name: str, dims: dict[str, Extent], dtype: DType) -> Memory:
        if (kind, name) not in self._memory:
            strides: dict[str, Expr] = {}
            step = Extent.const(1)
            for d in reversed(dims):
                strides[d] = self.expr(step)
                step = step * dims[d]
            buffer = self._pointer(kind, name, dtype)
            self._memory[kind, name] = Memory(name, tuple(dims), dtype, buffer, strides, narrow=self.narrow)
        return self._memory[kind, name]

    def _stored(self, node: Tensor) -> Memory:
        """Where other groups read a stored node: its workspace, or a result's memory where that holds it exactly."""
        dtype = self.stored_type(node)
        for r in self.partition.graph.results:
            if r.value is node and r.updates is None and r.dtype in (dtype, compute_type(r.dtype)):
                return self._result(r)
        home = self.partition.home[id(node)]
        if home.update is not None:  # once it has run, the new value is what the parameter holds
            return self.input(home.update.old)
        position = next(i for i, s in enumerate(home.stored) if s is node)
        # In the order in which the group makes it: that of the expression is an accident of which operand stood left.
        order = node.dims
        if home.scatter is not None:
            order = home.scatter.space
        elif home.reductions and home.fused is None:
            order = home.reductions[0].dims + home.over
        return self.workspace(
            f"group{home.index}_{position}",
            {d: self.graph.extent(d) for d in order if d in node.dims},
            dtype,
        )

    def stored_type(self, node: Tensor) -> DType:
        """The type in which a node is kept for other groups."""
        return compute_type(node.dtype)

    def _result(self, r: Result) -> Memory:
        if r.updates is not None:
            return self.input(r.updates)
        return self._strided("result", r.name, r.value.dims, r.dtype)

    def input(self, node: Input) -> Memory:
        """A parameter's memory."""
        return self._strided("input", node.name, node.dims, node.dtype)

    def memory(self, node: Tensor) -> Memory | None:
        if isinstance(node, Input):
            return self.input(node)
        return self._stored(node) if self.partition.read_from(self.group, node) is not None else None

    def destinations(self, node: Tensor) -> list[Memory]:
        """All the places where a stored node of this group goes."""
        places = [self._result(r) for r in self.graph.results if r.value is node]
        if self.read_elsewhere(node):
            stored = self._stored(node)
            if all(p is not stored for p in places):
                places.append(stored)
        return places

    def store_all(self, scope: Scope, sink: Sink | None = None) -> None:
        """Computes and stores the group's results at a position; all are read before one is written (updates)."""
        self.store_values(scope, [(node, scope.value(node)) for node in self.group.stored], sink)

    def store_values(self, scope: Scope, values: list[tuple[Tensor, Expr]], sink: Sink | None = None) -> None:
        """Stores values of the group wherever they go: through ``sink`` if given, else at once."""
        for node, value in values:
            for place in self.destinations(node):
                if sink is not None:
                    sink(scope.code, place, scope.coords, value)
                else:
                    place.store(scope.code, scope.coords, value)

    def read_elsewhere(self, node: Tensor) -> bool:
        """Whether another group reads the node."""
        others = (g for g in self.partition.groups if g is not self.group)
        return any(n is node for g in others for n in self.partition.contents(g)[1])

    # -- the function --------------------------------------------------------------------------------------------------
    def cost(self, flops: Extent, elements: Extent, flops_per_ns: int) -> None:
        """States what the next parallel loop costs one thread, so that small work stays on the caller."""
        ns = truncdiv(self.expr(flops), flops_per_ns) + truncdiv(self.expr(elements), 4)
        self.code.call("opsgen_parallel_cost", ns)

    def body(self) -> Any:
        """All statements, behind the declarations of the memory that they use."""
        body = Code()
        for buffer, var in self._views:
            body.emit(tirx.DeclBuffer(buffer, data=var))
        body.statements.extend(self.code.statements)
        return body.block()

    def launch(self) -> Launch:
        """The finished kernel."""
        return Launch(self.name, function(self.name, list(self._params.values()), self.body()), tuple(self._params))


def scalar_type(graph: Graph) -> str:
    """The type in which a graph's run-time scalars are passed: double where something is computed in double."""
    wide: list[bool] = []
    walk(graph.outputs(), lambda n: wide.append(compute_type(n.dtype).name == "float64"))
    return "float64" if any(wide) else "float32"
