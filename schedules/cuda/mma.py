"""Contractions of half types by mma.sync: the tensor cores of every architecture from sm_80 on.

Operands may be expressions: they are computed on their way to shared memory. On sm_90a wgmma takes the products of
parameters, as far as TMA can read them, and what it leaves comes here.
"""

from __future__ import annotations

from dataclasses import replace

from opsgen.analysis.groups import Group
from opsgen.errors import InternalError
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.schedules.common.operands import Problem
from opsgen.schedules.common.schedule import Config, Context, Schedule
from opsgen.targets.cuda import ARCHS, WARP

from . import tensor_cores
from .by_size import Make, kernels, tiles
from .conditions import waves
from .exact_halves import terms
from .kernels import DeviceKernel
from .mma_kernel import Form, MmaKernel
from .operand_tile import plain_memory

# H200, bfloat16, ratios to cuBLAS (which has wgmma) in interleaved rounds with a cold cache: what is left of the tensor
# cores by mma.sync is two thirds, and 71 % of that are reached at 4096³.
LARGE = Form(256, 128, 4, 2, depth=64, stages=3, resident=1)
"""0.56 at 4096³ and 8192³, 0.53 at 4000×4104×4096, 0.47 at 16384×4096×1024."""
MEDIUM = Form(128, 128, 2, 2, depth=32, stages=4, resident=2)
"""0.52 at 4096³, 0.66 at 2048×1024×512, 0.40 at 1537×1992×520."""
SMALL = Form(64, 64, 2, 2, depth=64, stages=3, resident=4)
"""0.47 at 1000³ (MEDIUM 0.39)."""
STAGED = {
    "large": Form(128, 128, 2, 4, depth=32, stages=3, resident=1),
    "small": Form(64, 64, 2, 2, depth=32, stages=3, resident=2),
}
"""For what comes through registers, and takes some."""
SPLIT_BOTH = Form(64, 64, 2, 4, depth=32, stages=2, resident=1)
"""Where both operands' elements are sums of several halves: they take fragments for each."""
SPLIT_LEFT = {"large": Form(128, 128, 4, 2, depth=32, stages=3, resident=1), "small": SPLIT_BOTH}
SPLIT_RIGHT = {"large": Form(128, 128, 2, 4, depth=32, stages=3, resident=1), "small": SPLIT_BOTH}
_RESERVED = 1024
"""Bytes of shared memory that a block takes beside its own."""


def fit(form: Form, arch: str, counts: tuple[int, int] = (1, 1)) -> Form:
    """The form with as many stages as leave room for its blocks, or with fewer blocks where two stages are too many."""
    stage = (counts[0] * form.rows + counts[1] * form.columns) * form.depth * 2
    chip = ARCHS[arch]
    for resident in range(form.resident, 0, -1):
        stages = min(chip.shared_per_sm // resident - _RESERVED, chip.shared_per_block) // stage
        if stages >= 2:
            return replace(form, stages=min(form.stages, stages), resident=resident)
    raise InternalError(f"two stages of {form} do not fit {arch}")


def build(context: Context, config: Config) -> list[Launch]:
    """Kernels for few rows; with large, medium and small tiles, the largest that keep the multiprocessors busy; and for
    memory that is not aligned to 16 bytes."""
    problem = Problem(context.group)
    chosen, unaligned = forms(context, problem)

    def make(part: str, form: Form, aligned: bool = True) -> Make:
        return lambda when: MmaKernel(context, problem, f"mma_{part}", form, aligned, single=aligned).build(when)

    by_size: list[tuple[tuple[Comparison, ...], Make]] = []
    for part, form in chosen.items():
        busy = waves(tiles(context, problem, form.rows, form.columns), config["multiprocessors"], config["tenths_idle"])
        by_size.append((() if part == "small" else (busy,), make(part, form)))
    return kernels(context, config, problem, by_size, make("unaligned", unaligned, False))


def forms(context: Context, problem: Problem) -> tuple[dict[str, Form], Form]:
    """Of tiles, the largest first; and for memory that is not aligned."""
    kernel = DeviceKernel(context, "trial", WARP)
    pair, half = (problem.left, problem.right), problem.node.dtype.name
    _, counts = terms(pair, half)
    memories = [plain_memory(kernel, factor) for factor in pair]
    if min(counts) > 1:
        found = {"small": SPLIT_BOTH}
    elif max(counts) > 1:
        found = SPLIT_LEFT if counts[0] > 1 else SPLIT_RIGHT
    elif all(m is not None and m.dtype.name == half for m in memories):
        found = {"large": LARGE, "medium": MEDIUM, "small": SMALL}
    else:
        found = STAGED
    unaligned = next(iter(found.values())) if max(counts) > 1 else STAGED["large"]
    return {part: fit(f, context.arch, counts) for part, f in found.items()}, fit(unaligned, context.arch, counts)


def _default(group: Group, arch: str) -> Config:
    return {"few_rows": 32, "multiprocessors": ARCHS[arch].sms, "tenths_idle": 3}


SCHEDULE = Schedule(
    name="cuda.mma",
    target="cuda",
    pattern="contraction",
    region="contractions whose factors and result are of one half type, and that cuda.wgmma leaves",
    knobs={
        "few_rows": (0, 8, 16, 32, 64),
        "multiprocessors": (84, 108, 132, 142, 148),
        "tenths_idle": (0, 1, 2, 3, 4),
    },
    serves=tensor_cores.by_mma,
    default=_default,
    build=build,
)
