"""What scatters are made of on every target: where a source goes, and what it adds.

A source's number is its place among all positions along the source dims.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis.groups import Group
from opsgen.analysis.scatter import Scatter
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import Tensor, walk
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, i64
from opsgen.lowering.to_tir import Scope

from .positions import unflatten
from .reductions import neutral, reduced


def destination(scope: Scope, scatter: Scatter) -> tuple[dict[str, Expr], Expr]:
    """Where the source at hand goes, and whether it goes anywhere."""
    coords: dict[str, Expr] = {}
    valid: Expr | None = None
    for dim, node in scatter.positions:
        raw = scope.value(node)
        at = scope.bind(raw if raw.ty.dtype == "int64" else tirx.Cast("int64", raw), dim)
        inside = tirx.And(at >= i64(0), at < scope.env.extent(dim))
        valid = inside if valid is None else tirx.And(valid, inside)
        coords[dim] = at
    assert valid is not None
    for condition in scatter.linked:
        valid = tirx.And(valid, scope.value(condition))
    return coords, valid


def at_source(scope: Scope, code: Code, scatter: Scatter, number: Expr, extents: dict[str, Expr]) -> Scope:
    """The scope of a source."""
    return scope.inner(code, unflatten(code, number, scatter.source, extents))


def contribution(scope: Scope, scatter: Scatter) -> Expr:
    """What the source at hand adds, as the reduction takes it."""
    value = reduced(scope.value_in(scatter.value, compute_type(scatter.node.arg.dtype)), scatter.node)
    for condition in scatter.others:
        nothing = neutral(scatter.node)
        value = tirx.Select(scope.value(condition), value, tirx.Cast(value.ty.dtype, nothing))
    return value


def innermost(kernel: Kernel, group: Group) -> str | None:
    """The column dim along which most of what a scatter reads and writes is contiguous; None without column dims."""
    assert group.scatter is not None
    columns = group.scatter.columns
    votes = {d: int(d == columns[-1]) for d in columns}  # the last one if there is nothing to tell them apart

    def visit(node: Tensor) -> None:
        memory = kernel.memory(node)
        places = [memory] if memory is not None else []
        for place in places:
            if place.dims and place.dims[-1] in votes:
                votes[place.dims[-1]] += 2

    walk((group.scatter.value, *group.stored), visit)
    for node in group.stored:
        for place in kernel.destinations(node):
            if place.dims and place.dims[-1] in votes:
                votes[place.dims[-1]] += 2
    return max(votes, key=lambda d: votes[d], default=None)
