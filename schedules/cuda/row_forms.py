"""The ways in which a team of threads can hold a row in registers, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from opsgen.analysis.groups import Group, expensive
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.reductions import Pass, plan_passes
from opsgen.schedules.common.schedule import Config
from opsgen.targets.cuda import ARCHS, WARP

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
    into shared memory while this one is worked on. ``once``: what all rows share stays there. ``long``: it is not held
    in registers, but read by the passes that need it.
    """

    threads: int
    vectors: int
    width: int
    cluster: int = 1
    shifted: bool = False
    staged: bool = False
    once: bool = False
    long: bool = False

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
        self.rows = {n: m for n, m in self.loads.items() if set(m.dims) == self.dims}

    def holds(self, form: Form) -> dict[int, Memory]:
        """What is read before the first pass."""
        return self.rows if form.long else self.held

    def needed(self, nodes: list[Tensor]) -> dict[int, Memory]:
        """What can be read in strips for some nodes, by node id."""
        return readable(self.kernel, nodes, self.last, self.dims, self.at_hand)

    def registers(self, width: int, held: dict[int, Memory]) -> int:
        """What a thread holds of a strip."""
        sizes = [bytes_of(m) for m in {id(m): m for m in held.values()}.values()]
        sizes += [compute_type(n.dtype).bytes for n in self.kept]
        return max(sum(-(-width * size // 4) for size in sizes), 1)

    def tight(self, form: Form) -> bool:
        """Whether what a thread holds leaves too few of 64 registers for the rest, as the compiler says."""
        later = {id(m): m for n, m in self.loads.items() if n not in self.holds(form)}.values()
        taken = form.vectors * self.registers(form.width, self.holds(form))
        taken += sum(-(-form.width * bytes_of(m) // 4) for m in later)
        return taken > (32 if form.shifted else 36) or (form.shifted and (form.long or form.threads <= WARP))

    def short(self) -> bool:
        """Whether no element takes a function of many instructions and registers."""
        stack, seen = [n for p in self.passes for n in roots(p)], set[int]()
        while stack:
            n = stack.pop()
            if id(n) in seen or self.kernel.memory(n) is not None:
                continue
            seen.add(id(n))
            form = self.kernel.forms.get(id(n))
            if form is None and expensive(n) and self.last in n.dims:
                return False
            stack.extend(n.children() if form is None else form[:1])
        return True

    def shared(self) -> list[Memory]:
        """What all rows share, of what they read later."""
        others = {id(m): m for n, m in self.loads.items() if n not in self.rows}
        return [m for m in others.values() if m.dims == (self.last,)]


def roots(p: Pass) -> list[Tensor]:
    """What a pass computes for each element."""
    return [*(r.arg for r in p.reductions), *(k.node for k in p.keeps), *p.stores]


def pieces(memory: Memory, width: int) -> int:
    """Moves for a strip."""
    return -(-width * bytes_of(memory) // 16)


_MOST_VECTORS = 4
_THREADS = (8, 32, 64, 128, 160, 192, 256, 320, 384, 512)
_SHIFTED_THREADS = (32, 128, 160, 192, 256, 320, 384, 512)
"""Teams for rows that differ in length by no more than a third: threads without elements only wait."""
_CLUSTERS = ((256, 4), (256, 8), (512, 8), (1024, 8))
_SHIFTED_CLUSTERS = ((256, 2), (256, 4), (256, 8), (512, 8))
"""Threads of a block, and blocks. Several blocks of a multiprocessor work on different rows: one computes while another
waits for the rest of its cluster. (Softmax of 2048 x 65536 bfloat16 had 67 % of a copy's rate with one block of 1024
threads, and has 88 % with four of 256: H200.)"""


def forms(operands: Operands, arch: str, config: Config) -> Iterator[Form]:
    """Ascending capacities; for aligned rows, then for others."""
    width = operands.width
    held = operands.registers(width, operands.held)
    most = _MOST_VECTORS if width > 1 else 16
    vectors = 1
    while 2 * vectors * held <= config["held_registers"] and vectors < most:
        vectors *= 2
    for shifted in (False, True) if width > 1 else (False,):
        for threads in _SHIFTED_THREADS if shifted else _THREADS:
            yield Form(threads, vectors, width, shifted=shifted)
        longest = 512 * vectors * width
        for form in _long(operands, arch, config, shifted):
            if form.capacity > longest:
                longest = form.capacity
                yield form


def _long(operands: Operands, arch: str, config: Config, shifted: bool) -> Iterator[Form]:
    """The forms for long rows: a large block, and clusters of smaller ones."""
    held = operands.registers(operands.width, operands.rows)
    vectors = _MOST_VECTORS
    while vectors > 1 and vectors * held > 64:
        vectors //= 2
    large = 1024 if vectors * held <= 32 and not shifted else 512
    most = vectors
    # Totals may be of what strips lack.
    if vectors == _MOST_VECTORS and 2 * vectors * held <= 32 and operands.places and operands.short():
        most *= 2
    form = Form(large, vectors, operands.width, shifted=shifted, long=True)
    two = _staged(operands, arch, replace(form, threads=512, vectors=most))
    fits = 2 * stage_bytes(operands, two) <= ARCHS[arch].shared_per_sm
    yield two if large > 512 and most > vectors and fits else _staged(operands, arch, form)
    if ARCHS[arch].capability < (9, 0):
        return
    if shifted and len(operands.memories) > 3:  # whose addresses take registers
        most = max(most // 2, 1)
    resident = config["resident_threads"]
    for threads, cluster in _SHIFTED_CLUSTERS if shifted else _CLUSTERS:
        form = Form(threads, most, operands.width, cluster, shifted, long=True)
        found = _staged(operands, arch, form)
        if stage_bytes(operands, found) * resident > ARCHS[arch].shared_per_sm * threads:
            found = _staged(operands, arch, replace(form, vectors=min(most, _MOST_VECTORS)))
        if threads <= resident * 3 // 4 or not operands.tight(found):
            yield found


def _staged(operands: Operands, arch: str, form: Form) -> Form:
    """With a stage, if rows fit into shared memory; beside what they share, if that does."""
    room = ARCHS[arch].shared_per_block - _SCRATCH
    for found in (replace(form, staged=True, once=True), replace(form, staged=True)):
        if not (found.once and form.shifted) and 0 < stage_bytes(operands, found) <= room:
            return found
    return form


def stage_bytes(operands: Operands, form: Form) -> int:
    """Of the shared memory of a block that rows take."""
    held = {id(m): m for m in operands.holds(form).values()}.values()
    count = sum(pieces(m, form.width) for m in (*held, *(operands.shared() if form.once else ())))
    return 16 * count * form.vectors * form.threads if form.staged else 0
