"""Contractions with few rows on NVIDIA GPUs: which kernel a number of rows gets.

The right operand is read once, whatever the number of rows, and its bytes are what such a contraction costs.
"""

from __future__ import annotations

from dataclasses import replace

from opsgen.analysis import cost
from opsgen.dsl.dtypes import compute_type
from opsgen.lowering.kernel import Launch
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Context

from . import few_rows_mma, few_rows_threads
from .conditions import undecided
from .few_rows_mma import FewRowsMma, Operands
from .few_rows_threads import FewRowsThreads

Form = few_rows_threads.Form | few_rows_mma.Form

MOST = 64
"""Rows of the largest form."""

_THREADS = (
    few_rows_threads.Form(1, columns=4, warps=16, resident=2),
    few_rows_threads.Form(4, columns=4, warps=8, resident=3),
    few_rows_threads.Form(8, columns=4, warps=8, resident=2),
)
_WIDE_THREADS = (
    few_rows_threads.Form(1, columns=4, warps=8, resident=2),
    few_rows_threads.Form(4, columns=2, warps=8, resident=2),
    few_rows_threads.Form(8, columns=2, warps=8, resident=1),
)
_MMA = (
    few_rows_mma.Form(tiles=1),
    few_rows_mma.Form(tiles=2),
    few_rows_mma.Form(tiles=4, chunks=2),
    few_rows_mma.Form(tiles=8, chunks=2, resident=1),
)
"""The last is for what no other kernel on tensor cores takes. H200, bfloat16, 48 rows: 30 µs at 4096×4096 (tiles of
float32 364, wgmma 16), 90 at 14336×4096 (467, 34).
"""
_MMA_OF_SMALL = (
    few_rows_mma.Form(tiles=1),
    few_rows_mma.Form(tiles=2, chunks=2),
    few_rows_mma.Form(tiles=4, warps=4, chunks=2, resident=3),
    few_rows_mma.Form(tiles=8, chunks=1, resident=1),
)
"""Where the right operand's elements have a byte: to make them halves takes registers."""


def _forms(context: Context, problem: Problem, most: int) -> list[Form]:
    """The forms that serve a problem, for ever more rows."""
    found: tuple[Form, ...] = ()
    operands = Operands.of(problem)
    if operands is not None:
        found = _MMA if operands.right.dtype == operands.left.dtype else _MMA_OF_SMALL
        if context.arch == "sm_100a":  # where ptxas (13.0) needs a few registers more than two blocks leave it
            found = tuple(replace(f, resident=1) if f.rows == 32 else f for f in found)
    elif FewRowsThreads.serves(context, problem):
        found = _WIDE_THREADS if compute_type(problem.node.dtype).name == "float64" else _THREADS
        if problem.batch:  # whose positions take registers, too: with three blocks, four rows spill
            found = tuple(replace(f, resident=min(f.resident, 2)) for f in found)
    return [f for f in found if f.rows <= most]


def most(context: Context, problem: Problem, wanted: int) -> int:
    """Up to how many rows there are kernels, if up to ``wanted`` are; 0 where no form serves."""
    return max((f.rows for f in _forms(context, problem, wanted)), default=0)


def build(context: Context, problem: Problem, most: int) -> list[Launch]:
    """Kernels for up to ``most`` rows, each with the numbers of rows that it is for."""
    rows = cost.elements(context.partition.graph, problem.rows)
    operands = Operands.of(problem)
    found: list[Launch] = []
    before = 0
    for form in _forms(context, problem, most):
        when = undecided((rows, "<=", form.rows), *(((rows, ">", before),) if before else ()))
        if when is not None and isinstance(form, few_rows_threads.Form):
            found.append(FewRowsThreads(context, problem, form).build(when))
        elif when is not None and operands is not None and isinstance(form, few_rows_mma.Form):
            found.append(FewRowsMma(context, problem, operands, form).build(when))
        before = form.rows
    return found
