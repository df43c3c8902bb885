"""Row reductions on NVIDIA GPUs: reductions over the same dims and the maps between them, a row a team of threads.

Rows over one dim are held in registers, by kernels for rows of several lengths and alignments, of which a call's dims
and addresses choose one (held_rows.py). Longer rows, and rows over several dims, are read once for each pass: few by
many blocks each (split_rows.py), others by one (long_rows.py), and so are rows of very many passes. Where operands are
contiguous along a result dim instead, it is columns that are reduced (columns.py).
"""

from __future__ import annotations

from opsgen.analysis import cost
from opsgen.lowering.kernel import Launch
from opsgen.schedules.common.reductions import plan_passes
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.schedules.common.search import searches
from opsgen.targets.cuda import WARP

from .columns import Columns, along_columns
from .conditions import rest_of, undecided
from .held_rows import HeldRows
from .kernels import DeviceKernel
from .long_rows import LongRows
from .row_forms import Operands, forms
from .split_rows import PART, split

_MOST_PASSES = 12
"""Kernels that hold a row unroll every pass, and those of a split row are one for each pass, with all that the passes
before it found: of the 65 passes of a search over bits, nvcc took more than a quarter of an hour."""


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for rows of every length, each with the lengths that it is for."""
    if not searches(context.group):
        column = along_columns(DeviceKernel(context, "columns", WARP), context.group)
        if column is not None:
            return [Columns(context, config, column).build()]
    choice = f"group{context.group.index}"
    found = _held(context, config, choice) if len(context.group.over) == 1 else []
    if not found or found[-1].when or found[-1].aligned:
        found += _long(context, config, choice)
    return found


def _held(context: Context, config: Config, choice: str) -> list[Launch]:
    """Kernels for rows that fit into registers, in the order in which they are tried; and for few that do not."""
    graph, group = context.partition.graph, context.group
    if len(plan_passes(DeviceKernel(context, "trial", WARP), group)) > _MOST_PASSES:
        return []
    length, rows = (cost.elements(graph, dims) for dims in (group.over, group.space))
    operands = Operands(DeviceKernel(context, "trial", WARP), group, config)
    found: list[Launch] = []
    longest = 2 * PART
    done: set[bool] = set()  # where no other form is as near to the length
    for form in forms(operands, context.arch, config):
        longest = max(longest, form.capacity)
        whole = () if form.width == 1 or form.shifted else ((rest_of(length, form.width), "<=", 0),)
        conditions = undecided(*whole, (length, "<=", form.capacity))
        if conditions is not None and form.shifted not in done:
            found.append(HeldRows(context, config, form).build(conditions, choice))
            if length.value is not None:
                done.add(form.shifted)
    few = undecided((length, ">", longest), (rows, "<=", config["few_rows"]))
    return found if few is None else [*found, *split(context, config, operands, few, choice)]


def _long(context: Context, config: Config, choice: str) -> list[Launch]:
    """Kernels for rows that are read once for each pass."""
    length = cost.elements(context.partition.graph, context.group.over)
    found: list[Launch] = []
    size = config["long_threads"]
    if len(context.group.over) > 1:
        conditions = undecided((length, "<=", config["warp_length"]))
        if conditions is not None:
            found.append(LongRows(context, config, "warp", WARP, config["warp_threads"]).build(conditions, choice))
        if conditions == ():
            return found
    return [*found, LongRows(context, config, "long", size, size).build((), choice)]


SCHEDULE = Schedule(
    name="cuda.row_reduction",
    target="cuda",
    pattern="row_reduction",
    region="any row reduction",
    knobs={
        "held_registers": (32, 64),
        "resident_threads": (768, 1024),
        "few_rows": (256, 512, 1024),
        "warp_length": (512, 1024, 2048),
        "warp_threads": (128, 256),
        "long_threads": (512, 1024),
        "column_threads": (256, 512),
        "per_sm": (16, 32),
    },
    serves=lambda group, arch: True,
    default=lambda group, arch: {
        "held_registers": 32,
        "resident_threads": 1024,
        "few_rows": 512,
        "warp_length": 1024,
        "warp_threads": 128,
        "long_threads": 512,
        "column_threads": 256,
        "per_sm": 32,
    },
    build=build,
)
