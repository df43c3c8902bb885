"""g++: the launcher and the thread shim are compiled with it, and the library is linked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import tvm_ffi

from opsgen.errors import error

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-march=x86-64", "-fvisibility=hidden", "-fno-exceptions", "-Wall")


def compiler() -> str:
    """The C++ compiler: ``CXX`` if set, else g++.

    Raises:
        TargetError: E2002, it is not installed.
    """
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise error("E2002", tool=name, target="x86", fix="apt-get install g++")
    return path


@lru_cache(maxsize=8)
def version(path: str) -> str:
    """The first line of the compiler's --version."""
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]


def identity() -> str:
    """The compiler and all that it is told: objects of one source are the same where this is.

    Raises:
        TargetError: E2002, it is not installed.
    """
    path = compiler()
    return " ".join([path, version(path), *_FLAGS, tvm_ffi.__version__])


def include_flags() -> list[str]:
    """Where tvm-ffi's and DLPack's headers are."""
    return [
        f"-I{p}"
        for p in dict.fromkeys([tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()])
    ]


def run(command: Sequence[str]) -> None:
    """Runs a tool.

    Raises:
        CompileError: E3005 with what it printed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        printed = (done.stderr or done.stdout).strip()
        raise error("E3005", tool=Path(command[0]).name, status=done.returncode, found=printed[-2000:] or "no message")


def compile_source(source: Path, output: Path) -> None:
    """A C++ file to an object, for any x86-64."""
    run([compiler(), *_FLAGS, *include_flags(), "-c", str(source), "-o", str(output)])


def exports(symbols: Sequence[str], path: Path) -> Path:
    """Writes the version script that exports these TVM-FFI functions, and nothing else."""
    names = "".join(f"    __tvm_ffi_{s};\n" for s in dict.fromkeys(symbols))
    path.write_text("{\n  global:\n" + names + "  local: *;\n};\n")
    return path


def link(objects: Sequence[Path], output: Path, exports: Path) -> None:
    """Objects to a shared object that needs libtvm_ffi, libm and libc only and exports what ``exports`` (a version
    script) lists.
    """
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    run(
        [
            compiler(),
            "-shared",
            "-o",
            str(output),
            *map(str, objects),
            f"-L{library.parent}",
            "-ltvm_ffi",
            "-lm",
            "-lpthread",
            "-ldl",
            "-static-libstdc++",
            "-static-libgcc",
            f"-Wl,--version-script={exports}",
            "-Wl,-z,noexecstack",
            "-Wl,-O1",
            "-Wl,--strip-all",
        ]
    )
