"""Products of a few packed rows with an operand, for eight of its positions at a time: vectors along the sum.

The operand is read in place, once for all rows, which must have been packed one after the other. Where it is not
contiguous along the sum, vectors run along its positions.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.dsl.dtypes import DType
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, add, i64, mul, sub, truncdiv
from opsgen.lowering.to_tir import Scope, compute_name
from opsgen.schedules.common.operands import contiguous
from opsgen.schedules.common.positions import product_of

from .register_tile import zeros
from .vectors import REGISTER_FLOATS, fold, strips, vectorizable

POSITIONS = 8
"""Positions of the operand in a tile: as many sums are under way, and end in one vector."""

VECTORS = (8, 4, 2, 1)
"""Vectors of the packed row that are held in registers."""


class DotProducts:
    """Products of rows in ``packed`` memory with ``operand``, summed over ``summed``."""

    def __init__(
        self, kernel: Kernel, arch: str, operand: Tensor, dtype: DType, summed: tuple[str, ...], packed: Any
    ) -> None:
        self.operand = operand
        self.dtype = dtype
        self.type = compute_name(dtype)
        self.summed = summed
        self.packed = packed
        self.extents = {d: kernel.extent(d) for d in summed}
        vectors = vectorizable((operand,))
        self.lanes = REGISTER_FLOATS[arch]
        self.along_sum = vectors and contiguous(kernel, operand, summed[-1])
        self.widths = tuple(sorted({self.lanes, POSITIONS, 1}, reverse=True)) if vectors else (1,)

    def nest(self, code: Code, body: Any) -> None:
        """Loops over the summed dims but the last: ``body(code, coords, flat position of their first element)``."""

        def loops(at: Code, dims: tuple[str, ...], coords: dict[str, Expr], flat: Expr) -> None:
            if len(dims) == 1:
                body(at, coords, flat)
                return
            with at.loop(self.extents[dims[0]], dims[0]) as (i, inner):
                step = mul(i, product_of(self.extents, dims[1:]))
                loops(inner, dims[1:], {**coords, dims[0]: i}, inner.bind(add(flat, step), "flat"))

        loops(code, self.summed, {}, i64(0))

    def products(self, scope: Scope, over: str, start: Expr, count: Expr, row: Expr, buffer: Any, at: Expr) -> None:
        """The products of the row packed from ``row`` on with ``count`` positions along the dim ``over``, from
        ``start`` on, to ``buffer`` from ``at`` on."""
        if not self.along_sum:
            self.along_positions(scope, over, start, count, row, buffer, at)
            return

        def some(code: Code, position: Expr, kind: str, height: int, stage: int) -> None:
            positions = [
                scope.inner(code, {over: code.bind(add(start + position, i64(i)), over)}) for i in range(height)
            ]
            total = self.totals(code, positions, row)
            with code.loop(height, "lane", kind) as (lane, body):
                body.store(buffer, tirx.BufferLoad(total, [lane]), at + add(position, lane))

        strips(scope.code, i64(0), count, (POSITIONS, 1), some)

    # -- vectors along the sum -----------------------------------------------------------------------------------------
    def totals(self, code: Code, positions: list[Scope], row: Expr) -> Any:
        """The products with one or eight positions; the operand has them in the scopes."""
        total = zeros(code, self.type, len(positions), "total")
        done: Expr = i64(0)
        for lanes in sorted({self.lanes, POSITIONS, 1}, reverse=True):
            done = self.stage(code, positions, row, lanes, done, total)
        return total

    def stage(self, code: Code, positions: list[Scope], row: Expr, lanes: int, done: Expr, total: Any) -> Expr:
        """Adds to ``total`` the products from ``done`` on that fill vectors of so many lanes; up to where they do."""
        rest = code.bind(sub(self.extents[self.summed[-1]], done), "rest")
        full = code.bind(mul(truncdiv(rest, lanes), i64(lanes)), "full")
        with code.when(full > i64(0)) as some:
            sums = [zeros(some, self.type, lanes, f"sum{i}") for i in range(len(positions))]

            def along(inner: Code, coords: dict[str, Expr], flat: Expr) -> None:
                def step(at: Code, k: Expr, kind: str, width: int, stage: int) -> None:
                    place = at.bind(row + add(flat, k), "from")
                    self.step(at, positions, coords, k, place, lanes, width, sums)

                strips(inner, done, full, tuple(lanes * n for n in (VECTORS if lanes == self.lanes else (1,))), step)

            self.nest(some, along)
            self.finish(some, sums, lanes, total)
        return code.bind(add(done, full), "done")

    def step(
        self,
        code: Code,
        positions: list[Scope],
        coords: dict[str, Expr],
        k: Expr,
        place: Expr,
        lanes: int,
        width: int,
        sums: list[Any],
    ) -> None:
        """``width`` elements of the sum, for one position after the other: in the order of memory, so that the hardware
        foresees it."""
        for scope, acc in zip(positions, sums, strict=True):
            for at in range(0, width, lanes):
                with code.loop(lanes, "lane", "vectorized" if lanes > 1 else "serial") as (lane, body):
                    here = scope.inner(body, {**coords, self.summed[-1]: add(add(k, i64(at)), lane)})
                    right = here.value_in(self.operand, self.dtype)
                    left = tirx.BufferLoad(self.packed, [add(add(place, i64(at)), lane)])
                    body.store(acc, tirx.Add(tirx.BufferLoad(acc, [lane]), tirx.Mul(left, right)), lane)

    def finish(self, code: Code, sums: list[Any], lanes: int, total: Any) -> None:
        """Adds the sums to ``total``."""
        if lanes > 1 and len(sums) == POSITIONS:
            vectors = [code.bind(tirx.BufferLoad(acc, [tirx.Ramp(i64(0), i64(1), lanes)]), "sum") for acc in sums]
            ramp = tirx.Ramp(i64(0), i64(1), POSITIONS)
            code.store(total, tirx.Add(tirx.BufferLoad(total, [ramp]), fold_eight(code, vectors, lanes)), ramp)
            return
        for i, acc in enumerate(sums):
            one = acc if lanes == 1 else zeros(code, self.type, 1, "one")
            if lanes > 1:
                fold(code, [acc, one], (lanes, 1), tirx.Add)
            value = tirx.Add(tirx.BufferLoad(total, [i64(i)]), tirx.BufferLoad(one, [i64(0)]))
            code.store(total, value, i64(i))

    # -- vectors along positions ---------------------------------------------------------------------------------------
    def along_positions(
        self, scope: Scope, over: str, start: Expr, count: Expr, row: Expr, buffer: Any, at: Expr
    ) -> None:
        def strip(code: Code, position: Expr, kind: str, width: int, stage: int) -> None:
            acc = zeros(code, self.type, width, "sum")

            def sums(inner: Code, coords: dict[str, Expr], flat: Expr) -> None:
                with inner.loop(self.extents[self.summed[-1]], "k") as (k, step):
                    left = step.bind(tirx.BufferLoad(self.packed, [row + add(flat, k)]), "left")
                    with step.loop(width, "lane", kind) as (lane, lanes):
                        here = {**coords, self.summed[-1]: k, over: start + add(position, lane)}
                        right = scope.inner(lanes, here).value_in(self.operand, self.dtype)
                        lanes.store(acc, tirx.Add(tirx.BufferLoad(acc, [lane]), tirx.Mul(left, right)), lane)

            self.nest(code, sums)
            with code.loop(width, "lane", kind) as (lane, lanes):
                lanes.store(buffer, tirx.BufferLoad(acc, [lane]), at + add(position, lane))

        strips(scope.code, i64(0), count, self.widths, strip)


def fold_eight(code: Code, vectors: list[Expr], width: int) -> Expr:
    """The sums of eight vectors' lanes as one vector, in order. Each step adds two vectors across a distance: bit by
    bit, what told lanes apart tells vectors apart."""
    distance = POSITIONS // 2
    while distance:
        folded = []
        for a, b in zip(vectors[:distance], vectors[distance:], strict=True):
            low = [e if not e & distance else width + e - distance for e in range(width)]
            high = [e + distance if not e & distance else width + e for e in range(width)]
            parts = [
                code.bind(tirx.Shuffle([a, b], [tirx.IntImm("int32", e) for e in lanes]), "half")
                for lanes in (low, high)
            ]
            folded.append(code.bind(tirx.Add(*parts), "folded"))
        vectors = folded
        distance //= 2
    (folded_all,) = vectors
    while width > POSITIONS:
        width //= 2
        halves = [
            code.bind(tirx.Shuffle([folded_all], [tirx.IntImm("int32", e + at) for e in range(width)]), "half")
            for at in (0, width)
        ]
        folded_all = code.bind(tirx.Add(*halves), "folded")
    return folded_all
