"""Contractions on NVIDIA GPUs without tensor cores: any types, any sizes, sums in the compute type.

Tiles of both operands go through shared memory, computed by whatever expressions they have; each thread sums a few rows
times a few columns in registers, and the epilogue runs there. Large problems have larger tiles, memory that is not
aligned a kernel of its own, and few rows theirs (`few_rows`).
"""

from __future__ import annotations

from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.targets.cuda import ARCHS

from . import eight_bits, few_rows, tensor_cores
from .by_size import Make, kernels, tiles
from .conditions import waves
from .core_tiles import LARGE, MEDIUM, SMALL, WIDE, CoreTiles, Form


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for few rows; with large, medium and small tiles, the largest that keep the multiprocessors busy; and for
    operands that cannot be read 16 bytes at a time."""
    problem = Problem(context.group)
    chosen = forms(problem)
    small = chosen["small"]

    def make(part: str, form: Form, vector: bool = True) -> Make:
        return lambda when: CoreTiles(context, problem, part, form, vector, single=vector).build(when)

    by_size: list[tuple[tuple[Comparison, ...], Make]] = []
    for part, form in chosen.items():
        busy = waves(tiles(context, problem, form.rows, form.columns), config["multiprocessors"], config["tenths_idle"])
        by_size.append((() if form is small else (busy,), make(part, form)))
    return kernels(context, config, problem, by_size, make("any", small, vector=False))


def forms(problem: Problem) -> dict[str, Form]:
    """Of tiles, the largest first."""
    if compute_type(problem.node.dtype).name == "float64":
        return {"small": WIDE}
    return {"large": LARGE, "medium": MEDIUM, "small": SMALL}


def _default(group: Group, arch: str) -> Config:
    return {"few_rows": few_rows.MOST, "multiprocessors": ARCHS[arch].sms, "tenths_idle": 2}


SCHEDULE = Schedule(
    name="cuda.contraction",
    target="cuda",
    pattern="contraction",
    region="any contraction that cuda.wgmma, cuda.mma and cuda.dp4a leave",
    knobs={
        "few_rows": (0, 8, 16, 32, 64),
        "multiprocessors": (84, 108, 132, 142, 148),
        "tenths_idle": (0, 1, 2, 4),
    },
    serves=lambda group, arch: (
        not any(served(group, arch) for served in (tensor_cores.by_wgmma, tensor_cores.by_mma, eight_bits.by_dp4a))
    ),
    default=_default,
    build=build,
)
