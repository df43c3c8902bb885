"""A kernel of a group on an NVIDIA GPU: its threads, its shared memory, and what they do together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx

from opsgen.analysis.exact import stored_type
from opsgen.dsl.dtypes import DType
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Comparison, Grid, Kernel, Launch, Param
from opsgen.lowering.statements import Code, Expr, constant, i64
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.schedule import Context
from opsgen.targets.cuda import WARP

from . import elementary


class DeviceKernel(Kernel):
    """The kernel that does one ``part`` of what the context's group needs, by blocks of ``threads``."""

    def __init__(self, context: Context, part: str, threads: int) -> None:
        name = f"{context.prefix}_{part}"
        super().__init__(name, context.partition, context.group, context.spaces, elementary.FLOAT32, elementary.FLOAT64)
        self.narrow = elementary.NARROW
        self.code = Code(scope="local")
        self.threads = threads
        self._thread, self._block = tirx.Var("threadIdx_x", "int32"), tirx.Var("blockIdx_x", "int32")
        self.thread: Expr = tirx.Cast("int64", self._thread)
        self.block: Expr = tirx.Cast("int64", self._block)
        self.blocks: Expr = call("int64", "opsgen_blocks")
        self._dynamic: Any = None

    def stored_type(self, node: Tensor) -> DType:
        return stored_type(node)

    # -- operators that are functions of the prelude, or of CUDA -------------------------------------------------------
    def extreme(self, op: str, a: Expr, b: Expr) -> Expr:
        return extreme(op, a, b)

    def rounded(self, op: str, x: Expr) -> Expr:
        return elementary.rounded(op, x)

    def power(self, a: Expr, b: Expr) -> Expr:
        return elementary.power(a, b)

    def wide_product(self, a: Expr, b: Expr) -> Expr:
        return call("int64", "opsgen_wide_product", a, b)

    # -- memory of the caller ------------------------------------------------------------------------------------------
    def parameters_of(self, memory: Memory) -> tuple[Param, list[Param]]:
        """Of memory of the caller or the plan: its address, and its strides along all dims but the innermost, as far
        as they are parameters."""
        kind, name = next(key for key, m in self._memory.items() if m is memory)
        strides = [Param(f"{kind}_stride", name, d) for d in memory.dims[:-1]]
        return Param(kind, name), [p for p in strides if p in self._params]

    # -- memory and tasks of the block ---------------------------------------------------------------------------------
    def shared(self, dtype: str, size: int, name: str) -> Any:
        """A buffer of the block, of a size known here."""
        buffer = tirx.decl_buffer((i64(size),), dtype, name, scope="shared", data_alignment=16)
        self.code.emit(tirx.AllocBuffer(buffer))
        return buffer

    def dynamic(self, dtype: str) -> Any:
        """The block's dynamic shared memory, whose size the launch says. There is one."""
        if self._dynamic is None:
            # Kernels of one source declare it with one type for each name.
            name = "kept" if dtype == "float32" else f"kept_{dtype}"
            self._dynamic = tirx.decl_buffer((i64(1 << 20),), dtype, name, scope="shared.dyn", data_alignment=16)
            self.code.emit(tirx.AllocBuffer(self._dynamic))
        return self._dynamic

    @contextmanager
    def tasks(self, count: Expr) -> Iterator[tuple[Expr, Code]]:
        """The tasks of a block: all whose number is the block's, modulo the number of blocks."""
        with self._stride_over(count, self.block, self.blocks) as found:
            yield found

    @contextmanager
    def thread_tasks(self, count: Expr) -> Iterator[tuple[Expr, Code]]:
        """The tasks of a thread, where each thread of the grid has its own."""
        each = i64(self.threads)
        first = self.code.bind(self.block * each + self.thread, "first")
        with self._stride_over(count, first, self.blocks * each) as found:
            yield found

    @contextmanager
    def _stride_over(self, count: Expr, first: Expr, step: Expr) -> Iterator[tuple[Expr, Code]]:
        with strided(self.code, first, self.code.bind(count, "tasks"), self.code.bind(step, "step"), "task") as found:
            yield found

    def launch_on(
        self,
        blocks: Extent,
        when: tuple[Comparison, ...] = (),
        shared: Extent | None = None,
        per_sm: int | None = None,
        resident: int = 1,
        cluster: int = 1,
        aligned: tuple[tuple[Param, int], ...] = (),
        choice: str = "",
    ) -> Launch:
        """The finished kernel, and how it is launched. Registers are such that a multiprocessor can hold ``resident``
        blocks."""
        body = self.body()
        for var, tag, extent in ((self._thread, "threadIdx.x", self.threads), (self._block, "blockIdx.x", 1)):
            count = tirx.IntImm("int32", extent)
            bound = tirx.IterVar(tvm.ir.Range(tirx.IntImm("int32", 0), count), var, tirx.IterVar.ThreadIndex, tag)
            body = tirx.AttrStmt(bound, "thread_extent", count, body)
        function = tirx.PrimFunc(list(self._params.values()), body).with_attr("tirx.noalias", True)
        function = function.with_attr("opsgen.blocks_per_sm", resident)
        grid = Grid(blocks, self.threads, shared if shared is not None else Extent.const(0), per_sm, cluster)
        return Launch(self.name, function, tuple(self._params), when, grid, (), aligned, choice)


@contextmanager
def strided(code: Code, first: Expr, count: Expr, step: Expr, name: str) -> Iterator[tuple[Expr, Code]]:
    """``for name in range(first, count, step)``, for expressions that are bound."""
    var, body = tirx.Var(name, "int64"), Code(scope="local")
    yield var, body
    if body.statements:
        code.emit(tirx.For(var, first, count - first, tirx.ForKind.SERIAL, body.block(), step=step))


def extreme(op: str, a: Expr, b: Expr) -> Expr:
    """max or min of two numbers; a float NaN on either side wins."""
    if a.ty.dtype.startswith("float"):
        return call(a.ty.dtype, {"max": "opsgen_maximum", "min": "opsgen_minimum"}[op], a, b)
    return tirx.Select(a >= b if op == "max" else a <= b, a, b)


def combine(op: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    if op == "sum":
        return tirx.Add(a, b)
    return tirx.Mul(a, b) if op == "prod" else extreme(op, a, b)


def call(dtype: str, name: str, *args: Expr) -> Expr:
    """A function of the prelude, or of CUDA."""
    return tirx.call_pure_extern(dtype, name, *args)


def synchronize(code: Code) -> None:
    """All threads of the block wait for each other, and see each other's shared memory."""
    code.emit(tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared")))


def exchange(value: Expr, other: int) -> Expr:
    """A value of another thread of the warp: the one whose number differs in the bits of ``other``."""
    return call(value.ty.dtype, "opsgen_exchange", value, constant(other, "int32"))


def rounds(lanes: int = WARP) -> list[int]:
    """The distances over which all threads of a warp (or an aligned part of it) come to one value."""
    found = []
    while lanes > 1:
        lanes //= 2
        found.append(lanes)
    return found
