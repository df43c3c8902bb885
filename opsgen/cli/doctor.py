"""`opsgen doctor`: what this machine has, what it lacks, and the command that mends it."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import OpsgenError
from .output import FAILED, OK, Table, print_json, show
from .progress import Progress

TVM = "0.27.0.post1"
TVM_FFI_LEAST = "0.1.14.post0"
TVM_FFI_BAD = frozenset({"0.1.15.post1", "0.1.15.post2"})  # crash in ToJSONGraph and save_json beside this TVM
DISK = 200 << 20
"""Bytes that building a library of every op for two archs takes in the temporary folder, several times over."""

_BEYOND = ("avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16")
"""Instructions of CPUs that no level asks for; shown alone."""

_COMPILE = 'pip install "opsgen[compile]"'


@dataclass(frozen=True)
class Check:
    """One finding: ``status`` is "ok", "problem" (needed, and missing or wrong) or "note" (not needed)."""

    name: str
    status: str
    found: str
    fix: str = ""


def run(arguments: argparse.Namespace) -> int:
    """The command: 0 if all that is needed is there."""
    checks = examine()
    measured: dict[str, Any] = {"cpu": None, "gpus": []}
    if not arguments.no_measure:
        progress = Progress(arguments.json)
        try:
            progress("measuring the CPU", 0, 2)
            checks.append(cpu_rates(measured))
            progress("measuring GPUs", 1, 2)
            checks += gpu_rates(checks, measured)
        finally:
            progress.end()
    problems = [c for c in checks if c.status == "problem"]
    if arguments.json:
        print_json({"ok": not problems, "checks": [vars(c) for c in checks], "measured": measured})
        return FAILED if problems else OK
    rows = []
    for c in checks:
        rows.append((c.status, c.name, c.found))
        if c.fix and c.status != "ok":
            rows.append(("", "", f"-> {c.fix}"))
    count = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
    show([Table(rows), "", count if problems else "All that is needed is there."])
    return FAILED if problems else OK


def examine() -> list[Check]:
    """Every check but the measurements, in order."""
    checks = [python(), cpu(), tvm_ffi(), numpy(), tvm(), jinja2(), sympy(), gxx(), *temporary()]
    if all(c.status == "ok" for c in checks if c.name in ("tvm-ffi", "g++", "temporary folder")):
        checks.append(threads())
    else:
        checks.append(Check("threads", "note", "not tried: it needs tvm-ffi, g++ and a temporary folder"))
    return [*checks, cuda(), gpu(), torch(), optional("rich"), optional("shtab")]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


def _version(*names: str) -> str | None:
    """The version of the first of several distributions that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _imports(name: str) -> str | None:
    """Why a module cannot be imported, or None if it can."""
    try:
        importlib.import_module(name)
    except Exception as bad:  # a broken package raises anything
        return f"{type(bad).__name__}: {bad}"
    return None


def python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}, {platform.system()} {platform.machine()}"
    if sys.version_info < (3, 10):  # noqa: UP036  # what pip would refuse can run from a checkout
        return Check("python", "problem", found, "Install Python 3.10 or later.")
    return Check("python", "ok", found)


def cpu() -> Check:
    from ..runtime.host import _cpu_flags, host_levels

    model = "an unnamed CPU"
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        model = next((ln.partition(":")[2].strip() for ln in text.splitlines() if ln.startswith("model name")), model)
    except OSError:
        pass
    try:
        levels = [level for level in host_levels() if level != "baseline"]
    except OpsgenError as bad:
        return Check("cpu", "problem", f"{model}; {bad}", "unset OPSGEN_CPU_LEVEL")
    found = f"{model}, {os.cpu_count()} CPUs; levels: {', '.join(levels) or 'none'}"
    more = [flag for flag in _BEYOND if flag in _cpu_flags()]
    found += f"; also {', '.join(more)}" * bool(more)
    if not levels:
        return Check(
            "cpu", "problem", found, "x86 kernels need AVX2 and FMA. Compile for another machine: --target x86/avx2."
        )
    return Check("cpu", "ok", found)


def tvm_ffi() -> Check:
    version = _version("apache-tvm-ffi")
    fix = f'pip install "apache-tvm-ffi=={TVM_FFI_LEAST}"'
    if version is None:
        return Check("tvm-ffi", "problem", "not installed", fix)
    if version in TVM_FFI_BAD:
        return Check("tvm-ffi", "problem", f"{version}, which crashes beside apache-tvm {TVM}", fix)
    if numbers(version) < numbers(TVM_FFI_LEAST):
        return Check("tvm-ffi", "problem", f"{version}; wanted {TVM_FFI_LEAST} or later", fix)
    from_import = _imports("opsgen.runtime.ffi")
    return Check("tvm-ffi", "problem", from_import, fix) if from_import else Check("tvm-ffi", "ok", version)


def numpy() -> Check:
    version, bad = _version("numpy"), _imports("numpy")
    if bad or version is None:
        return Check("numpy", "problem", bad or "not installed", 'pip install "numpy>=1.26"')
    if numbers(version) < (1, 26):
        return Check("numpy", "problem", f"{version}; wanted 1.26 or later", 'pip install "numpy>=1.26"')
    return Check("numpy", "ok", version)


def tvm() -> Check:
    version = _version("apache-tvm")
    if version is None:
        return Check("tvm", "problem", "not installed; compiling needs it, running does not", _COMPILE)
    if version != TVM:
        return Check(
            "tvm", "problem", f"{version}; code is generated and tested with {TVM}", f'pip install "apache-tvm=={TVM}"'
        )
    bad = _imports("tvm")
    return Check("tvm", "problem", bad, _COMPILE) if bad else Check("tvm", "ok", version)


def jinja2() -> Check:
    version, bad = _version("jinja2"), _imports("jinja2")
    if bad:
        return Check("jinja2", "problem", "not installed; compiling needs it, running does not", _COMPILE)
    return Check("jinja2", "ok", version or "")


def sympy() -> Check:
    version, bad = _version("sympy"), _imports("sympy")
    if bad:
        return Check("sympy", "problem", "not installed; compiling needs it, running does not", _COMPILE)
    return Check("sympy", "ok", version or "")


def gxx() -> Check:
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        fix = "apt-get install g++" if not os.environ.get("CXX") else "unset CXX, or set it to a C++ compiler"
        return Check("g++", "problem", f"{name} was not found", fix)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    first = done.stdout.split("\n")[0]
    if done.returncode != 0:
        return Check("g++", "problem", f"{path} --version failed", "apt-get install --reinstall g++")
    return Check("g++", "ok", f"{first} at {path}")


def temporary() -> list[Check]:
    """Whether the temporary folder can be written, and what is free there."""
    try:
        with tempfile.TemporaryDirectory(prefix="opsgen-doctor-") as folder:
            (Path(folder) / "file").write_bytes(b"\0" * 4096)
            free = shutil.disk_usage(folder).free
            parent = str(Path(folder).parent)
    except OSError as bad:
        return [Check("temporary folder", "problem", str(bad), "export TMPDIR=a folder that can be written")]
    found = f"{free >> 20} MiB free in {parent}"
    if free < DISK:
        fix = f"Free some disk, or export TMPDIR=a folder with {DISK >> 20} MiB."
        return [Check("temporary folder", "ok", parent), Check("disk", "problem", found, fix)]
    return [Check("temporary folder", "ok", parent), Check("disk", "ok", found)]


def threads() -> Check:
    """Builds the thread shim that every library carries, and asks it what its parallel loops run on."""
    from opsgen.targets.x86 import toolchain

    from ..runtime import ffi

    try:
        with tempfile.TemporaryDirectory(prefix="opsgen-doctor-") as name:
            folder = Path(name)
            shim = Path(__file__).parent.parent / "templates" / "x86" / "threads.cc"
            toolchain.compile_source(shim, folder / "threads.o")
            exports = folder / "exports.map"
            exports.write_text("{ global: __tvm_ffi_opsgen_threads_runtime; local: *; };\n")
            toolchain.link([folder / "threads.o"], folder / "threads.so", exports)
            module: Any = ffi.load_shared_object(str(folder / "threads.so"))
            found = str(module.get_function("opsgen_threads_runtime")())
    except OpsgenError as bad:
        return Check(
            "threads", "problem", f"the thread shim cannot be built: {bad}", "apt-get install --reinstall g++ libc6-dev"
        )
    except Exception as bad:  # whatever the loader raises
        return Check(
            "threads",
            "problem",
            f"the thread shim cannot be loaded: {bad}",
            f'pip install "apache-tvm-ffi=={TVM_FFI_LEAST}"',
        )
    return Check("threads", "ok", found)


def cuda() -> Check:
    """nvcc or NVRTC: compiling for NVIDIA GPUs needs one."""
    from opsgen.targets.cuda import toolchain

    try:
        found = toolchain.compiler()
    except OpsgenError:
        fix = "Install the CUDA toolkit, or: pip install nvidia-cuda-nvrtc"
        return Check("cuda compiler", "note", "neither nvcc nor NVRTC; only the target cuda needs one", fix)
    needs = f"its kernels need a driver for CUDA {found.driver()[0]}"
    return Check("cuda compiler", "ok", f"{found} at {found.path}; {needs}")


def gpu() -> Check:
    """The NVIDIA driver; asked directly, for no package tells."""
    try:
        driver: Any = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Check("gpu", "note", "no NVIDIA driver; kernels for cuda compile here, and run elsewhere")
    version, count = ctypes.c_int(), ctypes.c_int()
    if (
        driver.cuInit(0)
        or driver.cuDriverGetVersion(ctypes.byref(version))
        or driver.cuDeviceGetCount(ctypes.byref(count))
    ):
        return Check("gpu", "note", "the NVIDIA driver does not start", "nvidia-smi says why")
    shown = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Check("gpu", "ok", f"{count.value} NVIDIA GPUs, driver for CUDA {shown}")


def torch() -> Check:
    """Not imported: that takes seconds."""
    version = _version("torch")
    if version is None or importlib.util.find_spec("torch") is None:
        return Check("torch", "note", "not installed; only torch arrays need it", 'pip install "opsgen[torch]"')
    return Check("torch", "ok", version)


_USES = {"rich": "terminals get colours, tables and progress bars with it", "shtab": "opsgen completion needs it"}


def optional(package: str) -> Check:
    """What only the command line uses."""
    version, bad = _version(package), _imports(package)
    if bad:
        return Check(package, "note", f"not installed; {_USES[package]}", 'pip install "opsgen[cli]"')
    return Check(package, "ok", version or "")


# -- measured ----------------------------------------------------------------------------------------------------------
def cpu_rates(measured: dict[str, Any]) -> Check:
    """Flop/s and bytes a second of all CPUs that this process may use; noted in ``measured`` too."""
    from ..runtime.host import host_levels

    try:
        from ..bench import peak

        level = next(level for level in reversed(host_levels()) if level in peak.LANES)
        found = peak.peaks(level, len(os.sched_getaffinity(0)))
    except (OpsgenError, ImportError, OSError, StopIteration) as bad:
        return Check("cpu rates", "note", f"not measured: {bad or 'no level that kernels are made for'}")
    measured["cpu"] = {
        "level": level, "threads": found.threads, "float32_gflops": round(found.flops / 1e9, 1),
        "read_gbs": {str(size): round(value / 1e9, 1) for size, value in found.reads.items()},
    }  # fmt: skip
    rates = f"{found.flops / 1e9:.0f} GFLOP/s in float32, {found.memory / 1e9:.1f} GB/s from memory"
    return Check("cpu rates", "ok", f"{rates} ({level}, {found.threads} thread{'s' * (found.threads != 1)})")


def gpu_rates(checks: list[Check], measured: dict[str, Any]) -> list[Check]:
    """The same of each GPU that torch finds; nothing where there is no GPU, or no torch."""
    if not all(c.status == "ok" for c in checks if c.name in ("gpu", "torch")):
        return []
    from ..bench import gpu_peak

    found = []
    try:
        framework = importlib.import_module("torch")
        for index in range(framework.cuda.device_count() if framework.cuda.is_available() else 0):
            one = gpu_peak.peaks(framework, index)
            copy, bfloat16 = round(one.copy / 1e9, 1), round(one.bfloat16 / 1e12, 1)
            measured["gpus"].append({"name": one.name, "copy_gbs": copy, "bfloat16_tflops": bfloat16})
            rates = f"{one.name}: {bfloat16:.0f} TFLOP/s in bfloat16 (torch.mm), {copy:.0f} GB/s copied"
            found.append(Check(f"gpu {index} rates", "ok", rates))
    except Exception as bad:  # a driver that fails, memory that others hold
        reason = f"{type(bad).__name__}: {bad}".split(chr(10))[0]
        found.append(Check("gpu rates", "note", f"not measured: {reason}"))
    return found
