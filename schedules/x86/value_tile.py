"""The inner loop of a chain's contraction links on x86: weights times values, the running values in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from opsgen.analysis.fusion import FusedChain
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.statements import Code, Expr, add, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import unflatten

from .chain_passes import FLOAT32
from .vectors import strips

UNROLL = 4
"""Positions in one turn of the loop."""


def value_tile(
    code: Code,
    scope: Scope,
    fused: FusedChain,
    value: Tensor,
    memory: Any,
    places: list[Expr],
    factors: list[Expr] | None,
    weights: Callable[[Code, Expr], list[Expr]],
    positions: tuple[Expr, Expr],
    columns: tuple[Expr, int, str],
) -> None:
    """Rows times columns of one contraction link, over the positions of a tile.

    Args:
        memory, places: the running values, and where each row's begin.
        factors: what repairs each row's, if anything does.
        weights: ``weights(code, position)`` gives each row's weight at a position of the tile.
        positions: the first, and how many.
        columns: the first, how many, and the kind of loop over them.
    """
    (start, count), (column, width, kind) = positions, columns
    extents = {d: scope.env.extent(d) for d in fused.columns}
    sums = [code.local("float32", width, f"value{i}") for i in range(len(places))]
    for i, (acc, place) in enumerate(zip(sums, places, strict=True)):
        with code.loop(width, "j", kind) as (j, lanes):
            old = tirx.BufferLoad(memory, [place + j])
            lanes.store(acc, old if factors is None else tirx.Mul(old, factors[i]), j)

    def step(here: Code, key: Expr, unrolled: int) -> None:
        for u in range(unrolled):
            position = here.bind(add(key, i64(u)), "key")
            inside = scope.inner(here, {fused.over: here.bind(start + position, "key")})
            for acc, weight in zip(sums, weights(here, position), strict=True):
                with here.loop(width, "j", kind) as (j, lanes):
                    coords = unflatten(lanes, add(column, j), fused.columns, extents)
                    product = tirx.Mul(weight, inside.inner(lanes, coords).value_in(value, FLOAT32))
                    lanes.store(acc, tirx.Add(tirx.BufferLoad(acc, [j]), product), j)

    strips(code, i64(0), count, (UNROLL, 1), lambda at, key, kind_, unrolled, stage: step(at, key, unrolled))
    for acc, place in zip(sums, places, strict=True):
        with code.loop(width, "j", kind) as (j, lanes):
            lanes.store(memory, tirx.BufferLoad(acc, [j]), place + j)
