"""Maps on NVIDIA GPUs: elementwise values, broadcasts and gathers, a strip of the innermost dim a thread.

The grid strides over the strips of all rows; neighbouring threads have neighbouring strips.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import ceildiv, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule

from .kernels import DeviceKernel
from .strip import Emit, Strips, aligned, readable, width_for


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for the group's stored values."""
    group = context.group
    kernel = DeviceKernel(context, "map", config["threads"])
    dims = group.stored[0].dims
    extents = {d: kernel.extent(d) for d in dims}
    elements = cost.elements(context.partition.graph, dims)
    if not dims:
        with kernel.thread_tasks(i64(1)) as (_, body):
            kernel.store_all(Scope(kernel, body, {}))
        return [kernel.launch_on(elements)]
    outer, last = dims[:-1], dims[-1]
    loads = readable(kernel, group.stored, last, set(dims))
    places = [p for node in group.stored for p in kernel.destinations(node) if p.dims[-1:] == (last,)]
    width = width_for([*loads.values(), *places]) if places else 1
    code = kernel.code
    flag = aligned(code, [*loads.values(), *places], width) if width > 1 else None
    strips = Strips(kernel, last, width, flag, loads if width > 1 else {})
    in_row = code.bind(ceildiv(extents[last], width), "strips")
    with kernel.thread_tasks(mul(product_of(extents, outer), in_row)) as (task, body):
        row = body.bind(tirx.truncdiv(task, in_row), "row") if outer else i64(0)
        start = body.bind((tirx.truncmod(task, in_row) if outer else task) * i64(width), "start")
        scope = Scope(kernel, body, unflatten(body, row, outer, extents))

        def element(here: Scope, emit: Emit) -> None:
            kernel.store_all(here, lambda code, place, coords, value: emit(place, value))

        strips.run(scope, start, extents[last], element)
    rows = cost.elements(context.partition.graph, outer)
    count = rows * ((context.partition.graph.extent(last) + (width - 1)) // width)
    return [kernel.launch_on((count + (config["threads"] - 1)) // config["threads"], per_sm=config["per_sm"])]


SCHEDULE = Schedule(
    name="cuda.map",
    target="cuda",
    pattern="map",
    region="any map group",
    knobs={"threads": (128, 256, 512), "per_sm": (8, 16, 32)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"threads": 256, "per_sm": 16},
    build=build,
)
