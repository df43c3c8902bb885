"""Which kernels the calls of every_schedule.py run: ``python -m tests.cuda.noted_calls DRIVER PART…``.

Libraries are made without nvcc, their launchers are what they always are, and DRIVER (multiplying_driver.cc) notes what
is launched. Prints a JSON object: for each part, the kernels that it has and that no call ran.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import opsgen as og
from opsgen.runtime import selection
from opsgen.targets.cuda import toolchain
from tests.cuda import every_schedule

TARGET = "cuda/sm_90a"


def moved(x: Any) -> Any:
    """The same values, one element further in memory."""
    y = np.empty(x.size + 1, x.dtype)[1:].reshape(x.shape)
    y[...] = x
    return y


def main(driver_path: str, parts: list[str]) -> None:
    driver = ctypes.CDLL(driver_path, mode=ctypes.RTLD_GLOBAL)  # the launcher's dlopen finds it
    driver.all_kernels.restype = ctypes.c_char_p
    driver.only_note()
    nothing = mock.patch.object(toolchain, "compile_source", lambda source, arch, using=None: (b"\x7fELF", {}))
    found: dict[str, list[str]] = {}
    for part in parts:
        with tempfile.TemporaryDirectory() as folder, nothing:
            path = Path(folder) / "library.so"
            every_schedule.write(part, path, TARGET)
            library = og.load(path)
        with mock.patch.dict(selection._KINDS, {"cpu": ("cuda",)}), np.errstate(all="ignore"):
            for op, given in every_schedule.PARTS[part].calls():
                library[op.name](**given)
                library[op.name](**{n: moved(x) if isinstance(x, np.ndarray) else x for n, x in given.items()})
        run = set(driver.all_kernels().decode().split("\n"))
        plans = every_schedule.plans(part, every_schedule.PARTS[part].target or TARGET)
        names = {x.name for plan in plans for x in plan.launches}
        found[part] = sorted(n for n in names - run if re.search(every_schedule.PARTS[part].kernels, n))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(every_schedule.PARTS))
