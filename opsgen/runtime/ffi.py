"""tvm_ffi, imported without torch.

Work-around, apache-tvm-ffi 0.1.14.post0: ``import tvm_ffi`` imports torch wherever it is installed, which takes more
than a second in programs that never use it. torch tensors need nothing from that import: tvm_ffi finds the DLPack
exchange API on their class. Remove this when tvm_ffi no longer imports torch by itself.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _WithoutTorch:
    """A finder that hides torch from the thread that made it; other threads import torch as ever."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is hidden while opsgen.runtime imports tvm_ffi", name=name)
        return None


def _import_tvm_ffi() -> Any:
    if "tvm_ffi" in sys.modules or "torch" in sys.modules:
        return importlib.import_module("tvm_ffi")
    finder = _WithoutTorch()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        sys.meta_path.remove(finder)


tvm_ffi = _import_tvm_ffi()
Tensor: Any = tvm_ffi.Tensor
from_dlpack: Any = tvm_ffi.from_dlpack

_DTYPE_CODE = 24 + 20
"""Offset of DLTensor.dtype.code in a Tensor object: TVMFFIObject is 24 bytes, and data, device and ndim are 20."""


def set_dtype_code(tensor: Any, code: int) -> None:
    """Set the DLPack dtype code of ``tensor``, which nobody else may hold. Its bits stay.

    tvm_ffi has no call for this; the layout of a tensor object is part of its C ABI (c_api.h).
    """
    ctypes.c_uint8.from_address(tensor.__chandle__() + _DTYPE_CODE).value = code


_opened: dict[str, list[tuple[int, int, int]]] = {}
_opening = threading.Lock()


def load_shared_object(path: str) -> Any:
    """The module of the shared object ``path`` (absolute, any file name); it stays loaded until the process ends.

    The dynamic loader knows an object by the name that it was opened by, and would give the old one for a file that was
    replaced since. So each content of a path is opened by a spelling of its own: one more slash in front.

    Raises:
        RuntimeError: the dynamic loader refuses it.
    """
    status = os.stat(path)
    content = (status.st_dev, status.st_ino, status.st_mtime_ns)
    with _opening:
        contents = _opened.setdefault(path, [])
        if content not in contents:
            contents.append(content)
        spelling = "/" * contents.index(content) + path
    module = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")(spelling, "so")
    tvm_ffi.get_global_func("ffi.ModuleGlobalsAdd")(module)
    return module
