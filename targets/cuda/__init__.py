"""NVIDIA GPUs by architecture: what kernels are compiled for, and what a usual chip of each has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """One architecture, and the chip that it is best known by.

    Attributes:
        name: as nvcc has it. "sm_": machine code; one that ends in "a" runs on that very compute capability alone,
            others on higher minor ones too. "compute_": PTX, which the driver translates for any device from that
            capability on when a kernel is first launched there.
        capability: compute capability, major and minor.
        chip: the one that the figures below are of.
        sms: multiprocessors.
        shared_per_block: bytes of shared memory that a block can have, when it asks for them.
        shared_per_sm: bytes of a multiprocessor.
        registers: of 32 bits, of a multiprocessor.
        threads_per_sm: that can be resident.
        bandwidth: of device memory, bytes a second.
        fp32: flop/s without tensor cores, an FMA counted as two.
        bf16: flop/s of the tensor cores, without sparsity.
        eight: operations a second of the tensor cores on types of 8 bits, those of float8 where it is there; as above.

    The last figures are the vendor's; what is reached is less.
    """

    name: str
    capability: tuple[int, int]
    chip: str
    sms: int
    shared_per_block: int
    shared_per_sm: int
    registers: int
    threads_per_sm: int
    bandwidth: float
    fp32: float
    bf16: float
    eight: float

    @property
    def number(self) -> str:
        """What follows ``sm_`` or ``compute_``."""
        return self.name.partition("_")[2]

    @property
    def ptx(self) -> bool:
        """Whether its kernels are PTX rather than machine code."""
        return self.name.startswith("compute_")


_KB = 1024
_A100 = ("A100 SXM 80GB", 108, 163 * _KB, 164 * _KB, 65536, 2048, 2.04e12, 19.5e12, 312e12, 624e12)
_H200 = ("H200 SXM", 132, 227 * _KB, 228 * _KB, 65536, 2048, 4.8e12, 67e12, 989e12, 1979e12)

# The CUDA C++ programming guide (technical specifications by compute capability) and the chips' data sheets.
ARCHS: dict[str, Arch] = {
    a.name: a
    for a in (
        Arch("compute_80", (8, 0), *_A100),
        Arch("compute_90", (9, 0), *_H200),
        Arch("sm_80", (8, 0), *_A100),
        Arch("sm_86", (8, 6), "A40", 84, 99 * _KB, 100 * _KB, 65536, 1536, 0.70e12, 37.4e12, 149.7e12, 299.3e12),
        Arch("sm_89", (8, 9), "L40S", 142, 99 * _KB, 100 * _KB, 65536, 1536, 0.86e12, 91.6e12, 362e12, 733e12),
        Arch("sm_90a", (9, 0), *_H200),
        Arch("sm_100a", (10, 0), "B200", 148, 227 * _KB, 228 * _KB, 65536, 2048, 8.0e12, 80e12, 2250e12, 4500e12),
    )
}
"""Ascending: of those that run on a device, the last is the best. PTX has the limits of its first chip."""

WARP = 32
"""Threads of a warp, on all of them."""
