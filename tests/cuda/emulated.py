"""Libraries for NVIDIA GPUs whose kernels run on the CPU: nvcc and the driver have stand-ins, all else is what it is.

The kernels' CUDA source is compiled by g++ with emulator.h in the prelude's place, and the launcher finds driver.cc
for libcuda.so.1. numpy arrays take the place of GPU tensors.
"""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import opsgen as og
from opsgen.compiler.compile import build
from opsgen.runtime import selection
from opsgen.targets.cuda import Arch, codegen, toolchain

HERE = Path(__file__).parent
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\((.*?)\) \{')
_SHARED = re.compile(r"__shared__ alignas\((\d+)\) ")
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];")


@lru_cache(maxsize=1)
def driver() -> Any:
    """The stand-in for libcuda.so.1; once it is loaded, the launcher's dlopen finds it."""
    folder = Path(tempfile.mkdtemp(prefix="opsgen-driver-"))
    path = folder / "libcuda.so.1"
    command = ["g++", "-shared", "-fPIC", "-O1", "-std=c++17", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, str(HERE / "driver.cc"), "-o", str(path), "-ldl"], check=True)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def pretend(version: int = 13000, capability: int = 90, devices: int = 2, free: int = 1 << 30) -> None:
    """What the driver says of itself and its devices. A library asks once, when it first needs it."""
    driver().pretend(version, capability, devices, free)


def _host_source(source: str) -> str:
    assert source.startswith(codegen.prelude())
    text = _DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(emulator::dynamic);", source[len(codegen.prelude()) :])
    text = _SHARED.sub(r"alignas(\1) static ", text)
    parts = ['#include "emulator.h"', text]
    for name, params in dict(_SIGNATURE.findall(text)).items():
        types = [p.rsplit(" ", 1)[0].replace("__restrict__", "") for p in params.split(", ")]
        passed = ", ".join(f"*static_cast<{t}*>(a[{i}])" for i, t in enumerate(types))
        parts.append(f'extern "C" EXPORTED void launch_{name}(void** a) {{ {name}({passed}); }}')
    return "\n".join(parts)


def compile_for_host(source: str, arch: Arch, using: object = None) -> tuple[bytes, dict[str, Any]]:
    """In the place of `toolchain.compile_source`: a shared object for this CPU."""
    with tempfile.TemporaryDirectory(prefix="opsgen-emulated-") as name:
        folder = Path(name)
        (folder / "kernels.cc").write_text(_host_source(source))
        flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-fno-strict-aliasing", "-fvisibility=hidden"]
        flags += [f"-I{HERE}", f"-I{HERE.parents[1] / 'templates' / 'cuda'}"]
        subprocess.run(["g++", *flags, str(folder / "kernels.cc"), "-o", str(folder / "kernels.so")], check=True)
        image = (folder / "kernels.so").read_bytes()
    return b"EMULATED" + struct.pack("<Q", len(image)) + image, {}


@contextmanager
def on_cpu() -> Iterator[None]:
    """While it lasts, arrays in CPU memory go to kernels for GPUs."""
    driver()
    with mock.patch.dict(selection._KINDS, {"cpu": ("cuda",)}):
        yield


def compile(ops: Any, folder: Path, target: str = "cuda/sm_80", **options: Any) -> Any:
    """Like `opsgen.compile`, emulated; to be called, and the library used, inside `on_cpu`."""
    fake = toolchain.Compiler("nvcc", "/no/nvcc", (13, 0))
    path = folder / "library.so"
    with (
        mock.patch.object(toolchain, "compile_source", compile_for_host),
        mock.patch.object(toolchain, "compiler", lambda: fake),
    ):
        build(ops, path, target, **options)
    return og.load(path)
