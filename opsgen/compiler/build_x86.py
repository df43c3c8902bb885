"""The shared object of a library for x86: LLVM objects of the kernels, the launcher and the thread shim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsgen.targets.names import Target
from opsgen.targets.x86 import toolchain

from . import launcher, objects
from .cache import Cache, NoCache
from .plan import Plan
from .steps import Built, Steps

_SHIM_EXPORTS = ("opsgen_threads_runtime", "opsgen_cpu_level")


def require() -> None:
    """Raises TargetError E2002 where a tool is missing."""
    toolchain.compiler()


def steps(targets: Sequence[Target]) -> int:
    """How many steps `build` reports."""
    return len(targets) + 3


def build(
    plans: list[Plan],
    functions: Mapping[Target, Mapping[str, Any]],
    folder: Path,
    cache: Cache | NoCache,
    report: Steps,
) -> Built:
    """Compiles the kernels of each target, and links them."""
    from opsgen.targets.x86 import codegen

    found = []
    for target, kernels in functions.items():
        report(f"machine code for {target}")
        path = folder / f"{target.arch}.o"
        codegen.write_object(codegen.build(dict(kernels), target.arch), str(path))
        found.append(path)
    report("launcher")
    source = folder / "launcher.cc"
    source.write_text(launcher.render(plans))
    objects.compile_source(source, folder / "launcher.o", cache)
    report("thread shim")
    shim = Path(__file__).parent.parent / "templates" / "x86" / "threads.cc"
    objects.compile_source(shim, folder / "threads.o", cache)
    symbols = [p.symbol for p in plans] + [launcher.pack_symbol(p, k) for p in plans for k in p.packings]
    exports = toolchain.exports([*symbols, *_SHIM_EXPORTS], folder / "exports.map")
    toolchain.link([*found, folder / "launcher.o", folder / "threads.o"], folder / "library.so", exports)
    report("linked")
    return Built((folder / "library.so").read_bytes(), {"g++": toolchain.version(toolchain.compiler())})
