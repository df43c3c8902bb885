"""The epilogue of a tensor-core kernel on sm_90a: the group's values where a thread holds their sums."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.script import tirx as T

from opsgen.dsl.dtypes import float32, int32
from opsgen.dsl.tensor import Tensor, walk
from opsgen.lowering.statements import Code, Expr, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.segments import read_by_group

from . import half_results
from .tensor_cores import HALVES, Dims
from .wgmma_memory import Fetched, ScriptKernel


class Epilogue:
    """The group's results at two rows and two columns side by side, from their sums.

    Past the end of the matrix positions are clamped: loads stay inside, and what they give is not stored.
    """

    def __init__(
        self, kernel: ScriptKernel, node: Tensor, dims: Dims, wanted: Sequence[Tensor], fetched: str = ""
    ) -> None:
        self.kernel = kernel
        self.fetched = fetched
        """The memory that TMA brings."""
        self.node = node
        self.dims = dims
        self.wanted = wanted
        """What `values` gives."""
        self.fused: list[half_results.Fused] = []
        """What has a function of its own where all results are halves."""
        self.by_group = kernel.group.segments is not None and read_by_group(kernel, kernel.group.segments)
        """Whether the group of a tile can stand for that of each of its rows."""
        stored = tuple(kernel.group.stored)
        dtypes = {n.dtype.name for n in stored}
        if len(dtypes) == 1 and dtypes <= HALVES:
            kernel.elementary.update(half_results.FUNCTIONS)
            walk(stored, lambda n: self._find(n, *dtypes))

    def _find(self, node: Tensor, dtype: str) -> None:
        found = half_results.fused(node, dtype)
        if found is not None:
            self.fused.append(found)

    def _outer(self, code: Code, layers: Sequence[Expr]) -> dict[str, Expr]:
        return {d: code.bind(tirx.Cast("int64", x), d) for d, x in zip(self.dims.layers, layers, strict=True)}

    def _scopes(
        self, code: Code, outer: dict[str, Expr], rows: Sequence[Expr], columns: Sequence[Expr], sums: Sequence[Expr]
    ) -> list[Scope]:
        """One for each sum. What depends on columns alone is computed once for both rows."""
        scope = Scope(self.kernel, code, outer)
        parts = self.kernel.group.segments
        if parts is not None and self.by_group:
            scope.held[id(parts.position)] = lambda _: outer[parts.groups]
        across = [scope.inner(code, {self.dims.column: c}) for c in columns]
        places = [(s, {self.dims.row: r}) for r in rows for s in across]
        return [self._place(s.inner(code, at), total) for (s, at), total in zip(places, sums, strict=True)]

    def _place(self, scope: Scope, total: Expr) -> Scope:
        """The scope, which is that of one sum, with what is held there. Registers with sums of integers are uint32."""
        if total.ty.dtype == "uint32":
            total = tirx.Cast("int32", total)
        scope.held[id(self.node)] = lambda _: total
        for found in self.fused:
            scope.held[id(found.node)] = found.held(scope)
        return scope

    def values(
        self, sums: Sequence[Expr], layers: Sequence[Expr], rows: Sequence[Expr], column: Expr, words: Sequence[Expr]
    ) -> list[list[Expr]]:
        """The values in float32 (or int32), each at all positions; statements that they need go to the kernel under
        construction. ``words``: what TMA brought, of each row."""
        code = Code(scope="local")
        m, n = (tirx.Cast("int32", self.kernel.extent(d)) for d in (self.dims.row, self.dims.column))
        rows = [code.bind(tirx.Cast("int64", tirx.Min(r, m - 1)), "row") for r in rows]
        first = code.bind(tirx.Cast("int64", tirx.Min(column, n - 2)), "column")
        self.kernel.columns = (first, code.bind(first + i64(1), "column"))
        outer = self._outer(code, layers)
        if words:
            place = {**{d: (x,) for d, x in outer.items()}, self.dims.row: rows}
            self.kernel.fetched = Fetched(self.fetched, place, self.dims.row, words)
        scopes = self._scopes(code, outer, rows, self.kernel.columns, [code.bind(s) for s in sums])
        found = [[s.value_in(node, int32 if node.dtype == int32 else float32) for s in scopes] for node in self.wanted]
        self.kernel.columns = self.kernel.fetched = None
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
                (scope,) = self._scopes(inside, self._outer(inside, layers), [place], [across], [inside.bind(total)])
                self.kernel.store_all(scope)
        for statement in code.statements:
            T.add_to_parent(statement)
