"""Small calls of every schedule, to be run under compute-sanitizer: ``python -m tests.cuda.sanitized FOLDER [PART…]``.

FOLDER has the library file of each part of every_schedule.py, made by ``python -m tests.cuda.sanitized FOLDER TARGET``,
which needs no GPU. Small calls are made twice: with memory as torch aligns it, and one element further. Results are
checked as well, so that a call that did nothing is seen.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import opsgen as og
from tests.cuda import cases
from tests.cuda.every_schedule import PARTS, write
from tests.cuda.test_gpu import back, on

SMALL = 1 << 19
"""Elements of all arguments: with more, the kernels for memory that is not aligned take long."""


def moved(x: Any) -> Any:
    """The tensor, one element further in memory than torch has it."""
    import torch

    y = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape)
    return y.copy_(x)


def run(folder: Path, name: str) -> bool:
    """A part's calls; whether all gave what they should."""
    library, convert, right = og.load(folder / f"{name}.so"), on("cuda:0"), True
    for op, given in PARTS[name].calls():
        shapes = [x.shape for x in given.values() if isinstance(x, np.ndarray)]
        try:
            cases.check(library, op, given, convert, back)
            if sum(map(np.prod, shapes)) < SMALL:
                cases.check(library, op, given, lambda x: moved(convert(x)), back)
        except AssertionError:  # the sanitizer has something to say of the others, too
            traceback.print_exc()
            right = False
        print("called:", op.name, *shapes, flush=True)
    return right


if __name__ == "__main__":
    given, *words = sys.argv[1:]
    if words and words[0].startswith("cuda/"):
        for part in PARTS:
            write(part, Path(given) / f"{part}.so", words[0])
            print(part, flush=True)
    else:
        right = True
        for part in words or PARTS:
            right &= run(Path(given), part)
            print("done:", part, flush=True)
        sys.exit(int(not right))
