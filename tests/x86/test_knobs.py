"""Whatever a contraction's knobs are set to, products of half types are right and those of 8-bit integers the same.

What a search may choose must give what the default gives, within rounding (TVM #13204).
"""

from pathlib import Path

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.compile import build
from opsgen.lowering.error_bounds import bounded
from opsgen.schedules.x86.contraction import SCHEDULE

SIZES = ((1, 17, 40), (13, 33, 65), (64, 64, 64), (97, 130, 300))
SETTINGS = [(knob, value) for knob, values in SCHEDULE.knobs.items() for value in values]
QUICK = {("rows", 12), ("direct_rows", 0)}


@og.op
def halves(x: og.Tensor["m", "k"], w: og.Tensor["n", "k"]):
    """x wᵀ"""
    return og.dot(x, w, over="k")


@og.op
def eighths(x: og.Tensor["m", "k", og.int8], w: og.Tensor["n", "k", og.int8]):
    """x wᵀ of integers, in int32"""
    return og.dot(x, w, over="k")


@pytest.mark.parametrize(
    ("knob", "value"),
    [s if s in QUICK else pytest.param(*s, marks=pytest.mark.slow) for s in SETTINGS],
    ids=[f"{knob}-{value}" for knob, value in SETTINGS],
)
def test_knobs(tmp_path: Path, knob: str, value: int) -> None:
    build([halves, eighths], tmp_path / "lib.so", dtypes=["float16"], configs={"x86.contraction": {knob: value}})
    lib = og.load(tmp_path / "lib.so")
    groups = [g for k in lib.manifest.kernels for g in k.groups if g.pattern == "contraction"]
    assert groups and all(g.config[knob] == value for g in groups)
    rng = np.random.default_rng(0)
    for m, n, k in SIZES:
        x, w = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
        (bound,) = bounded(halves, {"x": x, "w": w}).values()
        assert not len(bound.wrong(lib.halves(x, w)))
        x8, w8 = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (n, k), np.int8)
        assert np.array_equal(lib.eighths(x8, w8), x8.astype(np.int32) @ w8.astype(np.int32).T)
