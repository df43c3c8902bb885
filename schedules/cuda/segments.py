"""Where the rows of each group of a grouped contraction lie, and the tiles of rows that they fall into.

A kernel of one block writes a table before the product runs: the first row of each group, and the first of its tiles.
The host does not read the groups, so what they hold is not known: the table rises whatever it is, and stays in the
rows that there are.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from opsgen.analysis.segments import Segments
from opsgen.dsl import dtypes
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Kernel, Launch
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.schedule import Context
from opsgen.schedules.common.segments import first_row

from .kernels import DeviceKernel, strided, synchronize

SIDES = (64, 128, 256)
"""Rows of a tile, or of those of two blocks, for which there are tables."""
_BITS = 31
"""Of a number of groups: the table is 16 bytes a group and a side."""


def table(kernel: Kernel, segments: Segments) -> Memory:
    """int64, [1 + len(SIDES), groups + 1]: first rows, then for each side the first tiles. Behind the last group come
    the number of rows, and of tiles.
    """
    dims = {"line": Extent.const(1 + len(SIDES)), "group": kernel.graph.extent(segments.groups) + 1}
    return kernel.workspace(f"segments{kernel.group.index}", dims, dtypes.int64)


def load(memory: Memory, line: int, group: Expr) -> Any:
    """An entry of the table."""
    return memory.load({"line": i64(line), "group": group})


def tiles_line(side: int) -> int:
    """The line of the first tiles of ``side`` rows."""
    return 1 + SIDES.index(side)


def build_table(context: Context, segments: Segments) -> Launch:
    """The kernel that writes the table: a search for each group, then the running number of tiles."""
    kernel = DeviceKernel(context, "segments", 256)
    code = kernel.code
    memory = table(kernel, segments)
    count = code.bind(kernel.extent(segments.groups) + i64(1), "count")
    with strided(code, kernel.thread, count, i64(kernel.threads), "group") as (group, body):
        first = first_row(Scope(kernel, body, {}), segments, group)
        memory.store(body, {"line": i64(0), "group": group}, first)
    synchronize(code)
    with code.when(tirx.EQ(kernel.thread, i64(0))) as alone:
        _number_tiles(alone, memory, count)
    return kernel.launch_on(Extent.const(1))


def _number_tiles(code: Code, memory: Memory, count: Expr) -> None:
    before = code.local("int64", 1 + len(SIDES), "before")  # the row and the tiles that the group at hand begins with
    for i in range(1 + len(SIDES)):
        code.store(before, i64(0), i64(i))
        memory.store(code, {"line": i64(i), "group": i64(0)}, i64(0))
    with strided(code, i64(1), count, i64(1), "group") as (group, body):
        old = body.bind(tirx.BufferLoad(before, [i64(0)]), "old")
        row = body.bind(tirx.Max(load(memory, 0, group), old), "row")
        found = [row]
        for i, side in enumerate(SIDES, 1):
            found.append(body.bind(tirx.BufferLoad(before, [i64(i)]) + ceildiv(row - old, side), "tile"))
        for i, value in enumerate(found):
            memory.store(body, {"line": i64(i), "group": group}, value)
            body.store(before, value, i64(i))


def group_of_tile(code: Code, memory: Memory, side: int, tile: Expr, groups: Expr) -> Expr:
    """The group that a tile of rows belongs to: the last whose first tile is not behind it."""
    found = code.local("int64", 1, "found")
    code.store(found, i64(0), i64(0))
    with code.loop(_BITS, "bit") as (bit, body):
        step = tirx.shift_left(i64(1), i64(_BITS - 1) - bit)
        wanted = body.bind(add(tirx.BufferLoad(found, [i64(0)]), step), "wanted")
        with (
            body.when(wanted < groups) as possible,
            possible.when(load(memory, tiles_line(side), wanted) <= tile) as yes,
        ):
            yes.store(found, wanted, i64(0))
    return code.bind(tirx.BufferLoad(found, [i64(0)]), "group")
