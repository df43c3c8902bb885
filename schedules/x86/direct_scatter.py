"""Scatters with few columns or none on x86, such as counts: each source is added at its destination as it comes.

Where there are many sources for each destination, they are cut into shares, each with its own destinations, that are
added up in order. How many is decided from the sizes alone.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.scatter import Scatter
from opsgen.dsl.dtypes import DTYPES
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Expr, add, ceildiv, i64, mul, sub
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import combine, holding, neutral, over_outer
from opsgen.schedules.common.scans import as_type
from opsgen.schedules.common.scatters import at_source, contribution, destination
from opsgen.schedules.common.schedule import Config, Context

from .kernels import new_kernel

SHARES = 16
"""Most shares of all sources."""

COLUMNS = 16
"""Most columns."""

_PER_DESTINATION = 16
"""Sources of a share for each destination, at least: it has as many to add up at the end."""

_TOTALS = 4096
"""Destinations of one task."""


class _Build:
    def __init__(self, context: Context, config: Config) -> None:
        self.group = context.group
        assert self.group.scatter is not None
        self.scatter: Scatter = self.group.scatter
        self.config = config
        self.kernel: Kernel = new_kernel(context, "direct")
        s, code, graph = self.scatter, self.kernel.code, self.kernel.graph
        self.extents = {d: self.kernel.extent(d) for d in (*s.space, *s.source, *s.rest)}
        self.columns = code.bind(product_of(self.extents, s.columns), "columns")
        self.batches = code.bind(product_of(self.extents, s.batch), "batches")
        self.places = code.bind(product_of(self.extents, s.destinations), "destinations")
        self.sources = code.bind(product_of(self.extents, s.source), "sources")
        self.start = neutral(s.node)
        if self.start.ty.dtype == "float32" and s.node.op in ("sum", "prod"):  # one number takes all that comes
            self.start = tirx.FloatImm("float64", float(self.start.value))
        enough = tirx.truncdiv(self.sources, tirx.Max(self.places, i64(1)) * i64(_PER_DESTINATION))
        most = tirx.Max(tirx.truncdiv(i64(SHARES), tirx.Max(self.batches, i64(1))), i64(1))
        self.shares = code.bind(tirx.Max(tirx.Min(enough, most), i64(1)), "shares")
        sizes = [cost.elements(graph, dims) for dims in (s.batch, s.source, s.destinations)]
        if s.columns:
            sizes[0] = sizes[0] * COLUMNS
        room = sizes[0] * (sizes[1] // _PER_DESTINATION + sizes[2])  # shares * destinations is not more for a batch
        dtype = DTYPES[self.start.ty.dtype]
        self.totals: Memory = self.kernel.workspace(f"totals{self.group.index}", {"(total)": room}, dtype)

    def build(self, context: Context) -> Launch:
        graph, s = self.kernel.graph, self.scatter
        elements = cost.elements(graph, (*s.batch, *s.node.over, *s.columns))
        self.kernel.cost(cost.flops(graph, context.computed()), elements * 4, self.config["flops_per_ns"])
        self.add_up()
        self.kernel.cost(cost.elements(graph, s.space), cost.elements(graph, s.space), self.config["flops_per_ns"])
        self.store()
        return self.kernel.launch()

    def add_up(self) -> None:
        """The totals of each share."""
        code, s = self.kernel.code, self.scatter
        share_length = code.bind(tirx.truncdiv(self.sources + self.shares - i64(1), self.shares), "share_length")
        with code.loop(code.bind(mul(self.batches, self.shares), "tasks"), "task", "parallel") as (task, body):
            batch = body.bind(tirx.truncdiv(task, self.shares), "batch")
            share = body.bind(tirx.truncmod(task, self.shares), "share")
            size = body.bind(mul(self.places, self.columns), "size")
            base = body.bind(mul(task, size), "base")
            with body.loop(size, "i") as (i, inner):
                inner.store(self.totals.buffer, self.start, add(base, i))
            scope = Scope(self.kernel, body, unflatten(body, batch, s.batch, self.extents))
            first = body.bind(mul(share, share_length), "first")
            count = body.bind(tirx.Min(share_length, sub(self.sources, first)), "count")
            with body.loop(count, "i") as (i, inner):
                here = at_source(scope, inner, s, inner.bind(add(first, i), "source"), self.extents)
                coords, valid = destination(here, s)
                with inner.when(valid) as found:
                    place = found.bind(add(base, mul(self.place(coords, s.destinations), self.columns)), "place")
                    inside = here.inner(found, {})
                    over_outer(inside, [*s.rest, *s.columns], self.extents, lambda at: self.take(at, place))

    def place(self, coords: dict[str, Expr], dims: tuple[str, ...]) -> Expr:
        """The number of a position along some dims."""
        number: Expr = i64(0)
        for d in dims:
            number = add(mul(number, self.extents[d]), coords[d])
        return number

    def take(self, at: Scope, place: Expr) -> None:
        value = as_type(contribution(at, self.scatter), self.start.ty.dtype)
        place = at.bind(add(place, self.place(at.coords, self.scatter.columns)), "place")
        old = tirx.BufferLoad(self.totals.buffer, [place])
        at.code.store(self.totals.buffer, combine(self.scatter.node.op, old, value), place)

    def store(self) -> None:
        """What all shares have, and the maps after it."""
        code = self.kernel.code
        results = code.bind(mul(mul(self.batches, self.places), self.columns), "results")
        with code.loop(code.bind(ceildiv(results, _TOTALS), "pieces"), "task", "parallel") as (task, body):
            first = body.bind(task * i64(_TOTALS), "first")
            with body.loop(tirx.Min(i64(_TOTALS), sub(results, first)), "i") as (i, inner):
                number = inner.bind(add(first, i), "number")
                self.result(Scope(self.kernel, inner, {}), number)

    def result(self, scope: Scope, number: Expr) -> None:
        code, s = scope.code, self.scatter
        size = code.bind(mul(self.places, self.columns), "size")
        batch, place = code.bind(tirx.truncdiv(number, size)), code.bind(tirx.truncmod(number, size))
        base = code.bind(add(mul(mul(batch, self.shares), size), place), "base")
        total = code.local(self.start.ty.dtype, 1, s.node.op)
        code.store(total, self.start, i64(0))
        with code.loop(self.shares, "share") as (share, body):
            part = tirx.BufferLoad(self.totals.buffer, [add(base, mul(share, size))])
            body.store(total, combine(s.node.op, tirx.BufferLoad(total, [i64(0)]), part), i64(0))
        coords = unflatten(code, batch, s.batch, self.extents)
        coords |= unflatten(code, place, (*s.destinations, *s.columns), self.extents)
        found = code.bind(as_type(tirx.BufferLoad(total, [i64(0)]), neutral(s.node).ty.dtype), s.node.op)
        self.kernel.store_all(scope.inner(code, coords, {id(s.node): holding(found)}))


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for a group, for at most `COLUMNS` columns."""
    return [_Build(context, config).build(context)]
