"""The inner loop of a contraction on x86: a few rows times a panel, the accumulators in registers."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.dsl.dtypes import DType
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, add, constant, i64, mul, sub, truncdiv
from opsgen.lowering.to_tir import Scope, compute_name
from opsgen.schedules.common.positions import product_of

UNROLL = 4
"""Steps of the sum in one turn of the inner loop."""


def zeros(code: Code, dtype: str, width: int, name: str) -> Any:
    """A vector of accumulators."""
    acc = code.local(dtype, width, name)
    with code.loop(width, "j", "vectorized" if width > 1 else "serial") as (j, lanes):
        lanes.store(acc, constant(0, dtype), j)
    return acc


class RegisterTile:
    """Rows of ``left`` times panels: for each position of ``summed`` in order, ``width`` elements of ``panels``."""

    def __init__(
        self, kernel: Kernel, left: Tensor, dtype: DType, summed: tuple[str, ...], panels: Any, width: int
    ) -> None:
        self.left = left
        self.dtype = dtype
        self.type = compute_name(dtype)
        self.summed = summed
        self.panels = panels
        self.width = width
        self.extents = {d: kernel.extent(d) for d in summed}

    def sums(self, code: Code, rows: list[Scope], panel: Expr) -> list[Any]:
        """The sums of each row, in vectors: one column vector times one element of each row at each step.

        ``rows`` are scopes in which the row has its position; ``panel``: where the panel starts.
        """
        accumulators = [zeros(code, self.type, self.width, f"acc{i}") for i in range(len(rows))]
        kind = "vectorized" if self.width > 1 else "serial"
        *outer, last = self.summed

        def nest(at: Code, dims: list[str], coords: dict[str, Expr], flat: Expr) -> None:
            if dims:
                rest = self.summed[self.summed.index(dims[0]) + 1 :]
                with at.loop(self.extents[dims[0]], dims[0]) as (i, inner):
                    step = mul(i, product_of(self.extents, rest))
                    nest(inner, dims[1:], {**coords, dims[0]: i}, add(flat, step))
                return
            turns = at.bind(truncdiv(self.extents[last], UNROLL), "turns")
            with at.loop(turns, "k4") as (q, inner):
                for u in range(UNROLL):
                    step_at(inner, coords, add(q * i64(UNROLL), i64(u)), flat)
            done = mul(turns, i64(UNROLL))
            with at.loop(sub(self.extents[last], done), "k1") as (r, inner):
                step_at(inner, coords, add(done, r), flat)

        def step_at(at: Code, coords: dict[str, Expr], k: Expr, flat: Expr) -> None:
            offset = at.bind(panel + add(flat, k) * i64(self.width), "at")
            for row, acc in zip(rows, accumulators, strict=True):
                left = row.inner(at, {**coords, last: k}).value_in(self.left, self.dtype)
                with at.loop(self.width, "j", kind) as (j, lanes):
                    right = tirx.BufferLoad(self.panels, [offset + j])
                    lanes.store(acc, tirx.Add(tirx.BufferLoad(acc, [j]), tirx.Mul(left, right)), j)

        nest(code, outer, {}, i64(0))
        return accumulators
