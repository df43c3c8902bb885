"""Few rows, too long for a cluster: blocks have parts of a row, and each pass over it is a kernel of its own.

What a pass finds in a part goes to workspace; the kernels after it begin with the total of that. Totals are the same
from run to run: they depend on nothing but the sizes.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.tensor import Reduce
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, constant, i64, mul
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.reductions import neutral
from opsgen.schedules.common.schedule import Config, Context
from opsgen.schedules.common.search import is_search

from .held_rows import HeldRows, Span, hold
from .kernels import strided
from .row_forms import Form, Operands
from .team import Parts, joining

_THREADS = 512
PART = 16384
"""Positions of a part of a row."""


def split(
    context: Context, config: Config, operands: Operands, when: tuple[Comparison, ...], choice: str
) -> list[Launch]:
    """The kernels, the first of which is tried for a row, and the others run after it.

    Args:
        when: rows are longer than two parts, at least, and nothing that is tried before serves.
        choice: of what is tried.
    """
    passes = len(operands.passes) + any(set(n.dims) == set(context.group.space) for n in context.group.stored)
    width = operands.width
    form = Form(_THREADS, PART // (_THREADS * width), width, shifted=width > 1, long=True)
    return [_Pass(context, config, form, number).build(when, "" if number else choice) for number in range(passes)]


class _Pass(HeldRows):
    """The kernel of one pass; of the number after the last pass, that which stores totals."""

    def __init__(self, context: Context, config: Config, form: Form, number: int) -> None:
        super().__init__(context, config, form, f"pass{number}")
        for p in self.operands.passes:
            p.keeps = []
        self.number = number
        self.stores = number == len(self.operands.passes)
        length = cost.elements(context.partition.graph, context.group.over)
        rows = cost.elements(context.partition.graph, context.group.space)
        # At least as many as there are, and none for rows of less than two parts, which have other kernels.
        self.space = {"row": rows, "part": (length // (2 * form.capacity)) * 4}
        self.parts = self.kernel.code.bind(ceildiv(self.length, form.capacity), "parts")

    def build(self, when: tuple[Comparison, ...], choice: str) -> Launch:
        """The kernel for calls that meet ``when``."""
        kernel, form, team = self.kernel, self.form, self.team
        each = i64(1) if self.stores else self.parts
        with team.tasks(mul(self.rows, each)) as (task, body):
            row = task if self.stores else body.bind(tirx.truncdiv(task, self.parts), "row")
            part = i64(0) if self.stores else body.bind(task - row * self.parts, "part")
            begin = body.bind(mul(part, i64(form.capacity)), "begin")
            end = body.bind(tirx.Min(add(begin, i64(form.capacity)), self.length), "end")
            span = self.span(body, row, begin, end)
            if self.stores:
                self.totals(span.scope, row)
                self.store_totals(span.scope, tirx.EQ(team.rank, i64(0)))
            else:
                self.part(span, row, part)
        graph = kernel.graph
        blocks = cost.elements(graph, self.group.space)
        if not self.stores:
            blocks = blocks * ((cost.elements(graph, self.group.over) + (form.capacity - 1)) // form.capacity)
        return self.launch(blocks, when, choice)

    def part(self, span: Span, row: Expr, part: Expr) -> None:
        """A part of a row: what is found goes to workspace."""
        registers, single = self.fetch(span)
        self.totals(span.scope, row)
        found = self.run(span, self.operands.passes[self.number], registers, single, {})
        with span.scope.code.when(tirx.EQ(self.team.rank, i64(0))) as first:
            for r, parts in found:
                for memory, value in zip(self.places(r), parts, strict=True):
                    memory.store(first, {"row": row, "part": part}, value)

    def places(self, r: Reduce) -> list[Memory]:
        """Where the parts of a reduction lie: of a search the value, its position and whether there is one."""
        types = [neutral(r).ty.dtype, *(("int64", "int32") if is_search(r) else ())]
        number = next(i for i, other in enumerate(self.group.reductions) if other is r)
        name = f"group{self.group.index}_parts{number}"
        return [self.kernel.workspace(f"{name}_{i}", self.space, DTYPES[t]) for i, t in enumerate(types)]

    def totals(self, scope: Scope, row: Expr) -> None:
        """What the passes before found in a row."""
        for p in self.operands.passes[: self.number]:
            for r in p.reductions:
                hold(scope, r, self.total(scope.code, r, row))

    def total(self, code: Code, r: Reduce, row: Expr) -> Parts:
        """Of all parts of a row."""
        places = self.places(r)
        start = (neutral(r), i64(0), constant(0, "int32"))
        state = [code.local(m.dtype.name, 1, f"{r.op}_parts") for m in places]
        for buffer, value in zip(state, start):
            code.store(buffer, value, i64(0))
        with strided(code, self.team.rank, self.parts, i64(self.team.size), "part") as (part, body):
            before = tuple(body.bind(tirx.BufferLoad(b, [i64(0)])) for b in state)
            found = tuple(body.bind(m.load({"row": row, "part": part})) for m in places)
            for buffer, value in zip(state, joining(r)(body, before, found), strict=True):
                body.store(buffer, value, i64(0))
        return self.team.total(code, r, tuple(code.bind(tirx.BufferLoad(b, [i64(0)])) for b in state))
