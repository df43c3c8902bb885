"""Scans on NVIDIA GPUs: running sums, products and extremes along a dim, and the maps around them.

Where memory is contiguous along the dim, a short row has a warp and a longer one a block (scan_rows.py). A few long
rows are cut into chunks, whose totals one kernel takes first. Where memory is contiguous along another dim, each lane
has its own column (scan_columns.py). Nothing but the sizes decides who adds what to what.
"""

from __future__ import annotations

from dataclasses import replace

from opsgen.analysis import cost
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.schedules.common.scans import along_columns
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.targets.cuda import WARP

from . import scan_columns
from .conditions import undecided
from .kernels import DeviceKernel
from .scan_rows import Rows


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for rows of every length, each with the lengths that it is for."""
    group, graph = context.group, context.partition.graph
    column = along_columns(DeviceKernel(context, "columns", WARP), group)
    if column is not None:
        return scan_columns.build(context, config, column)
    (over,) = group.over
    length = graph.extent(over)
    rows = cost.elements(graph, tuple(d for d in group.space if d != over))
    threads = config["block_threads"]
    warp = Rows(context, config, "warp", WARP, config["warp_threads"])
    short, few, long = warp.tile * config["warp_tiles"], config["few_rows"], config["long"]
    found: list[Launch] = []

    def attempt(kernel: Rows, totals: bool, choice: str, *when: Comparison) -> None:
        conditions = undecided(*when)
        if conditions is not None:
            launch = kernel.build_totals(conditions) if totals else kernel.build(conditions)
            found.append(replace(launch, choice=choice))

    cut: tuple[Comparison, ...] = ((length, ">", long), (rows, "<=", few))
    attempt(warp, False, "", (length, "<=", short))
    # What is cut is not for the kernel with a block a row, which is for all else.
    attempt(Rows(context, config, "totals", threads, threads, True), True, f"whole{group.index}", *cut)
    attempt(Rows(context, config, "block", threads, threads), False, f"whole{group.index}", (length, ">", short))
    attempt(Rows(context, config, "chunks", threads, threads, True), False, "", *cut)
    return found


# Rows on an H200 (2026-11-30, cold caches, median of 7), beside a copy of the same bytes and torch.cumsum:
# 16384 x 4096 float32 162 us (130, 293), bfloat16 92 us (68, 285); 4096 x 65536 float32 648 us (508, 1305);
# one row of 10^7 float32 63 us (28, 39): its elements are read twice.
SCHEDULE = Schedule(
    name="cuda.scan",
    target="cuda",
    pattern="scan",
    region="any scan",
    knobs={
        "warp_threads": (128, 256),
        "warp_tiles": (1, 2, 4),
        "block_threads": (128, 256, 512),
        "strips": (1, 2, 4),
        "per_sm": (16, 32),
        "few_rows": (32, 64, 128),
        "long": (16384, 32768, 65536),
        "column_warps": (4, 8, 16),
        "column_steps": (8, 16, 32),
        "column_chunks": (16, 64),
    },
    serves=lambda group, arch: True,
    default=lambda group, arch: {
        "warp_threads": 128,
        "warp_tiles": 2,
        "block_threads": 128,
        "strips": 2,
        "per_sm": 32,
        "few_rows": 64,
        "long": 16384,
        "column_warps": 16,
        "column_steps": 8,
        "column_chunks": 16,
    },
    build=build,
)
