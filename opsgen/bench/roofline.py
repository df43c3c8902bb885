"""The least time that a call can take, by the figures of its target."""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.targets.cuda import ARCHS

from ..dsl.dtypes import DTYPES
from ..runtime.manifest import Kernel

_MATRIX = ("contraction", "online_chain")  # patterns whose products run on tensor cores


@dataclass(frozen=True)
class Roofline:
    """The rates of one device, by its vendor: flop/s for the types and patterns of a kernel, and bytes a second."""

    chip: str
    flops: float
    bandwidth: float

    def seconds(self, flops: int, moved: int | None) -> float:
        """Of the slower of the two; ``moved`` None: the bytes are not known."""
        return max(flops / self.flops, (moved or 0) / self.bandwidth)


def roofline(kernel: Kernel, capability: int | None) -> Roofline | None:
    """For a GPU's compute capability (10 times the major version, and the minor one). None where nobody stated the
    figures: CPUs, types without one."""
    arch = next((a for a in ARCHS.values() if not a.ptx and 10 * a.capability[0] + a.capability[1] == capability), None)
    kinds = {i.dtype for i in kernel.inputs if DTYPES[i.dtype].kind == "float"}
    if arch is None or not kinds:
        return None
    half = all(DTYPES[k].bits == 16 for k in kinds)
    if any(DTYPES[k].bits not in (16, 32) for k in kinds):
        return None
    matrix = half and any(g.pattern in _MATRIX for g in kernel.groups)
    return Roofline(arch.chip, arch.bf16 if matrix else arch.fp32, arch.bandwidth)
