"""The second kernel of an online chain with few rows: merges the shares' partial results, in order, and makes the
group's results of them (see split_chain.py).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.fusion import FusedChain, ValueLink
from opsgen.analysis.online import Link
from opsgen.lowering.kernel import Launch
from opsgen.lowering.statements import Code, Expr, add, constant, i64, mul
from opsgen.lowering.to_tir import Held, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import combine, holding
from opsgen.schedules.common.schedule import Config, Context

from .chain_passes import COLUMNS, hold, load, repair, repaired, stored
from .kernels import new_kernel
from .register_tile import zeros
from .split_chain import Partial
from .split_shares import SHARES, Shares, Spaces
from .vectors import strips, vectorizable


class Merge:
    """The kernel; a task is a row of the result."""

    def __init__(self, context: Context, config: Config) -> None:
        self.group = context.group
        assert self.group.fused is not None
        self.fused: FusedChain = self.group.fused
        self.arch = context.arch
        self.kernel = new_kernel(context, "merge")
        self.tile_keys = config["split_keys"]
        f = self.fused
        self.extents = {d: self.kernel.extent(d) for d in (*f.batch, *f.rows, *f.columns, f.over)}
        self.spaces = Spaces(self.kernel, f, self.group.index, config["few_lanes"])
        elements = cost.elements(self.kernel.graph, (*f.batch, *f.rows, *f.columns)) * SHARES
        self.kernel.cost(elements, elements, 8)

    def build(self) -> Launch:
        code, f = self.kernel.code, self.fused
        shares = Shares.of(code, f, self.extents, self.tile_keys)
        tasks = code.bind(mul(product_of(self.extents, f.batch), shares.rows), "tasks")
        with code.loop(tasks, "task", "parallel") as (task, body):
            batch = body.bind(tirx.truncdiv(task, shares.rows), "batch")
            row = body.bind(tirx.truncmod(task, shares.rows), "row")
            coords = unflatten(body, batch, f.batch, self.extents) | unflatten(body, row, f.rows, self.extents)
            self.row(Scope(self.kernel, body, coords), batch, row, shares.count)
        return self.kernel.launch()

    def row(self, scope: Scope, batch: Expr, row: Expr, count: Expr) -> None:
        """Merges the row links, in their order, then each strip of columns; a link's shares are repaired to the merged
        values of those before it."""
        code, f = scope.code, self.fused
        merged: dict[int, Held] = {}
        for i, link in enumerate(f.row_links):
            total = code.local("float32", 1, link.op)
            code.store(total, constant(link.neutral, "float32"), i64(0))
            with code.loop(count, "share") as (share, body):
                value = self.partial(body, batch, share, i, row)
                factor = self.factor(scope, body, link, batch, share, row, merged)
                value = repaired(Scope(self.kernel, body, {}), link, value, factor)
                body.store(total, combine(link.op, tirx.BufferLoad(total, [i64(0)]), value), i64(0))
            merged[id(link.node)] = holding(code.bind(tirx.BufferLoad(total, [i64(0)]), link.op))
        hold(scope, {k: merged[id(k.node)] for k in f.row_links})
        of_rows, others = stored(self.group, f)
        self.kernel.store_values(scope, [(n, scope.value(n)) for n in of_rows])
        if not others:
            return
        factors = {id(v.link): self.factors(scope, v, batch, row, count, merged) for v in f.value_links}

        def step(inner: Code, column: Expr, kind: str, width: int, stage: int) -> None:
            sums = {v.link: self.columns(inner, v, batch, row, count, factors, column, width) for v in f.value_links}
            with inner.loop(width, "j", kind) as (j, lanes):
                here = scope.inner(lanes, unflatten(lanes, add(column, j), f.columns, self.extents))
                hold(here, {link: load(acc, j) for link, acc in sums.items()})
                self.kernel.store_values(here, [(n, here.value(n)) for n in others])

        places = COLUMNS[self.arch] if vectorizable(tuple(others)) else (1,)
        strips(code, i64(0), product_of(self.extents, f.columns), places, step)

    def partial(self, code: Code, batch: Expr, share: Expr, number: int, row: Expr) -> Expr:
        """A row link's value in a share."""
        place = self.spaces.link(batch, share, number, row)
        return code.bind(tirx.BufferLoad(self.spaces.links.buffer, [place]), "part")

    def factor(
        self, scope: Scope, code: Code, link: Link, batch: Expr, share: Expr, row: Expr, merged: dict[int, Held]
    ) -> Expr | None:
        """What repairs a link's value in a share."""
        old = {
            id(k.node): holding(self.partial(code, batch, share, i, row))
            for i, k in enumerate(self.fused.row_links)
            if any(k.node is n for n in link.needs)
        }
        return repair(Scope(self.kernel, code, scope.coords), link, old, merged)

    def factors(self, scope: Scope, v: ValueLink, batch: Expr, row: Expr, count: Expr, merged: dict[int, Held]) -> Any:
        """For a contraction link, those of all shares; None if it needs none."""
        if v.link.repair is None:
            return None
        found = scope.code.local("float32", SHARES, "factors")
        with scope.code.loop(count, "share") as (share, body):
            body.store(found, self.factor(scope, body, v.link, batch, share, row, merged), share)
        return found

    def columns(
        self,
        code: Code,
        v: ValueLink,
        batch: Expr,
        row: Expr,
        count: Expr,
        factors: dict[int, Any],
        column: Expr,
        width: int,
    ) -> Any:
        """A strip of a contraction link's merged values."""
        acc = zeros(code, "float32", width, "merged")
        memory, scale = self.spaces.values[id(v.link)].buffer, factors[id(v.link)]
        with code.loop(count, "share") as (share, body):
            place = body.bind(self.spaces.value(v, batch, share, row) + column, "from")
            factor = None if scale is None else body.bind(tirx.BufferLoad(scale, [share]), "factor")
            with body.loop(width, "j", "vectorized" if width > 1 else "serial") as (j, lanes):
                value = tirx.BufferLoad(memory, [place + j])
                value = value if factor is None else tirx.Mul(value, factor)
                lanes.store(acc, tirx.Add(tirx.BufferLoad(acc, [j]), value), j)
        return acc


def build(context: Context, config: Config) -> list[Launch]:
    """Both kernels, for calls with fewer than few_lanes rows."""
    return [Partial(context, config).build(), Merge(context, config).build()]
