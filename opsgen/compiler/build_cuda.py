"""The shared object of a library for NVIDIA GPUs: a launcher with the cubins, or PTX, of all archs inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsgen.targets.cuda import ARCHS, Arch, toolchain
from opsgen.targets.names import Target
from opsgen.targets.x86 import toolchain as host

from . import launcher, objects
from .cache import Cache, NoCache
from .key import digest
from .plan import Plan
from .steps import Built, Steps

_EXPORTS = ("opsgen_cuda_capability",)


def require() -> None:
    """Raises TargetError E2002 where a tool is missing."""
    host.compiler()
    toolchain.compiler()


def steps(targets: Sequence[Target]) -> int:
    """How many steps `build` reports."""
    return len(targets) + 2


def build(
    plans: list[Plan],
    functions: Mapping[Target, Mapping[str, Any]],
    folder: Path,
    cache: Cache | NoCache,
    report: Steps,
) -> Built:
    """Compiles the kernels of each target to cubins, and the launcher around them."""
    from opsgen.targets.cuda import codegen

    using = toolchain.compiler()
    cubins: list[Path] = []
    kernels: list[dict[str, Any]] = []
    for target, found in functions.items():
        report(f"cubins for {target}")
        units = codegen.units(codegen.sources(found, target.arch))
        arch = ARCHS[target.arch]

        def machine_code(source: str, arch: Arch = arch) -> bytes:
            key = digest(source, arch.name, using.identity())
            return cache.fetch("unit", arch.name, key, lambda: toolchain.compile_source(source, arch, using)[0])

        def told(count: int, target: Target = target, total: int = len(units)) -> None:
            report(f"cubins for {target}: {count} of {total}", again=True)

        images = codegen.each(machine_code, [source for _, source in units], told)
        for (names, _), image in zip(units, images, strict=True):
            path = folder / f"{target.arch}-{len(cubins)}.cubin"
            path.write_bytes(image)
            kernels += [{"name": name, "cubin": len(cubins)} for name in names]
            cubins.append(path)
    report("launcher")
    source = folder / "launcher.cc"
    ptx = any(ARCHS[target.arch].ptx for target in functions)
    values = {"cubins": list(map(str, cubins)), "kernels": kernels, "driver_wanted": using.driver_number(ptx)}
    source.write_text(launcher.render(plans, **values))
    objects.compile_source(source, folder / "launcher.o", cache)
    exports = host.exports([*(p.symbol for p in plans), *_EXPORTS], folder / "exports.map")
    host.link([folder / "launcher.o"], folder / "library.so", exports)
    report("linked")
    tools = {"g++": host.version(host.compiler()), using.name: f"{using.version[0]}.{using.version[1]}"}
    return Built((folder / "library.so").read_bytes(), tools, "{}.{}".format(*using.driver(ptx)))
