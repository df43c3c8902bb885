"""x86-64 CPUs by instruction set level: what LLVM is told, and what this host has."""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.errors import error
from opsgen.runtime.host import host_levels


@dataclass(frozen=True)
class Arch:
    """``mcpu`` and ``mattr`` for LLVM; ``lanes``: float32 elements of a vector register; ``registers`` of them."""

    name: str
    mcpu: str
    mattr: tuple[str, ...]
    lanes: int
    registers: int


ARCHS: dict[str, Arch] = {
    "avx2": Arch("avx2", "x86-64-v3", ("+prfchw",), 8, 16),
    # LLVM prefers 256-bit vectors where it vectorises on its own; kernels here are written for 512.
    "avx512": Arch("avx512", "x86-64-v4", ("-prefer-256-bit", "+prfchw"), 16, 32),
}


def host_arch() -> str:
    """The highest level that this CPU has kernels for.

    Raises:
        TargetError: E2004, it has none.
    """
    levels = [level for level in host_levels() if level in ARCHS]
    if not levels:
        raise error(
            "E2004",
            what="CPU",
            found=" ".join(host_levels()) or "no x86-64",
            target="x86",
            wanted="AVX2 and FMA at least",
            fix="Name the target to compile for another machine: --target x86/avx2.",
        )
    return levels[-1]
