"""Row reductions on x86: reductions over the same dims and the maps between them, a row at a time while it is in cache.

Reductions that need each other's results run in passes over the row. An expensive value (an exponential) that a later
pass needs too is kept in a row of scratch memory. Where the operands are contiguous along the reduced dim, vectors run
along it and end in a tree; where they are contiguous along a result dim, column_reduction.py takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Reduce, Tensor
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul
from opsgen.lowering.to_tir import Held, Memory, Scope, is_nan
from opsgen.schedules.common.schedule import Config, Context, Schedule

from .column_reduction import along_columns, build_columns
from .reductions import Pass, accumulator, combine, holding, neutral, over_outer, plan_passes, reduced
from .vectors import fold, product_of, strips, unflatten, widths

CHUNKS = 256
"""Into how many pieces the rows are cut at most; each has its own scratch row."""


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
        build_columns(kernel, context, column, passes)
    return [kernel.launch()]


def _build_rows(kernel: Kernel, context: Context, config: Config, passes: list[Pass]) -> None:
    group = context.group
    steps = (1,) if searches(group) else widths(context.arch, group, config["registers"])
    extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
    code = kernel.code
    rows = code.bind(product_of(extents, group.space), "rows")
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
        accumulators = {id(r): [accumulator(code, r, w, i) for i, w in enumerate(steps)] for r in p.reductions}
        found = {id(r): _search_state(code, r) for r in p.reductions if r.op in ("argmax", "argmin")}

        def sweep(at_scope: Scope, p: Pass = p, accumulators: dict = accumulators, found: dict = found) -> None:
            def step(inner: Code, at: Expr, kind: str, width: int, stage: int) -> None:
                with inner.loop(width, "lane", kind) as (lane, lanes):
                    here = at_scope.inner(lanes, {last: add(at, lane)})
                    _element(kernel, here, p, group, extents, lane, stage, accumulators, found, scratch)

            strips(at_scope.code, i64(0), extents[last], steps, step)

        over_outer(scope, outer, extents, sweep)
        for r in p.reductions:
            if id(r) in found:
                value = code.bind(tirx.BufferLoad(found[id(r)][1], [i64(0)]), r.op)
            else:
                value = fold(code, accumulators[id(r)], steps, partial(combine, r.op), r.op)
            scope.held[id(r)] = holding(value)
        scratch_held = {id(n): _load_kept(n, group, extents, *scratch[id(n)]) for n in p.keeps}
        scope.held.update(scratch_held)
    totals = [n for n in group.stored if set(n.dims) == set(group.space)]
    kernel.store_values(scope, [(node, scope.value(node)) for node in totals])


def _flat(group: Group, extents: dict[str, Expr], coords: Mapping[str, Expr]) -> Expr:
    """The position in the reduced dims as one number."""
    position: Expr = i64(0)
    for d in group.over:
        position = add(mul(position, extents[d]), coords[d])
    return position


def _load_kept(node: Tensor, group: Group, extents: dict[str, Expr], memory: Memory, task: Expr) -> Held:
    def load(coords: Mapping[str, Expr]) -> Expr:
        return memory.load({"chunk": task, "element": _flat(group, extents, coords)})

    return load


def _element(
    kernel: Kernel,
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
        value = reduced(here.value(r.arg), r)
        if id(r) in found:
            _search_step(here, r, value, found[id(r)])
            continue
        buffer = accumulators[id(r)][stage]
        here.code.store(buffer, combine(r.op, tirx.BufferLoad(buffer, [lane]), value), lane)
    kernel.store_values(here, [(node, here.value(node)) for node in p.stores])


def _search_state(code: Code, r: Reduce) -> tuple:
    """The best value so far, its position (0 where there is nothing to search), and whether there was one."""
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
