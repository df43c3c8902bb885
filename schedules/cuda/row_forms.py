"""The ways in which a team of threads can hold a row in registers, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.reductions import Pass, plan_passes
from opsgen.schedules.common.schedule import Config
from opsgen.targets.cuda import ARCHS

from . import half_forms
from .kernels import DeviceKernel
from .registers import bytes_of
from .strip import readable, width_for

_SCRATCH = 4096
"""Bytes of shared memory of a block that are not for rows."""


@dataclass(frozen=True)
class Form:
    """``threads`` of each of ``cluster`` blocks have a row, a thread ``vectors`` strips of ``width`` positions.

    ``shifted``: rows begin anywhere in memory; strips begin where it is aligned. ``staged``: the next row is fetched
    into shared memory while this one is worked on. ``once``: what all rows share stays there.
    """

    threads: int
    vectors: int
    width: int
    cluster: int = 1
    shifted: bool = False
    staged: bool = False
    once: bool = False

    @property
    def capacity(self) -> int:
        """The longest row."""
        return self.threads * self.vectors * self.width * self.cluster

    @property
    def name(self) -> str:
        return f"rows_to_{self.capacity}" + ("_shifted" if self.shifted else "")


class Operands:
    """What rows are read from and written to, whatever their form."""

    def __init__(self, kernel: DeviceKernel, group: Group, config: Config) -> None:
        half_forms.use(kernel)
        self.passes = plan_passes(kernel, group)
        for p in self.passes:  # what has a form of few instructions is computed again
            p.keeps = [k for k in p.keeps if id(k.node) not in kernel.forms]
        self.last = group.over[-1]
        self.at_hand = frozenset(id(r) for r in group.reductions)
        self.dims = {*group.space, *group.over}
        self.kernel = kernel
        self.loads = self.needed([n for p in self.passes for n in roots(p)])
        stored = [m for p in self.passes for n in p.stores for m in kernel.destinations(n)]
        self.places = [m for m in stored if m.dims[-1:] == (self.last,)]
        self.memories = list({id(m): m for m in (*self.places, *self.loads.values())}.values())
        self.kept = [k.node for p in self.passes for k in p.keeps]
        self.width = width_for(self.memories)
        early = _MOST_VECTORS * self.registers(self.width, self.loads) <= config["held_registers"]
        self.held = {n: m for n, m in self.loads.items() if early or set(m.dims) == self.dims}
        """Read before the first pass; the others, which several rows share, by the passes that need them."""

    def needed(self, nodes: list[Tensor]) -> dict[int, Memory]:
        """What can be read in strips for some nodes, by node id."""
        return readable(self.kernel, nodes, self.last, self.dims, self.at_hand)

    def registers(self, width: int, held: dict[int, Memory]) -> int:
        """What a thread holds of a strip."""
        sizes = [bytes_of(m) for m in {id(m): m for m in held.values()}.values()]
        sizes += [compute_type(n.dtype).bytes for n in self.kept]
        return max(sum(-(-width * size // 4) for size in sizes), 1)

    def shared(self) -> list[Memory]:
        """What all rows share, of what they read later."""
        others = {id(m): m for n, m in self.loads.items() if n not in self.held}
        return [m for m in others.values() if m.dims == (self.last,)]


def roots(p: Pass) -> list[Tensor]:
    """What a pass computes for each element."""
    return [*(r.arg for r in p.reductions), *(k.node for k in p.keeps), *p.stores]


def pieces(memory: Memory, width: int) -> int:
    """Moves for a strip."""
    return -(-width * bytes_of(memory) // 16)


_MOST_VECTORS = 4


def forms(operands: Operands, arch: str, config: Config) -> Iterator[Form]:
    """Ascending capacities; for aligned rows, then for others."""
    width = operands.width
    held = operands.registers(width, operands.held)
    most = _MOST_VECTORS if width > 1 else 16
    vectors = 1
    while 2 * vectors * held <= config["held_registers"] and vectors < most:
        vectors *= 2
    for shifted in (False, True) if width > 1 else (False,):
        for threads in (32, 128, 256, 512) if shifted else (8, 32, 64, 128, 256, 512):
            yield Form(threads, vectors, width, shifted=shifted)
        long = _staged(operands, arch, config, shifted)
        clusters = (1,) if ARCHS[arch].capability < (9, 0) else (1, 2, 8) if shifted else (1, 2, 4, 8)
        for cluster in clusters:
            if long.capacity * cluster > 512 * vectors * width:
                yield replace(long, cluster=cluster)


def _staged(operands: Operands, arch: str, config: Config, shifted: bool) -> Form:
    """The form for long rows: the largest block whose rows fit into shared memory beside what they share."""
    width = operands.width
    held = operands.registers(width, operands.held)
    vectors = config["staged_vectors"]
    while vectors > 1 and vectors * held > 64:
        vectors //= 2
    threads = config["staged_threads"] if vectors * held <= 32 and not shifted else 512  # of 64 and 128 registers
    form = Form(threads, vectors, width, shifted=shifted, staged=True)
    room = ARCHS[arch].shared_per_block - _SCRATCH
    if not shifted and 0 < stage_bytes(operands, replace(form, once=True)) <= room:
        return replace(form, once=True)
    return form if 0 < stage_bytes(operands, form) <= room else replace(form, staged=False)


def stage_bytes(operands: Operands, form: Form) -> int:
    """Of the shared memory of a block that rows take."""
    held = {id(m): m for m in operands.held.values()}.values()
    count = sum(pieces(m, form.width) for m in (*held, *(operands.shared() if form.once else ())))
    return 16 * count * form.vectors * form.threads if form.staged else 0
