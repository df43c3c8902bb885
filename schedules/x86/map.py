"""Maps on x86: elementwise values, broadcasts and gathers, along the innermost dim of the result in vectors.

All dims but the innermost are one parallel loop; a long innermost dim is cut into blocks, so that one long row has
parallelism too.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, sub
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule

from .kernels import new_kernel
from .streaming import STREAM_BYTES, Lines, Streaming, end
from .vectors import strips, widths


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for the group's stored values."""
    group = context.group
    kernel = new_kernel(context, "map")
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
    streaming = Streaming(kernel, group.stored, dims, kernel.code, config["stream_bytes"])
    streams = kernel.code.bind(streaming.chosen) if streaming.places else None
    with kernel.code.loop(rows * blocks, "task", "parallel") as (task, body):
        row = body.bind(tirx.truncdiv(task, blocks), "row")
        start = body.bind(tirx.truncmod(task, blocks) * i64(config["block"]), "start")
        length = body.bind(tirx.Min(i64(config["block"]), extents[last] - start), "length")
        scope = Scope(kernel, body, unflatten(body, row, outer, extents))

        def cover(at: Code, streamed: bool) -> None:
            """All elements of the block; past the caches, single ones up to the next line come first."""
            here = scope.inner(at, {})

            def step(code: Code, position: Expr, kind: str, width: int, stage: int) -> None:
                lines = Lines(streaming, code, width) if streamed and width > 1 else None
                with code.loop(width, "lane", kind) as (lane, lanes):
                    kernel.store_all(here.inner(lanes, {last: position + lane}), lines.sink(lane) if lines else None)
                if lines is not None:
                    lines.flush({**here.coords, last: position})

            head: Expr = i64(0)
            if streamed:
                head = streaming.head(at, {**here.coords, last: start}, length)
                with at.loop(head, "single") as (i, single):
                    step(single, start + i, "serial", 1, 0)
            strips(at, add(start, head), sub(length, head), steps, step)
            if streamed:
                end(at)

        if streaming.places and len(steps) > 1:
            with body.either(streams) as (past, normal):
                cover(past, True)
                cover(normal, False)
        else:
            cover(body, False)
    return [kernel.launch()]


SCHEDULE = Schedule(
    name="x86.map",
    target="x86",
    pattern="map",
    region="any map group on avx2 and avx512",
    knobs={"block": (1024, 4096, 16384), "registers": (1, 2, 4), "flops_per_ns": (8,), "stream_bytes": STREAM_BYTES},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"block": 4096, "registers": 2, "flops_per_ns": 8, "stream_bytes": STREAM_BYTES[0]},
    build=build,
)
