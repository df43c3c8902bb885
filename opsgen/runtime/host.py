"""What this machine's CPU can run.

Environment: ``OPSGEN_CPU_LEVEL`` (``baseline``, ``avx2`` or ``avx512``) lowers the level, for tests and comparisons. It
never raises it, and is read when a library is loaded.
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from typing import Final

from opsgen.errors import error

_NEEDS: Final[dict[str, frozenset[str]]] = {  # ascending; each level includes those before it
    "baseline": frozenset(),
    "avx2": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),  # x86-64-v3
    "avx512": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),  # x86-64-v4
}
X86_LEVELS: Final = tuple(_NEEDS)
"""The arch names of kind x86, ascending."""

X86_COMPILED: Final = X86_LEVELS[1:]
"""Those that there are kernels for; ``baseline`` is a CPU that has none of them."""

VARIABLE: Final = "OPSGEN_CPU_LEVEL"


def host_levels() -> tuple[str, ...]:
    """The x86 levels that this CPU runs, ascending; empty on another kind of CPU.

    Raises:
        TargetError: E2006, OPSGEN_CPU_LEVEL names no level.
    """
    levels = _levels(_cpu_flags()) if platform.machine().lower() in ("x86_64", "amd64") else ()
    limit = os.environ.get(VARIABLE)
    if not limit:
        return levels
    if limit not in X86_LEVELS:
        raise error("E2006", variable=VARIABLE, found=limit, known=" or ".join(X86_LEVELS))
    return levels[: X86_LEVELS.index(limit) + 1]


def _levels(flags: frozenset[str]) -> tuple[str, ...]:
    """The levels whose flags, and those of every lower level, are all in ``flags``."""
    found: list[str] = []
    for level, needs in _NEEDS.items():
        if not needs <= flags:
            break
        found.append(level)
    return tuple(found)


@lru_cache(maxsize=1)
def _cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """The flags of the first CPU; none where the kernel does not tell."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()
