"""Reductions of positions (argmax, argmin), element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import Group
from opsgen.dsl.tensor import Reduce
from opsgen.lowering.statements import Code, Expr, i64
from opsgen.lowering.to_tir import Scope, is_nan

from .reductions import neutral

_SEARCHES = ("argmax", "argmin")


def searches(group: Group) -> bool:
    """Whether positions are reduced."""
    return any(is_search(r) for r in group.reductions)


def is_search(r: Reduce) -> bool:
    return r.op in _SEARCHES


@dataclass(frozen=True)
class Search:
    """The best value so far, its position (0 where there is nothing to search), and whether there was one."""

    best: Any
    position: Any
    seen: Any

    @staticmethod
    def start(code: Code, r: Reduce) -> Search:
        start = neutral(r)
        best, position = code.local(start.ty.dtype, 1, "best"), code.local("int64", 1, "position")
        code.store(best, start, i64(0))
        code.store(position, i64(0), i64(0))
        seen = code.local("int32", 1, "seen")
        code.store(seen, tirx.IntImm("int32", 0), i64(0))
        return Search(best, position, seen)

    def step(self, here: Scope, r: Reduce, value: Expr) -> None:
        """The first extreme wins; the first NaN wins over all."""
        old = here.bind(tirx.BufferLoad(self.best, [i64(0)]))
        better = value > old if r.op == "argmax" else value < old
        if value.ty.dtype.startswith("float"):
            better = tirx.And(tirx.Or(better, is_nan(value)), tirx.Not(is_nan(old)))
        fresh = tirx.EQ(tirx.BufferLoad(self.seen, [i64(0)]), tirx.IntImm("int32", 0))
        take = here.bind(tirx.Or(fresh, better))
        code, before = here.code, tirx.BufferLoad(self.position, [i64(0)])
        code.store(self.position, tirx.Select(take, here.coords[r.over[0]], before), i64(0))
        code.store(self.best, tirx.Select(take, value, old), i64(0))
        code.store(self.seen, tirx.IntImm("int32", 1), i64(0))

    def found(self, code: Code, r: Reduce) -> Expr:
        return code.bind(tirx.BufferLoad(self.position, [i64(0)]), r.op)
