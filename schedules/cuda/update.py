"""Updates of single rows on NVIDIA GPUs: what sources with computed positions overwrite, and nothing else.

Rows that are aligned are read and written in strips of 16 bytes, a strip a thread; others element by element. A strip
is on its way while its source's position is looked up.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.lowering.kernel import Comparison, Launch, Param
from opsgen.lowering.statements import Expr, constant, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.scatters import destination
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.schedules.common.updates import written

from . import update_winners
from .conditions import rest_of, undecided
from .kernels import DeviceKernel
from .registers import Emit, Registers
from .strip import alignment, readable, width_for


class _Rows:
    """The kernel that writes the rows. ``few``: it finds out itself which sources stay."""

    def __init__(self, context: Context, config: Config, part: str, few: bool) -> None:
        assert context.group.update is not None
        self.update = u = context.group.update
        self.config = config
        self.few = few
        self.kernel = kernel = DeviceKernel(context, f"{part}_few" if few else part, config["threads"])
        self.dims = u.space
        self.extents = {d: kernel.extent(d) for d in self.dims}
        self.last = u.old.dims[-1]
        self.width = 1
        if self.last in u.columns:
            self.loads = readable(kernel, (u.value,), self.last, set(self.dims))
            self.memories = [*self.loads.values(), kernel.input(u.old)]
            self.width = width_for(self.memories)

    def strips(self, when: tuple[Comparison, ...], choice: str) -> Launch:
        """In strips, for rows that are a multiple of them."""
        kernel, width, outer = self.kernel, self.width, self.dims[:-1]
        in_row = kernel.code.bind(tirx.truncdiv(self.extents[self.last], i64(width)), "strips")
        with kernel.thread_tasks(mul(product_of(self.extents, outer), in_row)) as (task, body):
            row = body.bind(tirx.truncdiv(task, in_row), "row")
            start = body.bind(mul(task - row * in_row, i64(width)), "start")
            scope = Scope(kernel, body, unflatten(body, row, outer, self.extents))
            registers = Registers(kernel, body, self.last, width, 1, self.loads)
            registers.fetch(body, i64(0), {**scope.coords, self.last: start})
            place, stays = self.place(scope)
            with body.when(stays) as inside:
                registers.run(scope.inner(inside, place), i64(0), start, self.element)
        found: dict[Param, int] = {}
        for m in self.memories:
            address, strides = kernel.parameters_of(m)
            for p in (address, *strides):
                found[p] = max(found.get(p, 1), alignment(m, width))
        aligned = tuple((p, n) for p, n in found.items() if n > 1)
        count = cost.elements(kernel.graph, outer) * (kernel.graph.extent(self.last) // width)
        blocks = (count + (kernel.threads - 1)) // kernel.threads
        return kernel.launch_on(blocks, when, per_sm=self.config["per_sm"], aligned=aligned, choice=choice)

    def elements(self, when: tuple[Comparison, ...], choice: str) -> Launch:
        """Element by element, for any memory."""
        kernel = self.kernel
        with kernel.thread_tasks(product_of(self.extents, self.dims)) as (task, body):
            scope = Scope(kernel, body, unflatten(body, task, self.dims, self.extents))
            place, stays = self.place(scope)
            with body.when(stays) as inside:
                here = scope.inner(inside, place)
                kernel.store_values(here, [(self.update.result, written(here, self.update))])
        blocks = (cost.elements(kernel.graph, self.dims) + (kernel.threads - 1)) // kernel.threads
        return kernel.launch_on(blocks, when, per_sm=self.config["per_sm"], choice=choice)

    def place(self, scope: Scope) -> tuple[dict[str, Expr], Expr]:
        """Where the row at hand goes, and whether it does."""
        place, valid = destination(scope, self.update.scatter)
        flag = update_winners.stays(scope, self.update, place, valid, self.few)
        return place, tirx.NE(flag, constant(0, "int32"))

    def element(self, here: Scope, emit: Emit, index: Expr) -> None:
        values = [(self.update.result, written(here, self.update))]
        self.kernel.store_values(here, values, lambda code, place, coords, value: emit(place, value))


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for few sources and for many, each for rows in strips and for any."""
    graph, update = context.partition.graph, context.group.update
    assert update is not None
    sources, choice = graph.extent(update.source), f"group{context.group.index}"
    found: list[Launch] = []
    many = undecided((sources, ">", config["few_sources"]))
    if many is not None:
        found.extend(update_winners.launches(context, config, many))
    for few in (True, False):
        size: Comparison = (sources, "<=" if few else ">", config["few_sources"])
        wide = _Rows(context, config, "strips", few)
        whole = undecided(size, (rest_of(graph.extent(wide.last), wide.width), "<=", 0)) if wide.width > 1 else None
        if whole is not None:
            found.append(wide.strips(whole, choice))
        any_row = undecided(size)
        if any_row is not None:
            found.append(_Rows(context, config, "elements", few).elements(any_row, choice))
    return found


# Rows of 1024 bfloat16 on an H200 (2026-12-01, cold caches, median of 15), beside torch's index_copy_ and a copy of as
# many rows: 8 rows into 16384 or into 262144 4.3 us (5.8, 3.6), 64 6.7 us (6.2, 3.8), 512 10.7 us (6.7, 4.2), 16384
# 28.7 us (54.9, 20.0). From 65 rows on there are three launches.
SCHEDULE = Schedule(
    name="cuda.update",
    target="cuda",
    pattern="update",
    region="any update",
    knobs={"threads": (128, 256), "per_sm": (16, 32), "few_sources": (64, 128)},
    serves=lambda group, arch: True,
    default=lambda group, arch: {"threads": 128, "per_sm": 32, "few_sources": 64},
    build=build,
)
