"""Row reductions on x86: reductions over the same dims and the maps between them, a row at a time while it is in cache.

Reductions that need each other's results run in passes over the row. An expensive value (an exponential) that a later
pass needs too is
kept in a row of scratch memory. Where the operands are contiguous along the reduced dim, vectors run along it and end
in a tree; where
they are contiguous along a result dim (pooling over time), vectors run along that one and each lane reduces its own
column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group, expensive
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import At, Reduce, Tensor, walk
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Held, Memory, Scope, compute_name, extreme, is_nan
from opsgen.schedules.common.schedule import Config, Context, Schedule

from .vectors import fold, strips, unflatten, widths

CHUNKS = 256
"""Into how many pieces the rows are cut at most; each has its own scratch row."""


@dataclass
class Pass:
    """One pass over the row: reductions, results stored on the way, and values kept for later passes."""

    reductions: list[Reduce] = field(default_factory=list)
    stores: list[Tensor] = field(default_factory=list)
    keeps: list[Tensor] = field(default_factory=list)


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
    for i, p in enumerate(passes):
        stack: list[Tensor] = [*(r.arg for r in p.reductions), *p.stores]
        seen: set[int] = set()
        while stack:
            n = stack.pop()
            if id(n) in seen or id(n) in own or kernel.memory(n) is not None:
                continue
            seen.add(id(n))
            whole = set(n.dims) == set(group.space) | set(group.over)
            if expensive(n) and whole:
                uses.setdefault(id(n), []).append(i)
                nodes[id(n)] = n
                if len(uses[id(n)]) > 1:
                    continue  # kept: what it is made of is not needed again
            if not isinstance(n, At):
                stack.extend(n.children())
    for key, where in uses.items():
        if len(where) > 1:
            passes[where[0]].keeps.append(nodes[key])


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


def along_columns(kernel: Kernel, group: Group) -> str | None:
    """The result dim along which operands are contiguous, if most are, and more than along a reduced dim."""
    votes: dict[str, int] = {}

    def visit(node: Tensor) -> None:
        memory = kernel.memory(node)
        if memory is not None and memory.dims and set(memory.dims) & set(group.over):
            votes[memory.dims[-1]] = votes.get(memory.dims[-1], 0) + 1

    walk(tuple(group.reductions), visit)
    inside = sum(v for d, v in votes.items() if d in group.over)
    best = max((d for d in votes if d in group.space), key=lambda d: votes[d], default=None)
    return best if best is not None and votes[best] > inside else None


def searches(group: Group) -> bool:
    """Whether positions are reduced (argmax), which goes element by element."""
    return any(r.op in ("argmax", "argmin") for r in group.reductions)


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for the group."""
    group = context.group
    kernel = Kernel(f"{context.prefix}_row_reduction", context.partition, group, context.spaces)
    passes = plan_passes(kernel, group)
    over_elements = cost.elements(kernel.graph, (*group.space, *group.over))
    kernel.cost(cost.flops(kernel.graph, context.computed()), over_elements, config["flops_per_ns"])
    column = None if searches(group) else along_columns(kernel, group)
    if column is None:
        _build_rows(kernel, context, config, passes)
    else:
        _build_columns(kernel, context, column, passes)
    return [kernel.launch()]


# -- vectors along the reduced dim -------------------------------------------------------------------------------------
def _build_rows(kernel: Kernel, context: Context, config: Config, passes: list[Pass]) -> None:
    group = context.group
    steps = (1,) if searches(group) else widths(context.arch, group, config["registers"])
    extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
    code = kernel.code
    rows: Expr = i64(1)
    for d in group.space:
        rows = mul(rows, extents[d])
    rows = code.bind(rows, "rows")
    kept = [n for p in passes for n in p.keeps]
    scratch = _scratch(kernel, group, kept)
    chunk = code.bind(tirx.Max(ceildiv(rows, CHUNKS), i64(1)), "chunk")
    chunks = tirx.truncdiv(rows + chunk - i64(1), chunk)
    with code.loop(chunks, "task", "parallel") as (task, body):
        first = body.bind(task * chunk, "first")
        count = body.bind(tirx.Min(chunk, rows - first), "count")
        with body.loop(count, "row") as (i, row_code):
            row = row_code.bind(first + i, "row")
            scope = Scope(kernel, row_code, unflatten(row_code, row, group.space, extents))
            _row(kernel, group, scope, passes, steps, {k: (m, task) for k, m in scratch.items()})


def _scratch(kernel: Kernel, group: Group, kept: list[Tensor]) -> dict[int, Memory]:
    """A row of memory for each kept value and each chunk of rows."""
    length = Extent.const(1)
    for d in group.over:
        length = length * kernel.graph.extent(d)
    padded = (length + 15) // 16 * 16  # rows of two threads share no cache line
    return {
        id(n): kernel.workspace(
            f"scratch{group.index}_{i}", {"chunk": Extent.const(CHUNKS), "element": padded}, compute_type(n.dtype)
        )
        for i, n in enumerate(kept)
    }


def _row(
    kernel: Kernel,
    group: Group,
    scope: Scope,
    passes: list[Pass],
    steps: tuple[int, ...],
    scratch: dict[int, tuple[Memory, Expr]],
) -> None:
    code = scope.code
    extents = {d: kernel.extent(d) for d in group.over}
    *outer, last = group.over
    for p in passes:
        accumulators = {id(r): [_accumulator(code, r, w, i) for i, w in enumerate(steps)] for r in p.reductions}
        found = {id(r): _search_state(code, r) for r in p.reductions if r.op in ("argmax", "argmin")}

        def sweep(at_scope: Scope, p: Pass = p, accumulators: dict = accumulators, found: dict = found) -> None:
            def step(inner: Code, at: Expr, kind: str, width: int, stage: int) -> None:
                with inner.loop(width, "lane", kind) as (lane, lanes):
                    here = at_scope.inner(lanes, {last: add(at, lane)})
                    _element(here, p, group, extents, lane, stage, accumulators, found, scratch)

            strips(at_scope.code, i64(0), extents[last], steps, step)

        _over_outer(scope, outer, extents, sweep)
        for r in p.reductions:
            if id(r) in found:
                value = code.bind(tirx.BufferLoad(found[id(r)][1], [i64(0)]), r.op)
            else:
                value = fold(code, accumulators[id(r)], steps, partial(combine, r.op), r.op)
            scope.held[id(r)] = _holding(value)
        scratch_held = {id(n): _load_kept(n, group, extents, *scratch[id(n)]) for n in p.keeps}
        scope.held.update(scratch_held)
    values = [(node, scope.value(node)) for node in group.stored if set(node.dims) == set(group.space)]
    for node, value in values:
        for place in kernel.destinations(node):
            place.store(code, scope.coords, value)


def _over_outer(scope: Scope, dims: list[str], extents: dict[str, Expr], body: Callable[[Scope], None]) -> None:
    """Serial loops over all reduced dims but the innermost."""
    if not dims:
        body(scope)
        return
    with scope.code.loop(extents[dims[0]], dims[0]) as (i, inner):
        _over_outer(scope.inner(inner, {dims[0]: i}), dims[1:], extents, body)


def _flat(group: Group, extents: dict[str, Expr], coords: Mapping[str, Expr]) -> Expr:
    """The position in the reduced dims as one number."""
    position: Expr = i64(0)
    for d in group.over:
        position = add(mul(position, extents[d]), coords[d])
    return position


def _holding(value: Expr) -> Held:
    """A value that is the same wherever it is asked for in its scope."""
    return lambda _: value


def _load_kept(node: Tensor, group: Group, extents: dict[str, Expr], memory: Memory, task: Expr) -> Held:
    def load(coords: Mapping[str, Expr]) -> Expr:
        return memory.load({"chunk": task, "element": _flat(group, extents, coords)})

    return load


def _element(
    here: Scope,
    p: Pass,
    group: Group,
    extents: dict[str, Expr],
    lane: Expr,
    stage: int,
    accumulators: dict[int, list],
    found: dict[int, tuple],
    scratch: dict[int, tuple[Memory, Expr]],
) -> None:
    """What one pass does at one position (or one vector of them)."""
    for node in p.keeps:
        memory, task = scratch[id(node)]
        value = here.value(node)
        memory.store(here.code, {"chunk": task, "element": _flat(group, extents, here.coords)}, value)
    for r in p.reductions:
        value = _cast(here.value(r.arg), r)
        if id(r) in found:
            _search_step(here, r, value, found[id(r)])
            continue
        buffer = accumulators[id(r)][stage]
        here.code.store(buffer, combine(r.op, tirx.BufferLoad(buffer, [lane]), value), lane)
    values = [(node, here.value(node)) for node in p.stores]
    for node, value in values:
        for place in here.env.destinations(node):  # type: ignore[attr-defined]
            place.store(here.code, here.coords, value)


def _cast(value: Expr, r: Reduce) -> Expr:
    name = compute_name(r.dtype) if r.op in ("sum", "prod") else value.ty.dtype
    return value if value.ty.dtype == name else tirx.Cast(name, value)


def _accumulator(code: Code, r: Reduce, width: int, stage: int) -> Any:
    """A vector of partial results, set to the neutral element."""
    start = neutral(r)
    buffer = code.local(start.ty.dtype, width, f"{r.op}{stage}")
    with code.loop(width, "lane", "vectorized" if width > 1 else "serial") as (lane, body):
        body.store(buffer, start, lane)
    return buffer


def _search_state(code: Code, r: Reduce) -> tuple:
    """The best value so far and its position, -1 before the first."""
    start = neutral(r)
    best, position = code.local(start.ty.dtype, 1, "best"), code.local("int64", 1, "position")
    code.store(best, start, i64(0))
    code.store(position, i64(0), i64(0))
    seen = code.local("int32", 1, "seen")
    code.store(seen, tirx.IntImm("int32", 0), i64(0))
    return best, position, seen


def _search_step(here: Scope, r: Reduce, value: Expr, state: tuple) -> None:
    """The first extreme wins; the first NaN wins over all."""
    best, position, seen = state
    old = here.bind(tirx.BufferLoad(best, [i64(0)]))
    better = value > old if r.op == "argmax" else value < old
    if value.ty.dtype.startswith("float"):
        better = tirx.And(tirx.Or(better, is_nan(value)), tirx.Not(is_nan(old)))
    fresh = tirx.EQ(tirx.BufferLoad(seen, [i64(0)]), tirx.IntImm("int32", 0))
    take = here.bind(tirx.Or(fresh, better))
    code = here.code
    code.store(position, tirx.Select(take, here.coords[r.over[0]], tirx.BufferLoad(position, [i64(0)])), i64(0))
    code.store(best, tirx.Select(take, value, old), i64(0))
    code.store(seen, tirx.IntImm("int32", 1), i64(0))


# -- vectors along a result dim ----------------------------------------------------------------------------------------
def _build_columns(kernel: Kernel, context: Context, column: str, passes: list[Pass]) -> None:
    group = context.group
    extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
    outer = tuple(d for d in group.space if d != column)
    width = max(widths(context.arch, group, 2)[0], 1)
    code = kernel.code
    rows: Expr = i64(1)
    for d in outer:
        rows = mul(rows, extents[d])
    blocks = code.bind(ceildiv(extents[column], width), "blocks")
    with code.loop(code.bind(rows * blocks, "tasks"), "task", "parallel") as (task, body):
        row = body.bind(tirx.truncdiv(task, blocks), "row")
        start = body.bind(tirx.truncmod(task, blocks) * i64(width), "start")
        scope = Scope(kernel, body, unflatten(body, row, outer, extents))
        with body.either(start + i64(width) <= extents[column]) as (full, partial):
            _column(kernel, group, Scope(kernel, full, scope.coords), column, start, width, passes)
            with partial.loop(extents[column] - start, "lane") as (lane, single):
                at = single.bind(start + lane, column)
                _column(kernel, group, Scope(kernel, single, scope.coords), column, at, 1, passes)


def _column(
    kernel: Kernel, group: Group, scope: Scope, column: str, start: Expr, width: int, passes: list[Pass]
) -> None:
    """``width`` neighbouring columns, each lane reducing its own."""
    code = scope.code
    extents = {d: kernel.extent(d) for d in group.over}
    kind = "vectorized" if width > 1 else "serial"
    held: dict[int, Callable[[dict[str, Expr]], Expr]] = {}
    buffers: dict[int, object] = {}

    def lanes_of(at: Scope, body: Callable[[Scope, Expr], None]) -> None:
        with at.code.loop(width, "lane", kind) as (lane, lanes):
            here = at.inner(lanes, {column: add(start, lane)})
            for key, buffer in buffers.items():
                if key in held:
                    here.held[key] = _holding(tirx.BufferLoad(buffer, [lane]))
            body(here, lane)

    for p in passes:
        for r in p.reductions:
            buffers[id(r)] = _accumulator(code, r, width, 0)

        def sweep(at: Scope, p: Pass = p) -> None:
            def element(here: Scope, lane: Expr) -> None:
                for r in p.reductions:
                    buffer = buffers[id(r)]
                    value = _cast(here.value(r.arg), r)
                    here.code.store(buffer, combine(r.op, tirx.BufferLoad(buffer, [lane]), value), lane)
                values = [(node, here.value(node)) for node in p.stores]
                for node, value in values:
                    for place in kernel.destinations(node):
                        place.store(here.code, here.coords, value)

            lanes_of(at, element)

        _over_outer(scope, list(group.over), extents, sweep)
        for r in p.reductions:
            held[id(r)] = lambda coords: None  # marks the buffer as finished

    def results(here: Scope, lane: Expr) -> None:
        values = [(node, here.value(node)) for node in group.stored if set(node.dims) == set(group.space)]
        for node, value in values:
            for place in kernel.destinations(node):
                place.store(here.code, here.coords, value)

    lanes_of(scope, results)


SCHEDULE = Schedule(
    name="x86.row_reduction",
    target="x86",
    pattern="row_reduction",
    region="any row reduction on avx2 and avx512",
    knobs={"registers": (1, 2, 4), "flops_per_ns": (8,)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"registers": 4, "flops_per_ns": 8},
    build=build,
)
