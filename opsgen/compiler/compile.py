"""`opsgen.compile`: ops to a loaded library."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opsgen.targets.names import Target, parse

from ..dsl import names
from ..dsl.dtypes import DType
from ..dsl.op import Op
from ..errors import InternalError, error
from ..runtime import Library, load
from ..runtime.library_file import write, write_bytes
from .cache import Cache, NoCache, open_cache
from .key import library_key
from .precision import Precision
from .problem import Variant, enumerate_problems

Configs = Mapping[str, Mapping[str, int]]
"""Knobs to replace, by schedule."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many steps are done, and how many there are."""


def compile(
    ops: Iterable[Op | Variant] | Op | Variant,
    target: str | Sequence[str] = "x86",
    dtypes: Sequence[str | DType | Mapping[str, str]] = ("float32",),
    dims: Mapping[str, int] | None = None,
    *,
    output: str | Path | None = None,
    progress: Progress | None = None,
    cache: bool = True,
    float32_products: str = "float32",
    float8_sums: str = "float32",
) -> Library:
    """Compiles ops into one library file and loads it.

    Args:
        ops: ops, or `opsgen.variant` of them. An op is compiled for every combination of its optional tensors and
            attributes.
        target: ``"x86"`` (this host), ``"x86/avx2"``, ``"x86/avx512"``, ``"cuda/sm_80"``, ``"cuda/sm_90a"``, ``"h100"``
            and so on, or several of one kind.
        dtypes: the floating types to compile for; an entry may be a mapping from parameter names to types, with
            ``"*"`` for the floating
            type of the rest: ``{"*": "float16", "ids": "int32"}``.
        dims: dims with a fixed extent; calls with another one are refused. Others are dynamic.
        output: where to write the library file. Without it, a temporary file is used; ``lib.save(path)`` keeps it.
        progress: told of each step.
        cache: whether what was compiled before comes from the compile cache (docs/cache.md), where new work
            is kept.
        float32_products: ``"tf32"`` allows tensor cores to multiply float32 operands with 10 bits of mantissa.
        float8_sums: ``"fast"`` allows tensor cores to sum products of float8 with fewer bits than float32 has.

    Returns:
        The loaded library; its kernels for archs that this host lacks are in the file.

    Raises:
        TargetError: E2001 unknown target; E2002, E2003 a tool is missing.
        CompileError: E3001-E3009, E3014.
        CallError: E4014, the library was compiled for another machine only and cannot be loaded here; use `build` for
            that.
    """
    allowed = Precision(float32_products, float8_sums)
    if output is not None:
        build(ops, Path(output), target, dtypes, dims, progress=progress, cache=cache, allowed=allowed)
        return load(output)
    folder = _temporary_folder()
    atexit.register(_remove, folder, os.getpid())
    path = folder / "library.so"
    build(ops, path, target, dtypes, dims, progress=progress, cache=cache, allowed=allowed)
    return load(path)


def _temporary_folder() -> Path:
    """A new folder for temporary files.

    Raises:
        CompileError: E3006, there is no folder where one can be made.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="opsgen-"))
    except OSError as problem:
        raise error("E3006", path=f"a temporary folder (TMPDIR={tempfile.gettempdir()})", found=problem) from None


def _remove(folder: Path, process: int) -> None:
    """At exit; not at that of a forked child, whose parent still uses the folder."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def build(
    ops: Iterable[Op | Variant] | Op | Variant,
    output: Path,
    target: str | Sequence[str] = "x86",
    dtypes: Sequence[str | DType | Mapping[str, str]] = ("float32",),
    dims: Mapping[str, int] | None = None,
    *,
    configs: Configs | None = None,
    progress: Progress | None = None,
    cache: bool = True,
    allowed: Precision | None = None,
) -> None:
    """Like `compile`, without loading: the target need not be this machine.

    ``configs`` replaces knobs of schedules' default configurations: ``{"x86.contraction": {"rows": 6}}``.
    """
    targets = parse(target)
    items = list(ops) if isinstance(ops, Iterable) and not isinstance(ops, (str, bytes)) else [ops]
    for item in items:
        if not isinstance(item, (Op, Variant)):
            raise error(
                "E3009", found=f"{item!r} is no op", fix="Pass functions decorated with @og.op, or og.variant(op, ...)."
            )
    _check_names(items)
    if isinstance(dtypes, (str, DType)):
        dtypes = [dtypes]
    problems = enumerate_problems(items, dtypes, dims or {}, allowed)
    key = library_key(problems, targets, configs or {})
    if not os.path.isdir(output.parent):  # Path.is_dir() raises for names that are too long
        raise error("E3006", path=output, found=f"the folder {output.parent} does not exist")
    if not os.access(output.parent, os.W_OK):  # said before the work and not after it; writing checks again
        raise error("E3006", path=output, found=f"the folder {output.parent} is not writable")
    told = progress or (lambda what, done, total: None)
    kept = open_cache(cache)

    def make() -> bytes:
        _require_compiler(targets[0].kind)
        folder = _temporary_folder()
        try:
            elf, manifest = _build(problems, targets, folder, configs or {}, kept, told)
            write(folder / "finished.so", elf, manifest)
            return (folder / "finished.so").read_bytes()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    title = f"{', '.join(dict.fromkeys(p.op.name for p in problems))} for {', '.join(map(str, targets))}"
    write_bytes(output, kept.fetch("library", title, key, make))


def _check_names(items: Sequence[Op | Variant]) -> None:
    """Two different ops of one name cannot be told apart in a library, and it hides names that start with _: E3009."""
    seen: dict[str, Op] = {}
    for op in (item.op if isinstance(item, Variant) else item for item in items):
        if not names.public(op.name):
            raise error(
                "E3009",
                found=f"{op.name!r} starts with _, so it is for other ops to call",
                fix="Give it a public name: @og.op(name=...).",
            )
        first = seen.setdefault(op.name, op)
        if first is not op:
            places = " and ".join(f"{o.function.__module__}.{o.function.__qualname__}" for o in (first, op))
            raise error(
                "E3009", found=f"two ops are named {op.name!r}: {places}", fix="Give one a name: @og.op(name='other')."
            )


def _builder(kind: str) -> Any:
    """The module that builds libraries of a kind."""
    if kind == "x86":
        from . import build_x86

        return build_x86
    if kind == "cuda":
        from . import build_cuda

        return build_cuda
    raise InternalError(f"nothing builds libraries for {kind}")


def _require_compiler(kind: str) -> None:
    """TVM and the target's tools must be there before any work is done."""
    try:
        import tvm  # noqa: F401
    except ImportError as missing:
        raise error("E2003", package="apache-tvm", found=missing, fix="opsgen[compile]") from None
    _builder(kind).require()


def _build(
    problems: list[Any],
    targets: tuple[Target, ...],
    folder: Path,
    configs: Configs,
    cache: Cache | NoCache,
    progress: Progress,
) -> tuple[bytes, Any]:
    import tvm
    import tvm_ffi

    from . import describe, launcher
    from .plan import make_plans

    builder = _builder(targets[0].kind)
    total = len(problems) * len(targets) + builder.steps(targets)
    done = 0

    def report(what: str, again: bool = False) -> None:
        nonlocal done
        done += not again
        progress(what, done, total)

    plans: list[Any] = []
    functions: dict[Target, dict[str, Any]] = {target: {} for target in targets}
    seen: set[str] = set()
    for target in targets:
        for problem in problems:
            for plan in make_plans(problem, target, configs):
                if plan.symbol in seen:
                    continue
                seen.add(plan.symbol)
                plans.append(plan)
                functions[target].update({launch.name: launch.function for launch in plan.launches})
                for packing in plan.packings:
                    symbol = launcher.pack_symbol(plan, packing)
                    if symbol not in seen:
                        functions[target][packing.launch.name] = packing.launch.function
                        seen.add(symbol)
            report(f"{problem.op.name} for {target}")
    built = builder.build(plans, functions, folder, cache, report)
    tools = {"tvm": tvm.__version__, "apache-tvm-ffi": tvm_ffi.__version__, **built.tools}
    return built.elf, describe.library(plans, tools, built.driver)
