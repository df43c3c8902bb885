"""What row reductions are made of, whichever way vectors run: the plan of passes, and steps of a reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import Group, expensive
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import At, Reduce, Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, constant
from opsgen.lowering.to_tir import Held, Scope, compute_name, extreme


@dataclass(frozen=True)
class Kept:
    """A value that a pass keeps for later ones. ``last`` is the number of the last pass that needs it; ``elsewhere``
    says whether it is read at other positions than the one that is being computed."""

    node: Tensor
    last: int
    elsewhere: bool


@dataclass
class Pass:
    """One pass over the row: reductions, results stored on the way, and values kept for later passes."""

    reductions: list[Reduce] = field(default_factory=list)
    stores: list[Tensor] = field(default_factory=list)
    keeps: list[Kept] = field(default_factory=list)


def plan_passes(kernel: Kernel, group: Group) -> list[Pass]:
    """Which pass computes what. A reduction's pass is one after the last reduction that it needs."""
    level: dict[int, int] = {}

    def after(node: Tensor) -> int:
        """The first pass in which the node can be computed."""
        found = 0
        stack, seen = [node], set[int]()
        while stack:
            n = stack.pop()
            if id(n) in seen or kernel.memory(n) is not None:
                continue
            seen.add(id(n))
            if id(n) in level:
                found = max(found, level[id(n)] + 1)
                continue
            stack.extend(n.children())
        return found

    passes: list[Pass] = []

    def at(i: int) -> Pass:
        while len(passes) <= i:
            passes.append(Pass())
        return passes[i]

    for r in group.reductions:
        level[id(r)] = after(r.arg)
        at(level[id(r)]).reductions.append(r)
    rows = [s for s in group.stored if set(s.dims) != set(group.space)]
    updates = {id(r.value) for r in kernel.graph.results if r.updates is not None}
    for s in rows:
        last = max(after(s), len(passes) - 1 if id(s) in updates else 0)
        at(last).stores.append(s)
    _plan_keeps(kernel, group, passes)
    return passes


def _plan_keeps(kernel: Kernel, group: Group, passes: list[Pass]) -> None:
    """Expensive values that more than one pass needs are kept by the first."""
    own = {id(r) for r in group.reductions}
    uses: dict[int, list[int]] = {}
    nodes: dict[int, Tensor] = {}
    elsewhere: set[int] = set()
    for i, p in enumerate(passes):
        stack: list[tuple[Tensor, bool]] = [(n, False) for n in (*(r.arg for r in p.reductions), *p.stores)]
        seen: set[tuple[int, bool]] = set()
        while stack:
            n, moved = stack.pop()
            if (id(n), moved) in seen or id(n) in own or kernel.memory(n) is not None:
                continue
            seen.add((id(n), moved))
            whole = set(n.dims) == set(group.space) | set(group.over)
            if expensive(n) and moved:
                elsewhere.add(id(n))
            elif expensive(n) and whole:
                uses.setdefault(id(n), []).append(i)
                nodes[id(n)] = n
                if len(uses[id(n)]) > 1:
                    continue  # kept: what it is made of is not needed again
            stack.extend((c, moved or isinstance(n, At)) for c in n.children())
    for key, where in uses.items():
        if len(where) > 1:
            passes[where[0]].keeps.append(Kept(nodes[key], where[-1], key in elsewhere))


def neutral(r: Reduce) -> Expr:
    """What a reduction over nothing gives."""
    name = compute_name(r.dtype)
    if r.op in ("sum", "prod"):
        return constant(0 if r.op == "sum" else 1, name)
    least = r.op in ("max", "argmax")
    kind = compute_type(r.arg.dtype)
    if kind.kind == "float":
        return constant(float("-inf") if least else float("inf"), kind.name)
    if kind.kind == "uint":
        return constant(0 if least else 2**kind.bits - 1, kind.name)
    return constant(-(2 ** (kind.bits - 1)) if least else 2 ** (kind.bits - 1) - 1, kind.name)


def combine(op: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    if op == "sum":
        return tirx.Add(a, b)
    if op == "prod":
        return tirx.Mul(a, b)
    return extreme(op, a, b)


def over_outer(scope: Scope, dims: list[str], extents: dict[str, Expr], body: Callable[[Scope], None]) -> None:
    """Serial loops over all reduced dims but the innermost."""
    if not dims:
        body(scope)
        return
    with scope.code.loop(extents[dims[0]], dims[0]) as (i, inner):
        over_outer(scope.inner(inner, {dims[0]: i}), dims[1:], extents, body)


def holding(value: Expr) -> Held:
    """A value that is the same wherever it is asked for in its scope."""
    return lambda _: value


def reduced(value: Expr, r: Reduce) -> Expr:
    name = compute_name(r.dtype) if r.op in ("sum", "prod") else value.ty.dtype
    return value if value.ty.dtype == name else tirx.Cast(name, value)


def accumulator(code: Code, r: Reduce, width: int, stage: int, kind: str = "vectorized") -> Any:
    """A vector of partial results, set to the neutral element by a loop of a ``kind``."""
    start = neutral(r)
    buffer = code.local(start.ty.dtype, width, f"{r.op}{stage}")
    with code.loop(width, "lane", kind if width > 1 else "serial") as (lane, body):
        body.store(buffer, start, lane)
    return buffer
