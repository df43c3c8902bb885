"""What updates are made of on every target: the source that wins a position, and the row that it writes."""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis.updates import Update
from opsgen.dsl.dtypes import DTYPES, compute_type
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Expr
from opsgen.lowering.to_tir import Memory, Scope


def winners(kernel: Kernel, update: Update) -> Memory:
    """For each position that some source goes to the number of the last one; nothing is known of the others."""
    s, index = update.scatter, kernel.group.index
    dims = {d: kernel.graph.extent(d) for d in (*s.batch, *s.destinations)}
    return kernel.workspace(f"winners{index}", dims, DTYPES["int64"])


def written(scope: Scope, update: Update) -> Expr:
    """What the source at hand brings, in the type in which the parameter is computed."""
    return scope.value_in(update.value, compute_type(update.result.dtype))


def wins(scope: Scope, memory: Memory, place: dict[str, Expr], number: Expr) -> Expr:
    """Whether the source at hand is the one that stays at its place."""
    return tirx.EQ(memory.load({**scope.coords, **place}), number)
