"""C++ sources to object files, through the compile cache."""

from __future__ import annotations

from pathlib import Path

from opsgen.targets.x86 import toolchain

from .cache import Cache, NoCache
from .key import digest


def compile_source(source: Path, output: Path, cache: Cache | NoCache) -> None:
    """A C++ file to an object.

    Raises:
        TargetError, CompileError: see `targets.x86.toolchain`.
    """

    def make() -> bytes:
        toolchain.compile_source(source, output)
        return output.read_bytes()

    key = digest(source.read_text(encoding="utf-8"), toolchain.identity())
    output.write_bytes(cache.fetch("unit", source.name, key, make))
