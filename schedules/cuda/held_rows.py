"""Rows that are read once: a team of threads holds a row in registers, as it lies in memory, for all passes over it.

All of a thread's loads are on their way before the first value is used. A team is a part of a warp, a warp, or a block;
from sm_90 on also several blocks of a cluster, which exchange their totals through each other's shared memory.

Long rows occupy whole multiprocessors, which must not wait for memory between two rows: the next row arrives in shared
memory while this one is worked on. Rows that begin at any element have kernels whose strips begin where the row's
memory is aligned; the elements before the first strip and after the last have a thread each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Reduce
from opsgen.lowering.kernel import Comparison, Launch, Param
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul, truncdiv
from opsgen.lowering.to_tir import Memory, Scope, compute_name
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.reductions import Pass, accumulator, holding, reduced
from opsgen.schedules.common.schedule import Config, Context
from opsgen.schedules.common.search import Search, is_search
from opsgen.targets.cuda import ARCHS

from .kernels import DeviceKernel, call, combine
from .registers import Emit, Registers, address, at_own_position, bytes_of
from .row_forms import Form, Operands, pieces, roots, stage_bytes
from .strip import alignment
from .team import Parts, RowTeam, joining, parts_of

_PARTIAL = 4
"""Partial results of a thread for each reduction: instructions that need not wait for each other."""


@dataclass(frozen=True)
class Span:
    """Positions of a row that a team works on: strips from ``begin`` up to ``end``; of a shifted row also a thread's
    ``single`` position, if that is before the end."""

    scope: Scope
    begin: Expr
    end: Expr
    single: Expr | None


class HeldRows:
    """The kernel of one form."""

    def __init__(self, context: Context, config: Config, form: Form, part: str = "") -> None:
        self.context = context
        self.group = group = context.group
        self.config = config
        self.form = form
        threads = max(form.threads, config["warp_threads"])
        self.kernel = kernel = DeviceKernel(context, part or form.name, threads)
        self.operands = Operands(kernel, group, config)
        self.last = self.operands.last
        self.held = self.operands.holds(form)
        self.extents = {d: kernel.extent(d) for d in (*group.space, *group.over)}
        self.team = RowTeam(kernel, form.threads, form.cluster)
        self.rows = kernel.code.bind(product_of(self.extents, group.space), "rows")
        self.length = kernel.code.bind(self.extents[self.last], "length")
        self.first = kernel.code.bind(mul(self.team.rank_in_row, i64(form.width)), "first")
        self.stage = kernel.dynamic("uint32") if form.staged else None
        in_stage = [*{id(m): m for m in self.held.values()}.values()]
        in_stage += self.operands.shared() if form.once else []
        counts = [pieces(m, form.width) for m in in_stage]
        self.pending: Registers | None = None
        if form.staged and form.shifted:
            self.pending = Registers(kernel, kernel.code, self.last, 1, 1, self.operands.loads)
        self.slots = {id(m): sum(counts[:i]) for i, m in enumerate(in_stage)} if form.staged else {}

    def aligned(self) -> tuple[tuple[Param, int], ...]:
        """What must be a multiple of so many bytes for whole strips to be moved at once."""
        if self.form.width == 1 or self.form.shifted:
            return ()
        found: dict[Param, int] = {}
        for m in self.operands.memories:
            own, strides = self.kernel.parameters_of(m)
            for p in (own, *strides):
                found[p] = max(found.get(p, 1), alignment(m, self.form.width))
        return tuple((p, n) for p, n in found.items() if n > 1)

    def build(self, when: tuple[Comparison, ...], choice: str) -> Launch:
        """The kernel for rows that it can hold."""
        kernel, team, form = self.kernel, self.team, self.form
        if form.staged:
            self.send_first()
        with team.tasks(ceildiv(self.rows, team.teams)) as (task, body):
            wanted = body.bind(add(mul(task, i64(team.teams)), team.number), "wanted")
            if team.teams == 1:
                self.row(body, wanted, self.length, tirx.EQ(team.rank_in_row, i64(0)))
            else:
                # A team without a row does the last one's work without its elements, for warps exchange as a whole.
                exists = wanted < self.rows
                row = body.bind(tirx.Min(wanted, self.rows - i64(1)), "row")
                end = body.bind(tirx.Select(exists, self.length, i64(0)), "end")
                self.row(body, row, end, tirx.And(exists, tirx.EQ(team.rank_in_row, i64(0))))
        return self.launch(
            (cost.elements(kernel.graph, self.group.space) + (team.teams - 1)) // team.teams, when, choice
        )

    def launch(self, tasks: Extent, when: tuple[Comparison, ...], choice: str) -> Launch:
        """The finished kernel. With a stage there are no more blocks than can be resident, or a few times as many where
        clusters do not fill the chip."""
        form, threads = self.form, self.kernel.threads
        share = 3 if self.operands.tight(form) else 4
        resident = max(self.config["resident_threads"] * share // (4 * threads), 1)
        shared = stage_bytes(self.operands, form)
        per_sm = None
        if form.staged:
            per_sm = max(min(resident, ARCHS[self.context.arch].shared_per_sm // shared), 1)
            per_sm *= 4 if form.cluster > 2 else 1
        return self.kernel.launch_on(
            tasks * form.cluster, when, Extent.const(shared), per_sm, resident, form.cluster, self.aligned(), choice
        )

    def row(self, code: Code, row: Expr, end: Expr, first_thread: Expr) -> None:
        """A row up to ``end``; one thread stores what there is one of."""
        span = self.span(code, row, i64(0), end)
        registers, single = self.fetch(span)
        if self.form.staged:
            following = code.bind(add(row, self.team.step), "following")
            with code.when(following < self.rows) as more:
                after = self.span(more, following, i64(0), self.length)
                self.send(after)
                self.send_single(after)
        kept: dict[int, Any] = {}
        for number, p in enumerate(self.operands.passes):
            if number:
                registers.hold(code)
            for r, parts in self.run(span, p, registers, single, kept):
                hold(span.scope, r, parts)
        self.store_totals(span.scope, first_thread)

    def store_totals(self, scope: Scope, first_thread: Expr) -> None:
        """What there is one of in a row."""
        totals = [n for n in self.group.stored if set(n.dims) == set(self.group.space)]
        values = [(node, scope.value(node)) for node in totals]
        with scope.code.when(first_thread) as first:
            self.kernel.store_values(scope.inner(first, {}), values)

    # -- where strips lie ----------------------------------------------------------------------------------------------
    def span(self, code: Code, row: Expr, begin: Expr, end: Expr) -> Span:
        """Positions of a row from ``begin`` up to ``end``."""
        scope = Scope(self.kernel, code, unflatten(code, row, self.group.space, self.extents))
        if not self.form.shifted:
            return Span(scope, begin, end, None)
        width, memory = self.form.width, self.reference()
        at = address(memory.buffer, memory.offset({**scope.coords, self.last: begin}))
        past = tirx.Sub(i64(0), call("int64", "opsgen_address", at)) & i64(alignment(memory, width) - 1)
        head = code.bind(tirx.Min(truncdiv(past, bytes_of(memory)), end - begin), "head")
        strips = code.bind(add(begin, head), "strips")
        tail = code.bind(strips + truncdiv(end - strips, width) * i64(width), "tail")
        rank = self.team.rank_in_row
        single = code.bind(tirx.Select(rank < head, add(begin, rank), tail + (rank - head)), "single")
        return Span(scope, strips, end, single)

    def reference(self) -> Memory:
        """Whose strips are aligned: a result, or else an operand."""
        dims = self.operands.dims
        whole = [m for m in self.operands.memories if set(m.dims) == dims]
        return min(whole or self.operands.memories, key=bytes_of)

    def strips(self, code: Code, span: Span) -> Iterator[tuple[Expr, Expr, Code]]:
        """A thread's strips: number, start, and code for it."""
        form = self.form
        step = form.threads * form.cluster * form.width
        with code.loop(form.vectors, "number", "unrolled") as (number, body):
            start = body.bind(add(add(span.begin, self.first), mul(number, i64(step))), "start")
            with body.when(start + i64(form.width) <= span.end if form.shifted else start < span.end) as inside:
                yield number, start, inside

    # -- from memory ---------------------------------------------------------------------------------------------------
    def registers(self, code: Code, vectors: int, memories: dict[int, Memory]) -> Registers:
        return Registers(self.kernel, code, self.last, self.form.width, vectors, memories, not self.form.shifted)

    def fetch(self, span: Span) -> tuple[Registers, Registers | None]:
        """What is held of a row: strips, and the single elements of a shifted one."""
        scope, code = span.scope, span.scope.code
        held = self.registers(code, self.form.vectors, self.held)
        if self.form.staged:
            code.call("opsgen_fetched")
        for number, start, inside in self.strips(code, span):
            if self.form.staged:
                self.take(inside, held, number, number)
            else:
                held.fetch(inside, number, {**scope.coords, self.last: start})
        if span.single is None:
            return held, None
        single = Registers(self.kernel, code, self.last, 1, 1, self.operands.loads)
        if self.pending is not None:
            single.copy(code, self.pending)
            return held, single
        with code.when(span.single < span.end) as inside:
            single.fetch(inside, i64(0), {**scope.coords, self.last: span.single})
        return held, single

    def slot(self, memory: Memory, number: Expr, done: int) -> Expr:
        """A piece of a strip in the stage: threads have theirs side by side."""
        form = self.form
        strip = add(i64((self.slots[id(memory)] + done // 16) * form.vectors), number)
        return address(self.stage, mul(add(mul(strip, i64(form.threads)), self.kernel.thread), i64(4)))

    def take(self, code: Code, registers: Registers, number: Expr, to: Expr) -> None:
        """Strips that wait in the stage, into registers."""
        for memory in registers.memories:
            if id(memory) in self.slots:
                for done, nbytes, place in registers.pieces(memory, to):
                    code.call(f"opsgen_move{nbytes}", place, self.slot(memory, number, done))

    def send(self, span: Span, memories: list[Memory] | None = None) -> None:
        """Has strips on their way to the stage: those of a row, if no others are named."""
        if memories is None:
            memories = list({id(m): m for m in self.held.values()}.values())
        for number, start, inside in self.strips(span.scope.code, span):
            for m in memories:
                offset = inside.bind(m.offset({**span.scope.coords, self.last: start}), "at")
                for done in range(0, self.form.width * bytes_of(m), 16):
                    nbytes, source = min(self.form.width * bytes_of(m), 16), add(offset, i64(done // bytes_of(m)))
                    function = f"opsgen_fetch_any<{nbytes}, {bytes_of(m)}>"
                    inside.call(function, self.slot(m, number, done), address(m.buffer, source))

    def send_single(self, span: Span) -> None:
        """Has a shifted row's single element on its way to the registers where it waits."""
        if self.pending is not None and span.single is not None:
            with span.scope.code.when(span.single < span.end) as inside:
                self.pending.fetch(inside, i64(0), {**span.scope.coords, self.last: span.single})

    def send_first(self) -> None:
        """The block's first row, and what all rows share."""
        code = self.kernel.code
        row = code.bind(truncdiv(self.kernel.block, self.form.cluster), "first_row")
        with code.when(row < self.rows) as inside:
            span = self.span(inside, row, i64(0), self.length)
            self.send(span)
            self.send_single(span)
            if self.form.once:
                self.send(span, self.operands.shared())

    # -- passes --------------------------------------------------------------------------------------------------------
    def run(
        self, span: Span, p: Pass, registers: Registers, single: Registers | None, kept: dict[int, Any]
    ) -> list[tuple[Reduce, Parts]]:
        """One pass over the row; gives the totals of its reductions."""
        scope, code, form = span.scope, span.scope.code, self.form
        count = form.vectors * form.width
        lanes = min(_PARTIAL, count)
        state: dict[int, Any] = {}
        for r in p.reductions:
            state[id(r)] = Search.start(code, r) if is_search(r) else accumulator(code, r, lanes, 0, "unrolled")
        own = {id(k.node) for k in p.keeps}
        for k in p.keeps:
            kept[id(k.node)] = code.local(compute_name(k.node.dtype), count + form.shifted, "kept")

        def element(here: Scope, emit: Emit, index: Expr, state: dict[int, Any] = state) -> None:
            for key in kept.keys() - own:
                here.held[key] = at_own_position(here.coords, partial(tirx.BufferLoad, kept[key], [index]))
            for k in p.keeps:
                here.code.store(kept[id(k.node)], here.value(k.node), index)
            for r in p.reductions:
                value, found = reduced(here.value(r.arg), r), state[id(r)]
                if isinstance(found, Search):
                    found.step(here, r, value)
                else:
                    at = tirx.truncmod(index, i64(lanes)) if lanes > 1 else i64(0)
                    here.code.store(found, combine(r.op, tirx.BufferLoad(found, [at]), value), at)
            values = [(node, here.value(node)) for node in p.stores]
            self.kernel.store_values(here, values, lambda at, place, coords, value: emit(place, value))

        late = {n: m for n, m in self.operands.needed(roots(p)).items() if n not in self.held}
        for number, start, inside in self.strips(code, span):
            others = self.registers(inside, 1, late)
            self.take(inside, others, number, i64(0))
            others.fetch(inside, i64(0), {**scope.coords, self.last: start}, besides=self.slots)
            registers.run(scope.inner(inside, {}), number, start, element, others)
        if single is not None and span.single is not None:
            # A search is one of its own: the position may lie before those of the strips.
            alone = {id(r): Search.start(code, r) if is_search(r) else state[id(r)] for r in p.reductions}
            with code.when(span.single < span.end) as inside:
                at = lambda here, emit, index: element(here, emit, i64(count), alone)  # noqa: E731
                single.run(scope.inner(inside, {}), i64(0), span.single, at)
        else:
            alone = {}
        return [(r, self.team.total(code, r, self.found(code, r, lanes, state, alone))) for r in p.reductions]

    def found(self, code: Code, r: Reduce, lanes: int, state: dict[int, Any], alone: dict[int, Any]) -> Parts:
        """What a thread found."""
        join, found = joining(r), state[id(r)]
        if isinstance(found, Search):
            parts = parts_of(code, r, found)
            return join(code, parts, parts_of(code, r, alone[id(r)])) if alone else parts
        parts = (code.bind(tirx.BufferLoad(found, [i64(0)]), r.op),)
        for i in range(1, lanes):
            parts = join(code, parts, (code.bind(tirx.BufferLoad(found, [i64(i)]), r.op),))
        return parts


def hold(scope: Scope, r: Reduce, parts: Parts) -> None:
    """Has a total at hand in a scope."""
    scope.held[id(r)] = holding(parts[1] if is_search(r) else parts[0])
