"""The key of a library: a hash of everything that its bytes depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata, resources
from importlib.abc import Traversable
from typing import Any

from opsgen.targets.names import Target
from opsgen.targets.x86 import toolchain as host

from .._version import __version__
from .problem import Problem
from .signature import signature

_SOURCES = (".py", ".j2", ".cc", ".cuh", ".h")


def library_key(
    problems: Sequence[Problem], targets: Sequence[Target], configs: Mapping[str, Mapping[str, int]]
) -> str:
    """Of problems in their order for targets, with knobs of schedules replaced.

    Raises:
        TargetError: E2002, there is no compiler.
    """
    tools = [__version__, package_digest(), *(_version(p) for p in ("apache-tvm", "apache-tvm-ffi"))]
    made = [[p.hash(), p.op.name, signature(p).to_json()] for p in problems]
    chosen = {name: dict(config) for name, config in configs.items()}
    return digest(tools, _compilers(targets[0].kind), list(map(str, targets)), chosen, made)


def _compilers(kind: str) -> list[str]:
    found = [host.identity()]
    if kind == "cuda":
        from opsgen.targets.cuda import toolchain

        found.append(toolchain.compiler().identity())
    return found


def digest(*parts: Any) -> str:
    """A hash of parts, which are JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Of all source files of this package: schedules and templates are part of what a kernel is made of."""
    found = hashlib.sha256()
    for name, file in sorted(_files(resources.files("opsgen"), ""), key=lambda item: item[0]):
        data = file.read_bytes()
        found.update(f"{name} {len(data)}\n".encode())
        found.update(data)
    return found.hexdigest()


def _files(folder: Traversable, prefix: str) -> Iterable[tuple[str, Traversable]]:
    for item in folder.iterdir():
        name = f"{prefix}/{item.name}"
        if item.is_dir():
            if item.name != "__pycache__":
                yield from _files(item, name)
        elif item.name.endswith(_SOURCES):
            yield name, item
