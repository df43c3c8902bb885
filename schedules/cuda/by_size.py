"""The kernels of a contraction, each with the sizes and the memory that it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from opsgen.analysis import cost
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Config, Context

from . import few_rows
from .conditions import undecided

Make = Callable[[tuple[Comparison, ...]], Launch | None]
"""Builds a kernel for calls that meet conditions; None where there are no such calls."""


def kernels(
    context: Context,
    config: Config,
    problem: Problem,
    by_size: Sequence[tuple[tuple[Comparison, ...], Make]],
    any_memory: Make,
) -> list[Launch]:
    """Of which a call runs the first that takes it.

    Those for few rows; those ``by_size`` for what is aligned; and one for ``any_memory``, where others leave something.
    """
    rows = cost.elements(context.partition.graph, problem.rows)
    limit = few_rows.most(context, problem, config["few_rows"])
    few: tuple[Comparison, ...] = ((rows, ">", limit),) if limit else ()
    found = few_rows.build(context, problem, limit)
    always = undecided(*few)
    if always is not None:
        made = [make(when) for own, make in by_size if (when := undecided(*few, *own)) is not None]
        found += [launch for launch in made if launch is not None]
        if not any(launch.when == always and not launch.aligned for launch in found):
            launch = any_memory(always)
            assert launch is not None, "it takes everything"
            found.append(launch)
    choice = f"group{context.group.index}"
    return [replace(launch, choice=choice) for launch in found]


def tiles(context: Context, problem: Problem, rows: int, columns: int) -> Extent:
    """How many tiles of so many rows and columns the results have."""
    graph = context.partition.graph
    down, across = (
        (cost.elements(graph, dims) + (side - 1)) // side
        for dims, side in ((problem.rows, rows), (problem.columns, columns))
    )
    return cost.elements(graph, problem.batch) * down * across
