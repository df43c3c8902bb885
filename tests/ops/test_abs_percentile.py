"""Percentiles by a histogram: within a bin of the exact one, and what outliers, NaN and nothing give."""

from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.ops import abs_percentile

BINS = 64


@pytest.fixture(scope="module", params=["numpy", "x86"])
def call(request: pytest.FixtureRequest) -> Any:
    if request.param == "numpy":
        return abs_percentile.evaluate
    pytest.importorskip("tvm")
    return og.compile(og.variant(abs_percentile, bins=BINS, dtype="float32"), target="x86").abs_percentile


@pytest.mark.parametrize("percentile", [0.0, 1.0, 50.0, 99.0, 99.99, 100.0])
def test_it_is_above_the_exact_percentile_by_at_most_a_bin(call: Any, percentile: float) -> None:
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (7, 5), (64, 300)):
        x = rng.standard_normal(shape).astype(np.float32)
        a = np.sort(np.abs(x.astype(np.float64)).ravel())
        exact = a[max(int(np.ceil(percentile / 100 * a.size)) - 1, 0)]
        y, bin_width = float(call(x, percentile=percentile, bins=BINS)), a[-1] / BINS
        assert exact - 1e-5 * a[-1] <= y <= exact + bin_width * (1 + 1e-5)
        assert abs(round(y / bin_width) * bin_width - y) < 1e-5 * a[-1]  # the end of a bin


def test_an_outlier_does_not_widen_the_range(call: Any) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (100, 100)).astype(np.float32)
    x[3, 4] = -20
    assert call(x, percentile=99.9, bins=BINS) == pytest.approx(20 * 4 / BINS)  # of bins of 0.3125 the fourth
    assert call(x, percentile=100.0, bins=BINS) == 20


def test_edges(call: Any) -> None:
    for value, wanted in ((0.0, 0.0), (-0.0, 0.0), (np.nan, np.nan), (-np.inf, np.inf), (-3.0, 3.0), (1e-42, 1e-42)):
        x = np.zeros((3, 4), np.float32)
        x[1, 2] = value
        np.testing.assert_array_equal(call(x, percentile=100.0, bins=BINS), np.float32(wanted))
    for shape in ((0, 3), (3, 0)):
        assert call(np.zeros(shape, np.float32), percentile=50.0, bins=BINS) == 0


def test_float64_has_ends_of_float64() -> None:
    x = np.random.default_rng(0).normal(size=(70, 50))
    given = {"percentile": 50.0, "bins": 1000}
    found = abs_percentile.evaluate(x, **given)
    np.testing.assert_allclose(found, abs_percentile.expected(x, **given), rtol=1e-14)
