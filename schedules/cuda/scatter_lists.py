"""Which sources go to each destination of a scatter, on NVIDIA GPUs: a counting sort with integer atomics.

Four kernels: clear the counts; count, where each source learns how many came before it; give each destination room for
its sources; put the sources there. The order in which a destination's sources lie is that in which threads came by:
whoever adds them up sorts them first. Where the rooms lie changes from run to run, too, and nothing else depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Expr, add, ceildiv, i64, mul
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.scatters import at_source, destination
from opsgen.schedules.common.schedule import Config, Context

from .kernels import DeviceKernel, synchronize
from .scan_team import ScanTeam


@dataclass(frozen=True)
class Lists:
    """For each destination how many sources it has and where in ``order`` they begin, and for each source how many
    of its destination's came before it."""

    counts: Memory
    starts: Memory
    slots: Memory
    order: Memory
    total: Memory

    @staticmethod
    def of(kernel: DeviceKernel) -> Lists:
        scatter, graph, index = kernel.group.scatter, kernel.graph, kernel.group.index
        assert scatter is not None

        def space(name: str, dims: tuple[str, ...]) -> Memory:
            return kernel.workspace(f"{name}{index}", {d: graph.extent(d) for d in dims}, DTYPES["int64"])

        heads, sources = (*scatter.batch, *scatter.destinations), (*scatter.batch, *scatter.source)
        places = {"(place)": cost.elements(graph, sources)}
        return Lists(
            space("counts", heads),
            space("starts", heads),
            space("slots", sources),
            kernel.workspace(f"order{index}", places, DTYPES["int64"]),
            kernel.workspace(f"taken{index}", {"(one)": Extent.const(1)}, DTYPES["int64"]),
        )


class _Part:
    """One of the kernels."""

    def __init__(self, context: Context, part: str, threads: int) -> None:
        self.kernel = DeviceKernel(context, part, threads)
        assert context.group.scatter is not None
        self.scatter = s = context.group.scatter
        self.extents = {d: self.kernel.extent(d) for d in (*s.batch, *s.destinations, *s.source)}
        self.lists = Lists.of(self.kernel)
        self.heads = cost.elements(self.kernel.graph, (*s.batch, *s.destinations))
        self.sources = cost.elements(self.kernel.graph, (*s.batch, *s.source))

    def launch(self, threads: Extent, config: Config) -> Launch:
        blocks = (threads + (self.kernel.threads - 1)) // self.kernel.threads
        return self.kernel.launch_on(blocks, per_sm=config["per_sm"])

    def clear(self, config: Config) -> Launch:
        kernel = self.kernel
        heads = kernel.code.bind(kernel.expr(self.heads), "heads")
        with kernel.thread_tasks(heads + i64(1)) as (task, body), body.either(task < heads) as (count, total):
            count.store(self.lists.counts.buffer, i64(0), task)
            total.store(self.lists.total.buffer, i64(0), i64(0))
        return self.launch(self.heads + 1, config)

    def count(self, config: Config) -> Launch:
        kernel = self.kernel
        with kernel.thread_tasks(kernel.expr(self.sources)) as (task, body):
            here = self.source(Scope(kernel, body, {}), task)
            coords, valid = destination(here, self.scatter)
            with here.code.when(valid) as inside:
                place = self.lists.counts.offset({**here.coords, **coords})
                slot = inside.bind(fetch_add(self.lists.counts, place, i64(1)), "slot")
                inside.store(self.lists.slots.buffer, slot, self.lists.slots.offset(here.coords))
        return self.launch(self.sources, config)

    def source(self, scope: Scope, task: Expr) -> Scope:
        """The scope of a source; ``task`` counts those of all batches."""
        code, s = scope.code, self.scatter
        each = product_of(self.extents, s.source)
        batch = unflatten(code, code.bind(tirx.truncdiv(task, each), "batch"), s.batch, self.extents) if s.batch else {}
        number = code.bind(tirx.truncmod(task, each), "source") if s.batch else task
        return at_source(scope.inner(code, batch), code, s, number, self.extents)

    def allocate(self, config: Config) -> Launch:
        kernel, threads = self.kernel, self.kernel.threads
        team = ScanTeam(kernel, threads, reverse=False)
        room = kernel.shared("int64", 1, "room")
        heads = kernel.code.bind(kernel.expr(self.heads), "heads")
        with kernel.tasks(ceildiv(heads, threads)) as (task, body):
            at = body.bind(add(mul(task, i64(threads)), kernel.thread), "at")
            mine = body.local("int64", 1, "mine")
            body.store(mine, i64(0), i64(0))
            with body.when(at < heads) as inside:
                inside.store(mine, tirx.BufferLoad(self.lists.counts.buffer, [at]), i64(0))
            own = body.bind(tirx.BufferLoad(mine, [i64(0)]), "own")
            inclusive = team.warp_scan(body, own, tirx.Add)
            warp = team.of(body, inclusive, i64(31))
            earlier, whole = team.across(body, warp, i64(0), tirx.Add, i64(0), "rooms")
            with body.when(tirx.EQ(kernel.thread, i64(0))) as one:
                one.store(room, fetch_add(self.lists.total, i64(0), whole), i64(0))
            synchronize(body)
            with body.when(at < heads) as inside:
                start = tirx.BufferLoad(room, [i64(0)]) + earlier + inclusive - own
                inside.store(self.lists.starts.buffer, start, at)
            synchronize(body)  # before what the threads share is written for the next task
        return self.launch(self.heads, config)

    def place(self, config: Config) -> Launch:
        kernel = self.kernel
        with kernel.thread_tasks(kernel.expr(self.sources)) as (task, body):
            here = self.source(Scope(kernel, body, {}), task)
            coords, valid = destination(here, self.scatter)
            with here.code.when(valid) as inside:
                start = self.lists.starts.load({**here.coords, **coords})
                slot = self.lists.slots.load(here.coords)
                number: Expr = i64(0)
                for d in self.scatter.source:
                    number = add(mul(number, self.extents[d]), here.coords[d])
                inside.store(self.lists.order.buffer, number, start + slot)
        return self.launch(self.sources, config)


def fetch_add(memory: Memory, place: Expr, number: Expr) -> Expr:
    """Adds to an element of memory that others add to, too; what it was before."""
    address = tirx.address_of(tirx.BufferLoad(memory.buffer, [place]))
    return tirx.call_extern("int64", "opsgen_fetch_add", address, number)


def launches(context: Context, config: Config) -> list[Launch]:
    """The kernels, in order."""
    threads = config["list_threads"]
    return [
        _Part(context, "clear", threads).clear(config),
        _Part(context, "count", threads).count(config),
        _Part(context, "allocate", threads).allocate(config),
        _Part(context, "place", threads).place(config),
    ]
