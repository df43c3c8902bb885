"""Which GPU runs which kernels: the archs of a library file, and the compute capability of a device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from opsgen.errors import OpsgenError, error

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)(a?)")


def rank(arch: str) -> tuple[bool, int, int, bool]:
    """A place among the archs of kind cuda: of those that run on a device, the highest is the best.

    Whether it is machine code, which goes before PTX, the major and the minor version, and whether it is exact.
    """
    found = _ARCH.fullmatch(arch)
    return (found[1] == "sm", int(found[2]), int(found[3]), bool(found[4])) if found else (False, 0, 0, False)


def runs(arch: str, capability: int) -> bool:
    """Whether an arch's kernels run on a device: machine code on the same major version and no lower minor one, or, if
    the arch's name ends in "a", on that very capability; PTX on all that are no lower."""
    code, major, minor, exact = rank(arch)
    own = 10 * major + minor
    if exact:
        return own == capability
    return own <= capability and (not code or major == capability // 10)


def index_of(device: str) -> int:
    """The number of ``cuda:1``."""
    return int(device.partition(":")[2] or 0)


class Capabilities:
    """The compute capability of each device, asked once: of a library file's own launcher."""

    def __init__(self, ask: Callable[..., Any], path: str) -> None:
        self._ask = ask
        self._path = path
        self._known: dict[int, int] = {}

    def of(self, device: str) -> int:
        """10 times the major version, and the minor one.

        Raises:
            TargetError: E2004, there is no driver, or too old a one.
            ResourceError: E6004, the driver fails.
        """
        index = index_of(device)
        if index not in self._known:
            try:
                self._known[index] = int(self._ask(index))
            except Exception as failure:
                raise refusal(self._path, failure) or failure from None
        return self._known[index]


def kind_of(failure: Exception) -> str | None:
    """The kind of an error that came through TVM-FFI, which makes an unknown one a RuntimeError."""
    return getattr(getattr(failure, "__tvm_ffi_error__", None), "kind", None)


def refusal(subject: str, failure: Exception) -> OpsgenError | None:
    """The error for what a launcher for GPUs says of the device and its driver; None for another failure.

    ``subject``: the op, or the file.
    """
    kind, fields = kind_of(failure), str(failure).split("|")
    if kind == "OpsgenNoDriver":
        fix = "Install the driver, or load a library for this machine's CPU."
        return error("E2004", what="GPU", found=f"not usable: {fields[0]}", target="cuda", wanted="one", fix=fix)
    if kind == "OpsgenOldDriver" and len(fields) == 2:
        have, wanted = (f"CUDA {int(v) // 1000}.{int(v) % 1000 // 10}" for v in fields)
        fix = "Update it, or compile with an older CUDA toolkit."
        return error("E2004", what="NVIDIA driver", found=f"one for {have}", target="cuda", wanted=wanted, fix=fix)
    if kind == "OpsgenDeviceMemory" and len(fields) == 2:
        return error("E6002", op=subject, wanted=fields[0], found=fields[1])
    if kind == "OpsgenCuda" and len(fields) == 3:
        return error("E6004", op=subject, what=fields[0], found=f"{fields[1]}: {fields[2]}")
    return None
