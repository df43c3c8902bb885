"""Target names: ``kind/arch``, hardware aliases, and lists of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from opsgen.errors import error

ALIASES: dict[str, str] = {
    "a100": "cuda/sm_80",
    "a800": "cuda/sm_80",
    "a10": "cuda/sm_86",
    "a40": "cuda/sm_86",
    "l4": "cuda/sm_89",
    "l40s": "cuda/sm_89",
    "rtx4090": "cuda/sm_89",
    "h100": "cuda/sm_90a",
    "h200": "cuda/sm_90a",
    "gh200": "cuda/sm_90a",
    "b200": "cuda/sm_100a",
}
"""Hardware names that stand for a target."""


@dataclass(frozen=True)
class Target:
    """What to compile for: a kind of device and an architecture of it. ``str()`` gives its name."""

    kind: str
    arch: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.arch}"


def known() -> dict[str, tuple[str, ...]]:
    """The archs of each kind that this opsgen compiles for."""
    from .cuda import ARCHS as CUDA
    from .x86 import ARCHS as X86

    return {"cuda": tuple(CUDA), "x86": tuple(X86)}


def parse(names: str | Sequence[str]) -> tuple[Target, ...]:
    """The targets that names stand for, in the order given, each once.

    ``"x86"`` is this host's level; ``"x86/avx2,x86/avx512"`` or a list gives several, which must be of one kind.

    Raises:
        TargetError: E2001 unknown; E2004 this host has no level that kernels are made for; E2005 several kinds.
    """
    if isinstance(names, str):
        names = names.split(",")
    listed = {f"{kind}/{arch}" for kind, archs in known().items() for arch in archs}
    found: list[Target] = []
    for name in names:
        full = ALIASES.get(name.strip().lower(), name.strip().lower())
        if full == "x86":
            from .x86 import host_arch

            full = f"x86/{host_arch()}"
        if full not in listed:
            known_names = ", ".join(["x86", *sorted(listed), *sorted(ALIASES)])
            raise error("E2001", found=name, known=known_names, fix=_instead_of(full, listed))
        target = Target(*full.split("/"))
        if target not in found:
            found.append(target)
    kinds = sorted({t.kind for t in found})
    if not found:
        raise error("E2001", found="", known=", ".join(["x86", *sorted(listed)]), fix="Name one of them.")
    if len(kinds) > 1:
        raise error("E2005", found=kinds)
    return tuple(found)


def _instead_of(name: str, listed: set[str]) -> str:
    """The fix for a name that is no target's: an arch without its kind, a kind without its arch, or a near one."""
    whole = [full for full in sorted(listed) if name and name in full.split("/")]
    if len(whole) > 1:
        return f"Name {whole[0]} or another of {name}."
    near = whole or get_close_matches(name, [*listed, *ALIASES], n=1, cutoff=0.6)
    return f"Name {near[0]}." if near else "Name one of them."
