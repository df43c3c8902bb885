"""Arguments of ops whose rows are sorted by group, for tests: offsets of every kind, at sizes around tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import arrays

OFFSETS: dict[str, list[int]] = {
    "one group": [0, 37],
    "empty groups at both ends and between": [0, 0, 5, 5, 5, 30, 30],
    "single rows": [0, 1, 2, 3, 4],
    "more groups than rows": [0, 0, 1, 1, 1, 2, 2, 3, 3, 3],
    "all rows in the last": [0, 0, 0, 70],
    "all rows in the first": [0, 66, 66, 66],
    "uneven": [0, 1, 1, 131, 135, 264, 270],
    "no rows": [0, 0, 0],
    "tiles that are full": [0, 64, 192, 256],
}
SHAPES = ((17, 33), (64, 65), (8, 129), (1, 1), (100, 16))
"""Columns and length of the sum."""


def arguments(offsets: Any, columns: int, summed: int, dtype: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Of `grouped_linear`."""
    offsets = np.asarray(offsets)
    rows, groups = int(offsets[-1]), len(offsets) - 1
    rng = np.random.default_rng([rows, groups, columns, summed])
    shapes = {
        "x": (rows, summed), "weight": (groups, columns, summed), "bias": (groups, columns), "scale": (rows,),
    }  # fmt: skip
    given = {n: arrays.values(rng, s, dtype) for n, s in shapes.items() if n not in without}
    return {**given, "offsets": offsets}
