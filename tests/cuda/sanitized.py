"""Small calls of every schedule, to be run under compute-sanitizer: ``python -m tests.cuda.sanitized FOLDER [PART]``.

FOLDER has the library files that ``python -m tests.cuda.test_gpu FOLDER TARGET`` makes. ``PART`` names those to run:
racecheck is slow. Results are checked as well, so that a call that did nothing is seen.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import opsgen as og
from tests.cuda import cases
from tests.cuda.test_gpu import check

ROWS = {"softmax": 4, "layer_norm": 2, "add_rms_norm": 2, "masked_mean_pool": 2}
MAPS = {"gelu": 2, "swiglu": 2, "embedding": 2}
TILES = ((1, 64, 72), (13, 64, 72), (70, 136, 200), (65, 17, 129))
"""Rows, length of the sum, columns: few rows, tiles that tensor cores take, sizes that they do not."""


def halves() -> None:
    """Products on tensor cores, with one epilogue."""
    lib = og.load(Path(sys.argv[1]) / "bfloat16.so")
    for i, given in enumerate(cases.linear_calls("bfloat16", TILES)):
        if i < 2 * len(TILES):
            check(lib, cases.OPS["linear"], given)


def rows() -> None:
    """Reductions over rows that a part of a warp has, a warp, a block, a cluster, and blocks that take a part each."""
    lib = og.load(Path(sys.argv[1]) / "bfloat16.so")
    for name, count in ROWS.items():
        for given, _ in zip(cases.calls(name, "bfloat16"), range(count), strict=False):
            check(lib, cases.OPS[name], given)
    for given, _ in zip(
        cases.long_calls("softmax", "bfloat16", (1024, 4099, 20000, 65536, 70001, 300007)), range(6), strict=False
    ):
        check(lib, cases.OPS["softmax"], given)


def maps() -> None:
    """Elementwise values and gathers."""
    lib = og.load(Path(sys.argv[1]) / "bfloat16.so")
    for name, count in MAPS.items():
        for given, _ in zip(cases.calls(name, "bfloat16"), range(count), strict=False):
            check(lib, cases.OPS[name], given)


def floats() -> None:
    """Products without tensor cores."""
    lib = og.load(Path(sys.argv[1]) / "float32.so")
    for i, given in enumerate(cases.linear_calls("float32", TILES)):
        if i < len(TILES):
            check(lib, cases.OPS["linear"], given)


def users() -> None:
    """Columns, searches, updates."""
    lib = og.load(Path(sys.argv[1]) / "users.so")
    for name in cases.USERS:
        if name != "shift":
            for given, _ in zip(cases.user_calls(name, np.random.default_rng(0)), range(2), strict=False):
                check(lib, cases.USERS[name], given)


PARTS = {"halves": halves, "rows": rows, "maps": maps, "floats": floats, "users": users}

if __name__ == "__main__":
    for part in sys.argv[2:] or PARTS:
        PARTS[part]()
        print("done:", part, flush=True)
