"""The least time that a call can take: by its vendor's figures on a GPU, by what was measured on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.targets.cuda import ARCHS

from ..dsl.dtypes import DTYPES
from ..runtime.manifest import Kernel
from .peak import Peaks

_MATRIX = ("contraction", "online_chain")  # patterns whose products run on tensor cores


@dataclass(frozen=True)
class Roofline:
    """The rates of one device: flop/s for the types and patterns of a kernel, and bytes a second. ``source``: whose
    figures they are."""

    source: str
    flops: float
    bandwidth: float

    def seconds(self, flops: int, moved: int | None) -> float:
        """Of the slower of the two; ``moved`` None: the bytes are not known."""
        return max(flops / self.flops, (moved or 0) / self.bandwidth)


def roofline(
    kernel: Kernel, capability: int | None, measured: Peaks | None = None, moved: int | None = None
) -> Roofline | None:
    """For a GPU's compute capability (10 times the major version, and the minor one), or a CPU that was measured, whose
    bandwidth is that of the cache that holds ``moved`` bytes. None where there are no figures: float64 on GPUs,
    products of integers on CPUs."""
    if capability is None:
        return None if measured is None else _of_cpu(kernel, measured, moved or 0)
    arch = next((a for a in ARCHS.values() if not a.ptx and 10 * a.capability[0] + a.capability[1] == capability), None)
    if arch is None:
        return None
    bits = _operand_bits(kernel)
    rates = {8: arch.eight, 16: arch.bf16, 32: arch.fp32}
    return Roofline(f"{arch.chip}, by its vendor", rates[bits], arch.bandwidth) if bits in rates else None


def _of_cpu(kernel: Kernel, measured: Peaks, moved: int) -> Roofline | None:
    """All that is no float64 is computed in float32 there."""
    bits = _operand_bits(kernel)
    if bits == 8 and not any(DTYPES[i.dtype].kind == "float" for i in kernel.inputs if len(i.dims) > 1):
        return None
    flops = measured.flops / 2 if bits == 64 else measured.flops
    source = f"{measured.level} with {measured.threads} thread{'s' * (measured.threads != 1)}, as measured"
    return Roofline(source, flops, measured.bandwidth(moved))


def _operand_bits(kernel: Kernel) -> int:
    """The width of what a kernel's products are of, by which its rate goes; 32 where it has none: half types, and
    integers, compute in float32 then."""
    matrix = any(g.pattern in _MATRIX for g in kernel.groups)
    kinds = [DTYPES[i.dtype] for i in kernel.inputs if len(i.dims) > 1]
    floating = [k.bits for k in kinds if k.kind == "float"]
    if 64 in floating:
        return 64
    if not matrix:
        return 32
    return max(floating or [k.bits for k in kinds if k.kind in ("int", "uint")] or [32])
