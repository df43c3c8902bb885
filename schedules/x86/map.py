"""Maps on x86: elementwise values, broadcasts and gathers, along the innermost dim of the result in vectors.

All dims but the innermost are one parallel loop; a long innermost dim is cut into blocks, so that one long row has
parallelism too.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, ceildiv, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.schedule import Config, Context, Schedule

from .vectors import product_of, strips, unflatten, widths


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for the group's stored values."""
    group = context.group
    kernel = Kernel(f"{context.prefix}_map", context.partition, group, context.spaces)
    graph = context.partition.graph
    dims = group.stored[0].dims
    extents = {d: kernel.extent(d) for d in dims}
    outer, last = dims[:-1], dims[-1] if dims else None
    kernel.cost(cost.flops(graph, context.computed()), cost.elements(graph, dims), config["flops_per_ns"])
    if last is None:
        kernel.store_all(Scope(kernel, kernel.code, {}))
        return [kernel.launch()]
    rows = kernel.code.bind(product_of(extents, outer), "rows")
    blocks = kernel.code.bind(ceildiv(extents[last], config["block"]), "blocks")
    steps = widths(context.arch, group, config["registers"])
    with kernel.code.loop(rows * blocks, "task", "parallel") as (task, body):
        row = body.bind(tirx.truncdiv(task, blocks), "row")
        start = body.bind(tirx.truncmod(task, blocks) * i64(config["block"]), "start")
        length = body.bind(tirx.Min(i64(config["block"]), extents[last] - start), "length")
        scope = Scope(kernel, body, unflatten(body, row, outer, extents))

        def step(code: Code, at: Expr, kind: str, width: int, stage: int) -> None:
            with code.loop(width, "lane", kind) as (lane, lanes):
                kernel.store_all(scope.inner(lanes, {last: at + lane}))

        strips(body, start, length, steps, step)
    return [kernel.launch()]


SCHEDULE = Schedule(
    name="x86.map",
    target="x86",
    pattern="map",
    region="any map group on avx2 and avx512",
    knobs={"block": (1024, 4096, 16384), "registers": (1, 2, 4), "flops_per_ns": (8,)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"block": 4096, "registers": 2, "flops_per_ns": 8},
    build=build,
)
