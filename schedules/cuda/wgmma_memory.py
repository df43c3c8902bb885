"""A tensor-core kernel's memory on sm_90a: what TMA moves, and what its epilogue reads in pairs of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from opsgen.dsl.dtypes import DType
from opsgen.dsl.extent import Extent
from opsgen.dsl.op import Result
from opsgen.dsl.tensor import Input, Tensor
from opsgen.lowering.kernel import MAP_BYTES, Comparison, Grid, Launch, Param, TensorMap
from opsgen.lowering.statements import Expr, i64
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.schedule import Context
from opsgen.targets.cuda.asynchronous import SCRIPT

from . import hopper
from .kernels import DeviceKernel
from .tensor_cores import HALVES, Dims
from .tiles import BOX, Form

_TENSOR_MAP = T.handle("tensormap").ty
_SIXTEEN = 16
"""Bytes whose multiples TMA wants addresses and strides to be."""


def _moved(dtype: DType) -> str:
    """How TMA moves an operand: float32 is rounded to tf32 on the way."""
    return "tfloat32" if dtype.name == "float32" else dtype.name


def _multiple(extent: Extent, of: int) -> Comparison:
    """That the extent is a multiple of a number."""
    return extent + extent // of * -of, "<=", 0


@dataclass(eq=False)
class _Pairs(Memory):
    """A memory that is read two columns at a time: one load for both."""

    words: Any = None
    """The memory in words of two elements."""
    column: str = ""
    pair: Callable[[], tuple[Expr, Expr] | None] = lambda: None
    """Which two columns are computed, where it is two."""
    taken: Callable[[], None] = lambda: None
    """Told of each load of a pair."""
    brought: Callable[[Mapping[str, Expr]], Expr | None] = lambda coords: None
    """The word of both columns at a position, where TMA brought it."""

    def load(self, coords: Mapping[str, Expr]) -> Expr:
        pair = self.pair()
        if pair is None or all(coords[self.column] is not c for c in pair):
            return super().load(coords)
        first, second = pair
        upper = coords[self.column] is second
        word = self.brought(coords)
        if word is not None:
            return self._half(word, upper)
        self.taken()
        # A shift: a division of a signed number by 2 takes three instructions.
        place = tirx.BufferLoad(self.words, [self.offset({**coords, self.column: first}) >> i64(1)])
        if self.dtype.name == "float32":
            both = hopper.load_pair(T.address_of(place))
            one = tirx.Cast("uint32", both >> tirx.IntImm("uint64", 32) if upper else both)
            return tirx.reinterpret("float32", one)
        return self._half(hopper.load_word(T.address_of(place)), upper)

    def _half(self, word: Expr, upper: bool) -> Expr:
        """One of the two of a word, as float32."""
        sixteen = tirx.IntImm("uint32", 16)
        if self.dtype.name == "bfloat16":
            return tirx.reinterpret("float32", word & tirx.IntImm("uint32", 0xFFFF0000) if upper else word << sixteen)
        half = tirx.Cast("uint16", word >> sixteen if upper else word)
        return tirx.Cast("float32", tirx.reinterpret("float16", half))


@dataclass(frozen=True)
class Fetched:
    """What TMA brought of a memory: at each of some rows the word of the two columns that are computed."""

    memory: str
    place: Mapping[str, Sequence[Expr]]
    """The positions that are computed: one of a layer, those rows of ``row``."""
    row: str
    words: Sequence[Expr]

    def word(self, memory: str, dims: Sequence[str], coords: Mapping[str, Expr]) -> Expr | None:
        """The word at a position, if it is one of those."""
        if memory != self.memory or any(all(coords[d] is not x for x in self.place[d]) for d in dims):
            return None
        return next(w for x, w in zip(self.place[self.row], self.words, strict=True) if coords[self.row] is x)


class ScriptKernel(DeviceKernel):
    """A kernel whose epilogue reads pairs of columns, and whose body is a TIRx script."""

    def __init__(self, context: Context, part: str, threads: int, column_dim: str) -> None:
        super().__init__(context, part, threads)
        self.column_dim = column_dim
        self.columns: tuple[Expr, Expr] | None = None
        """The two that are computed, while they are."""
        self.fetched: Fetched | None = None
        """What TMA brought for the sums that are computed, while they are."""
        self.aligned: dict[Param, int] = {}
        """Addresses and strides of what is read in pairs or by TMA, and the bytes of which they must be multiples."""
        self.maps: list[TensorMap] = []

    def _strided(self, kind: str, name: str, dims: tuple[str, ...], dtype: Any) -> Memory:
        known = (kind, name) in self._memory
        memory = super()._strided(kind, name, dims, dtype)
        return memory if known else self._in_pairs(kind, name, memory)

    def _dense(self, kind: str, name: str, dims: dict[str, Extent], dtype: Any) -> Memory:
        known = (kind, name) in self._memory
        memory = super()._dense(kind, name, dims, dtype)
        return memory if known else self._in_pairs(kind, name, memory)

    def _in_pairs(self, kind: str, name: str, memory: Memory) -> Memory:
        dims, dtype = memory.dims, memory.dtype
        if dtype.name not in (*HALVES, "float32") or not dims or dims[-1] != self.column_dim:
            return memory
        two = "uint32" if dtype.bytes == 2 else "uint64"
        data = memory.buffer.data
        words = tirx.decl_buffer((i64(1 << 47),), two, f"{name}_words", data=data, data_alignment=2 * dtype.bytes)
        self._views.append((words, data))

        def taken() -> None:
            for param in (Param(kind, name), *(Param(f"{kind}_stride", name, d) for d in dims[:-1])):
                if kind != "workspace":
                    self.aligned[param] = 2 * dtype.bytes

        def brought(coords: Mapping[str, Expr]) -> Expr | None:
            return self.fetched.word(name, dims[:-1], coords) if self.fetched is not None else None

        pairs = _Pairs(
            name, dims, dtype, memory.buffer, memory.strides, words, dims[-1], lambda: self.columns, taken, brought
        )
        self._memory[kind, name] = pairs
        return pairs

    def stored_in(self, node: Tensor) -> str:
        """The name of the memory that a parameter, or what another group stores, is in."""
        return node.name if isinstance(node, Input) else self._stored(node).name

    # -- tensor maps ---------------------------------------------------------------------------------------------------
    def operand_map(
        self, name: str, node: Tensor, dims: Dims, matrix: tuple[str, str], box: tuple[int, int], clipped: bool = False
    ) -> Any:
        """The map of an operand. ``matrix``: its two dims, and ``box`` along them; innermost comes the one that is
        contiguous."""
        if isinstance(node, Input):
            return self._map(name, Param("input", node.name), node.dims, _moved(node.dtype), dims, matrix, box, clipped)
        memory = self._stored(node)
        kind = next(kind for (kind, _), m in self._memory.items() if m is memory)
        return self._map(name, Param(kind, memory.name), memory.dims, _moved(memory.dtype), dims, matrix, box, clipped)

    def _map(
        self,
        name: str,
        memory: Param,
        its: tuple[str, ...],
        dtype: str,
        dims: Dims,
        matrix: tuple[str, str],
        box: tuple[int, int],
        clipped: bool = False,
    ) -> Any:
        inner, outer = matrix
        if its[-1] != inner:
            inner, outer, box = outer, inner, (BOX, box[0])
        order = (inner, outer, *(dims.layers[i] for i in dims.layers_of(its)))
        strides = tuple(self._stride(memory, its, d) for d in order[1:])
        extents = tuple(self.graph.extent(d) for d in order)
        self.maps.append(TensorMap(name, memory, dtype, extents, strides, (*box, *(1 for _ in order[2:])), clipped))
        return self._param(Param("tensor_map", name), f"{name}_map", _TENSOR_MAP)

    def _stride(self, memory: Param, its: tuple[str, ...], dim: str) -> Param | Extent:
        if memory.kind != "workspace":
            return Param(f"{memory.kind}_stride", memory.name, dim)
        found = Extent.const(1)
        for inner in its[its.index(dim) + 1 :]:
            found = found * self.graph.extent(inner)
        return found

    def result_map(self, name: str, place: Result | Memory, dims: Dims) -> Any:
        """The map of a result, or of what other groups read."""
        if isinstance(place, Result):
            its, dtype, memory = place.value.dims, place.dtype, Param("result", place.name)
        else:
            its, dtype, memory = place.dims, place.dtype, Param("workspace", place.name)
        box = (128 // dtype.bytes, BOX)
        return self._map(name, memory, its, dtype.name, dims, (dims.column, dims.row), box)

    def launch_script(self, script: Any, form: Form, blocks: Extent) -> Launch:
        """The finished kernel."""
        declared = [tirx.DeclBuffer(buffer, data=var) for buffer, var in self._views]
        function = tirx.PrimFunc(list(self._params.values()), tirx.SeqStmt([*declared, script]) if declared else script)
        function = function.with_attr("tirx.noalias", True).with_attr(SCRIPT, True)
        if form.consumers > 1:  # setmaxnreg wants registers that are known at entry
            function = function.with_attr("tirx.launch_bounds_min_blocks_per_sm", 1)
        per_sm = None if form.split else form.resident
        grid = Grid(blocks, form.threads, Extent.const(form.shared_memory), per_sm, form.cluster)
        aligned = dict(self.aligned)
        columns = self.graph.extent(self.column_dim)
        when = [_multiple(columns, 2)]  # pairs
        for m in self.maps:
            size = MAP_BYTES[m.dtype]
            for p in (m.memory, *m.strides):
                if isinstance(p, Param):
                    if p.kind != "workspace":
                        aligned[p] = _SIXTEEN
                else:
                    when.append(_multiple(p * size, _SIXTEEN))
        return Launch(
            self.name, function, tuple(self._params), tuple(dict.fromkeys(when)), grid, tuple(self.maps),
            tuple(aligned.items()),
        )  # fmt: skip
