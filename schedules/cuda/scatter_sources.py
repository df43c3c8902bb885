"""The sources of one destination of a scatter in their order, as the threads of a block get at them.

A few lie in shared memory, sorted by counting how many are smaller. More than that are found again by looking at the
positions of all sources, as many at a time as there are threads.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from opsgen.lowering.statements import Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of
from opsgen.schedules.common.scatters import at_source, destination

from .kernels import DeviceKernel, strided, synchronize
from .scan_team import ScanTeam
from .scatter_lists import Lists

MOST = 512
"""Sources that are sorted in shared memory."""


class Sources:
    """The sources of the destinations of a block, one destination after the other."""

    def __init__(self, kernel: DeviceKernel) -> None:
        self.kernel = kernel
        assert kernel.group.scatter is not None
        self.scatter = s = kernel.group.scatter
        self.lists = Lists.of(kernel)
        self.extents = {d: kernel.extent(d) for d in (*s.batch, *s.destinations, *s.source)}
        self.all = kernel.code.bind(product_of(self.extents, s.source), "sources")
        self.team = ScanTeam(kernel, kernel.threads, reverse=False)
        self.raw = kernel.shared("int64", MOST, "raw")
        self.sorted = kernel.shared("int64", max(MOST, kernel.threads), "sorted")

    def count(self, scope: Scope) -> Expr:
        """How many sources the destination at hand has."""
        return scope.bind(self.lists.counts.load(scope.coords), "count")

    def sort(self, scope: Scope, count: Expr) -> None:
        """Puts up to `MOST` sources in shared memory, in their order. All threads come by."""
        code, kernel = scope.code, self.kernel
        with code.when(tirx.And(count > i64(0), count <= i64(MOST))) as few:
            start = few.bind(self.lists.starts.load(scope.coords), "start")
            step = i64(kernel.threads)
            with strided(few, kernel.thread, count, step, "i") as (i, body):
                body.store(self.raw, tirx.BufferLoad(self.lists.order.buffer, [start + i]), i)
            synchronize(few)
            with strided(few, kernel.thread, count, step, "i") as (i, body):
                mine = body.bind(tirx.BufferLoad(self.raw, [i]), "mine")
                rank = body.local("int64", 1, "rank")
                body.store(rank, i64(0), i64(0))
                with body.loop(count, "other") as (other, inner):
                    smaller = tirx.Select(tirx.BufferLoad(self.raw, [other]) < mine, i64(1), i64(0))
                    inner.store(rank, tirx.BufferLoad(rank, [i64(0)]) + smaller, i64(0))
                body.store(self.sorted, mine, tirx.BufferLoad(rank, [i64(0)]))
            synchronize(few)

    def in_order(self, scope: Scope, count: Expr, take: Callable[[Scope], None]) -> None:
        """``take`` in the scope of each source, in all threads. `sort` has been called."""
        code, kernel, s = scope.code, self.kernel, self.scatter
        many = code.bind(tirx.Cast("int32", count > i64(MOST)), "many")
        heavy = tirx.NE(many, constant(0, "int32"))
        windows = code.bind(tirx.Select(heavy, ceildiv(self.all, kernel.threads), i64(1)), "windows")
        here_count = code.local("int64", 1, "here")
        with code.loop(windows, "window") as (window, body):
            body.store(here_count, count, i64(0))
            with body.when(heavy) as inside:
                found = self.window(scope.inner(inside, {}), window)
                inside.store(here_count, found, i64(0))
            with body.loop(body.bind(tirx.BufferLoad(here_count, [i64(0)]), "found"), "i") as (i, inner):
                number = inner.bind(tirx.BufferLoad(self.sorted, [i]), "source")
                take(at_source(scope, inner, s, number, self.extents))

    def window(self, scope: Scope, window: Expr) -> Expr:
        """Puts those of a window's sources that go to the destination in shared memory; gives how many."""
        code, team = scope.code, self.team
        number = code.bind(add(mul(window, i64(self.kernel.threads)), self.kernel.thread), "candidate")
        hit = code.local("int32", 1, "hit")
        code.store(hit, constant(0, "int32"), i64(0))
        with code.when(number < self.all) as inside:
            here = at_source(scope, inside, self.scatter, number, self.extents)
            inside.store(hit, tirx.Cast("int32", self.goes_here(scope, here)), i64(0))
        own = code.bind(tirx.BufferLoad(hit, [i64(0)]), "own")
        zero = constant(0, "int32")
        inclusive = team.warp_scan(code, own, tirx.Add)
        warp = team.of(code, inclusive, i64(31))
        earlier, whole = team.across(code, warp, zero, tirx.Add, window & i64(1), "hits")
        # The barrier in `across` is behind the last use of what was found in the window before.
        with code.when(tirx.NE(own, zero)) as one:
            one.store(self.sorted, number, tirx.Cast("int64", earlier + inclusive - own))
        synchronize(code)
        return tirx.Cast("int64", whole)

    def goes_here(self, scope: Scope, here: Scope) -> Expr:
        """Whether a source goes to the destination of ``scope``."""
        coords, valid = destination(here, self.scatter)
        for d, at in coords.items():
            valid = tirx.And(valid, tirx.EQ(at, scope.coords[d]))
        return valid
