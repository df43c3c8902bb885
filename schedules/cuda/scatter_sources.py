"""The sources of one destination of a scatter in their order, as the threads of a block get at them.

A few lie in shared memory, sorted by counting how many are smaller. More than that are found again by looking at the
positions of all sources, as many at a time as there are threads. Where the order does not matter, which is so for
integers and for extremes, they are taken as they lie.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import product_of
from opsgen.schedules.common.scatters import at_source, destination
from opsgen.targets.cuda import WARP

from .kernels import DeviceKernel, strided, synchronize
from .scan_team import ScanTeam
from .scatter_lists import Lists

MOST = 512
"""Sources that are sorted in shared memory, at most: more of it would leave room for fewer blocks."""

_PER_THREAD = 8
"""Of them."""

Loops = Callable[[Scope, Expr, Callable[[Code, Expr], Expr]], None]
"""``loops(scope, count, number)``: goes over ``count`` sources, of which ``number(code, i)`` gives the number."""


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
        self.most = min(MOST, _PER_THREAD * kernel.threads)
        self.ordered = s.node.dtype.kind == "float" and s.node.op in ("sum", "prod")
        if self.ordered:
            self.raw = kernel.shared("int64", self.most, "raw")
            self.sorted = kernel.shared("int64", max(self.most, kernel.threads), "sorted")

    def count(self, scope: Scope) -> Expr:
        """How many sources the destination at hand has."""
        return scope.bind(self.lists.counts.load(scope.coords), "count")

    def sort(self, scope: Scope, count: Expr) -> None:
        """Puts a few sources in shared memory, in their order, if it matters. All threads come by."""
        code, kernel = scope.code, self.kernel
        if not self.ordered:
            return
        with code.when(tirx.And(count > i64(0), count <= i64(self.most))) as few:
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

    def in_order(self, scope: Scope, count: Expr, loops: Loops) -> None:
        """``loops`` over all sources, in all threads. `sort` has been called."""
        code, kernel = scope.code, self.kernel
        if not self.ordered:
            start = code.bind(self.lists.starts.load(scope.coords), "start")
            loops(scope, count, lambda at, i: at.bind(self.as_it_lies(start, i), "source"))
            return
        many = code.bind(tirx.Cast("int32", count > i64(self.most)), "many")
        heavy = tirx.NE(many, constant(0, "int32"))
        windows = code.bind(tirx.Select(heavy, ceildiv(self.all, kernel.threads), i64(1)), "windows")
        here_count = code.local("int64", 1, "here")
        with code.loop(windows, "window") as (window, body):
            body.store(here_count, count, i64(0))
            with body.when(heavy) as inside:
                inside.store(here_count, self.window(scope.inner(inside, {}), window), i64(0))
            found = body.bind(tirx.BufferLoad(here_count, [i64(0)]), "found")
            loops(scope.inner(body, {}), found, lambda at, i: at.bind(tirx.BufferLoad(self.sorted, [i]), "source"))

    def at(self, scope: Scope, code: Code, number: Expr) -> Scope:
        """The scope of a source."""
        return at_source(scope, code, self.scatter, number, self.extents)

    def as_it_lies(self, start: Expr, i: Expr) -> Expr:
        """A source of a destination whose sources begin at ``start``."""
        return tirx.BufferLoad(self.lists.order.buffer, [add(start, i)])

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
        # The barrier in `across` is behind the last use of what was found in the window before; a single
        # warp has none there.
        if self.kernel.threads == WARP:
            synchronize(code)
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
