"""Calls of every_schedule.py, emulated, with memory that ends where a page begins that nobody may touch: a kernel that
reads or writes past the end ends the process. ``python -m tests.cuda.guarded PART…``
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.ma  # which looks at np.empty when it is first needed

from tests.cuda import cases, emulated
from tests.cuda.every_schedule import PARTS

_LIBC = ctypes.CDLL(None, use_errno=True)
_pages: list[mmap.mmap] = []
_empty = np.empty


def empty(shape: Any, dtype: Any = float, **ignored: Any) -> Any:
    """An array whose end is that of a page, with one behind it that cannot be read."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    size = count * dtype.itemsize
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, whole + mmap.PAGESIZE)
    _pages.append(pages)
    first = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if _LIBC.mprotect(ctypes.c_void_p(first + whole), mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return np.frombuffer(pages, dtype, count, whole - size).reshape(shape)


def guarded(x: Any) -> Any:
    y = empty(x.shape, x.dtype)
    y[...] = x
    return y


def run(name: str) -> None:
    """A part's calls; results are guarded too."""
    part = PARTS[name]
    with tempfile.TemporaryDirectory() as folder, emulated.on_cpu():
        emulated.pretend(capability=80)
        library = emulated.compile(part.items, Path(folder), dtypes=[part.dtype], configs=part.configs)
        for op, given in part.calls():
            with mock.patch.object(np, "empty", empty):
                cases.check(library, op, given, guarded)
            _pages.clear()


if __name__ == "__main__":
    for word in sys.argv[1:]:
        run(word)
        print("done:", word, flush=True)
