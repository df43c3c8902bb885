"""Positions along several dims as one number, and back."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

from opsgen.lowering.statements import Code, Expr, i64, mul


def product_of(extents: Mapping[str, Expr], dims: tuple[str, ...]) -> Expr:
    """The number of positions along ``dims``."""
    total: Expr = i64(1)
    for d in dims:
        total = mul(total, extents[d])
    return total


def unflatten(code: Code, index: Expr, dims: tuple[str, ...], extents: dict[str, Expr]) -> dict[str, Expr]:
    """The positions along ``dims`` that a flat index stands for."""
    found: dict[str, Expr] = {}
    rest = index
    for d in reversed(dims[1:]):
        found[d] = code.bind(tirx.truncmod(rest, extents[d]), d)
        rest = code.bind(tirx.truncdiv(rest, extents[d]), "rest")
    if dims:
        found[dims[0]] = rest
    return {d: found[d] for d in dims}
