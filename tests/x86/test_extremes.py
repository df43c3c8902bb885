"""max and min: a NaN at any position comes out, on either side of a comparison and in vectors of any length."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.runtime.host import host_levels

ARCHS = ("avx2", "avx512")
DTYPES = ("float32", "float64", "float16")
LENGTHS = (1, 2, 7, 16, 17, 64 + 16 + 3)


@og.op
def of_rows(x: og.Tensor["...", "n"]):
    return og.results(high=og.max(x, over="n"), low=og.min(x, over="n"))


@og.op
def of_columns(x: og.Tensor["n", "m"]):
    return og.results(high=og.max(x, over="n"), low=og.min(x, over="n"))


@og.op
def of_all(x: og.Tensor["m", "n"]):
    return og.results(high=og.max(x, over=("m", "n")), low=og.min(x, over=("m", "n")))


@og.op
def of_two(x: og.Tensor["...", "n"], y: og.Tensor["...", "n"]):
    return og.results(
        high=og.max(x, y),
        low=og.min(x, y),
        relu=og.max(x, 0.0),
        clamped=og.min(og.max(x, -1.0), 1.0),
        clamped_by=og.max(-1.0, og.min(1.0, x)),
    )


@og.op
def after_a_product(a: og.Tensor["m", "k"], b: og.Tensor["k", "n"], bias: og.Tensor["n"]):
    y = og.dot(a, b, over="k")
    return og.results(relu=og.max(y, 0.0), low=og.min(y, bias), high=og.max(bias, y))


OPS = [of_rows, of_columns, of_all, of_two, after_a_product]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from opsgen.compiler.compile import build

    found = tmp_path_factory.mktemp("extremes") / "extremes.so"
    build(OPS, found, [f"x86/{arch}" for arch in ARCHS], DTYPES)
    return found


@pytest.fixture(scope="module", params=ARCHS)
def lib(request: pytest.FixtureRequest, path: Path) -> Iterator[Any]:
    if request.param not in host_levels():
        pytest.skip(f"this CPU has no {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSGEN_CPU_LEVEL", request.param)
        found = og.load(path)
    yield found


def same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted, equal_nan=True)


def with_nan_at_each_place(n: int, dtype: str, nan: float = np.nan) -> Any:
    """Row i has a NaN at i; the last two have none and nothing but infinities."""
    x = np.random.default_rng(n).standard_normal((n + 2, n)).astype(dtype)
    x[np.arange(n), np.arange(n)] = nan
    x[n + 1] = np.inf * np.sign(x[n + 1])
    return x


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(lib: Any, dtype: str, n: int) -> None:
    for nan in (np.nan, -np.nan):
        x = with_nan_at_each_place(n, dtype, nan)
        assert np.isnan(x.max(-1)[:n]).all() and not np.isnan(x.max(-1)[n:]).any()
        same(lib.of_rows(x).high, x.max(-1))
        same(lib.of_rows(x).low, x.min(-1))
        columns = np.ascontiguousarray(x.T)
        same(lib.of_columns(columns).high, x.max(-1))
        same(lib.of_columns(columns).low, x.min(-1))
    for row in x:
        whole = np.stack([np.zeros_like(row), row, np.ones_like(row)])
        same(lib.of_all(whole).high, np.asarray(whole.max()))
        same(lib.of_all(whole).low, np.asarray(whole.min()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_over_nothing(lib: Any, dtype: str) -> None:
    found = lib.of_rows(np.empty((3, 0), dtype))
    assert (found.high == -np.inf).all() and (found.low == np.inf).all()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_maps(lib: Any, dtype: str, n: int) -> None:
    x, y = with_nan_at_each_place(n, dtype), with_nan_at_each_place(n, dtype)[::-1].copy()
    for a, b in ((x, y), (y, x), (x, x)):
        found = lib.of_two(a, b)
        same(found.high, np.maximum(a, b))
        same(found.low, np.minimum(a, b))
        same(found.relu, np.maximum(a, np.zeros_like(a)))
        clamped = np.minimum(np.maximum(a, -np.ones_like(a)), np.ones_like(a))
        same(found.clamped, clamped)
        same(found.clamped_by, clamped)


@pytest.mark.parametrize("dtype", DTYPES)
def test_after_a_product(lib: Any, dtype: str) -> None:
    for n in LENGTHS:
        y = with_nan_at_each_place(n, dtype)[: n + 1]
        bias = np.linspace(-1, 1, n).astype(dtype)
        bias[n // 3] = np.nan
        for row in y:  # the product has one term: b's row, with a NaN at each place of a vector
            found = lib.after_a_product(np.ones((5, 1), dtype), row[None], bias)
            rows = np.tile(row, (5, 1))
            same(found.relu, np.maximum(rows, np.zeros_like(rows)))
            same(found.low, np.minimum(rows, bias))
            same(found.high.T, np.maximum(bias, rows))
