"""nvcc or NVRTC: CUDA source to a cubin of one architecture, with what each kernel of it uses.

nvcc is that of the environment variable NVCC, else of CUDA_HOME or CUDA_PATH, else on PATH, else in /usr/local/cuda.
Where there is none, NVRTC of the PyPI package nvidia-cuda-nvrtc serves: it is a library, and needs no host compiler.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from opsgen.errors import error

from . import Arch

_FIX = "the CUDA toolkit (https://developer.nvidia.com/cuda-downloads), or pip install nvidia-cuda-nvrtc"

_NVCC_FLAGS = ("-std=c++17", "-O3", "-diag-suppress", "177,1046")
_NVRTC_FLAGS = ("--std=c++17",)


@dataclass(frozen=True)
class Usage:
    """What a kernel takes, as ptxas says: registers of a thread, bytes of spilled registers and of the stack, and
    bytes of static shared memory of a block."""

    registers: int
    spilled: int
    stack: int
    shared: int


@dataclass(frozen=True)
class Compiler:
    """``path`` of nvcc, or of NVRTC's library; ``version``: major and minor of its CUDA."""

    name: str
    path: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name} {self.version[0]}.{self.version[1]}"

    def identity(self) -> str:
        """The compiler and all that it is told: machine code of one source is the same where this is."""
        return " ".join([self.path, str(self), *_NVCC_FLAGS, *_NVRTC_FLAGS])

    def driver(self, ptx: bool = False) -> tuple[int, int]:
        """The CUDA version that a driver must offer: for its cubins the first of the major version; for its PTX, which
        an older driver cannot translate, its own."""
        return self.version if ptx else (self.version[0], 0)

    def driver_number(self, ptx: bool = False) -> int:
        """The same as cuDriverGetVersion counts."""
        major, minor = self.driver(ptx)
        return 1000 * major + 10 * minor


def compiler() -> Compiler:
    """The compiler to use.

    Raises:
        TargetError: E2002, there is none.
    """
    path = _nvcc()
    if path is not None:
        return Compiler("nvcc", path, _nvcc_version(path))
    library = _nvrtc()
    if library is not None:
        return Compiler("NVRTC", library, _nvrtc_version(library))
    raise error("E2002", tool=os.environ.get("NVCC") or "nvcc", target="cuda", fix=_FIX)


def _nvcc() -> str | None:
    named = os.environ.get("NVCC")
    if named:
        return shutil.which(named)
    homes = [os.environ.get(v) for v in ("CUDA_HOME", "CUDA_PATH")]
    for home in homes:
        if home and os.access(Path(home) / "bin" / "nvcc", os.X_OK):
            return str(Path(home) / "bin" / "nvcc")
    found = shutil.which("nvcc")
    usual = Path("/usr/local/cuda/bin/nvcc")
    return found or (str(usual) if os.access(usual, os.X_OK) else None)


@lru_cache(maxsize=8)
def _nvcc_version(path: str) -> tuple[int, int]:
    printed = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", printed)
    if found is None:
        raise error("E3005", tool="nvcc", status="an answer without a version", found=printed.strip() or "nothing")
    return int(found[1]), int(found[2])


def _nvrtc() -> str | None:
    """NVRTC's library in the PyPI package: nvidia/cu13/lib from CUDA 13 on, nvidia/cuda_nvrtc/lib before."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        found = sorted(Path(folder).glob("cu*/lib/libnvrtc.so.*"))
        if found:
            return str(found[-1])
    return None


@lru_cache(maxsize=2)
def _load_nvrtc(path: str) -> Any:
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


@lru_cache(maxsize=2)
def _nvrtc_version(path: str) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _load_nvrtc(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_source(source: str, arch: Arch, using: Compiler | None = None) -> tuple[bytes, dict[str, Usage]]:
    """CUDA source to a cubin, or for an arch of PTX to that, with a final NUL as drivers want it; and what each of its
    kernels uses (nothing is known of that with NVRTC, nor of PTX).

    No approximate functions: division, square roots and denormals are as IEEE has them.

    Raises:
        TargetError: E2002, no compiler.
        CompileError: E3005, with what it printed.
    """
    using = using or compiler()
    if arch.ptx:
        return ptx(source, arch, using).encode() + b"\0", {}
    if using.name == "nvcc":
        return _with_nvcc(source, arch, using)
    return _with_nvrtc(source, arch, using), {}


def _with_nvcc(source: str, arch: Arch, using: Compiler) -> tuple[bytes, dict[str, Usage]]:
    with tempfile.TemporaryDirectory(prefix="opsgen-nvcc-") as name:
        printed = _nvcc_run(using, ["-cubin", "-Xptxas", "-v"], source, arch, Path(name))
        return (Path(name) / "kernels.out").read_bytes(), usage(printed)


def _nvcc_run(using: Compiler, options: list[str], source: str, arch: Arch, folder: Path) -> str:
    """Compiles to ``kernels.out`` in the folder; gives what nvcc printed. Raises E3005."""
    (folder / "kernels.cu").write_text(source, encoding="utf-8")
    code = "code=sm_" if "-cubin" in options else "code=compute_"
    command = [
        using.path, *options, f"-gencode=arch=compute_{arch.number},{code}{arch.number}", *_NVCC_FLAGS,
        "-o", str(folder / "kernels.out"), str(folder / "kernels.cu"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        printed = (done.stderr or done.stdout).strip()
        raise error("E3005", tool="nvcc", status=done.returncode, found=printed[-2000:] or "no message")
    return done.stderr


def ptx(source: str, arch: Arch, using: Compiler | None = None) -> str:
    """CUDA source as PTX, the assembly that ptxas takes.

    Raises:
        TargetError: E2002, no compiler.
        CompileError: E3005, with what it printed.
    """
    using = using or compiler()
    if using.name != "nvcc":
        return _with_nvrtc(source, arch, using, "PTX").rstrip(b"\0").decode()
    with tempfile.TemporaryDirectory(prefix="opsgen-nvcc-") as name:
        _nvcc_run(using, ["-ptx"], source, arch, Path(name))
        return (Path(name) / "kernels.out").read_text(encoding="utf-8")


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def usage(printed: str) -> dict[str, Usage]:
    """What ``ptxas -v`` says of each kernel."""
    found: dict[str, Usage] = {}
    name, stack, spilled = "", 0, 0
    for line in printed.splitlines():
        if entry := _ENTRY.search(line):
            name, stack, spilled = entry[1], 0, 0
        elif frame := _STACK.search(line):
            stack, spilled = int(frame[1]), int(frame[2]) + int(frame[3])
        elif (used := _REGISTERS.search(line)) and name:
            shared = _SHARED.search(line)
            found[name] = Usage(int(used[1]), spilled, stack, int(shared[1]) if shared else 0)
    return found


def _with_nvrtc(source: str, arch: Arch, using: Compiler, kind: str = "CUBIN") -> bytes:
    library = _load_nvrtc(using.path)

    def check(status: int) -> None:
        if status != 0:
            size = ctypes.c_size_t()
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(max(size.value, 1))
            library.nvrtcGetProgramLog(program, log)
            printed = log.value.decode(errors="replace").strip()
            reason = library.nvrtcGetErrorString(status).decode()
            raise error("E3005", tool="NVRTC", status=reason, found=printed[-2000:] or "no message")

    program = ctypes.c_void_p()
    check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    try:
        real = "compute" if arch.ptx else "sm"
        options = [f"--gpu-architecture={real}_{arch.number}", *_NVRTC_FLAGS]
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        check(library.nvrtcCompileProgram(program, len(options), given))
        size = ctypes.c_size_t()
        check(getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
        made = ctypes.create_string_buffer(size.value)
        check(getattr(library, f"nvrtcGet{kind}")(program, made))
        return made.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
