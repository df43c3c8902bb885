"""The k largest: their order, and what NaN, infinities and equals do to it, on every target."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.errors import OpsgenError
from opsgen.ops import top_k

ONES = (1, 3, 16)
"""Found one after the other; one more goes by blocks."""


def rows(n: int, dtype: type = np.float32) -> Any:
    x = np.random.default_rng(n).standard_normal((6, n)).astype(dtype)
    edges = [np.nan, -np.inf, np.inf, 0.0, -0.0, np.nan, -np.nan, 2.0**-149, -np.inf, np.inf]
    x[0, -10:] = np.array(edges).astype(dtype)
    x[1] = np.round(x[1])  # many equals
    x[2], x[3], x[4] = 0.0, -np.inf, np.nan
    x[2, ::2] = -0.0
    x[5] = np.sort(x[5])
    return x


def check(call: Any, x: Any, k: int) -> None:
    found, wanted = call(x, k=k), top_k.expected(x, k=k)
    for name in ("values", "indices"):
        y = found[name] if isinstance(found, dict) else getattr(found, name)
        np.testing.assert_array_equal(y, wanted[name].astype(y.dtype), err_msg=f"{name}, {k} of {x.shape[-1]}")


@pytest.mark.parametrize("k", [*ONES, 17])
def test_numpy(k: int) -> None:
    for n in (17, 64, 200):
        check(top_k.evaluate, rows(n), k)
        check(top_k.evaluate, rows(n, np.float64), k)


def test_x86() -> None:
    pytest.importorskip("tvm")
    lib = og.compile([og.variant(top_k, k=k, dtype="float32") for k in (3, 17)], target="x86")
    for k in (3, 17):
        for n in (17, 63, 64, 65, 1100, 1217):
            check(lib.top_k, rows(n), k)
        with pytest.raises(OpsgenError, match=rf"E4010.*columns >= {k}"):
            lib.top_k(rows(20)[:, : k - 1], k=k)
        assert lib.top_k(np.zeros((0, 40), np.float32), k=k).indices.shape == (0, k)
    wide = np.arange(3000.0, dtype=np.float32)
    x = np.stack([wide % 7, wide // 1000, wide % 1000])  # equals in many blocks
    check(lib.top_k, x, 17)


@pytest.mark.parametrize("k", [3, pytest.param(17, marks=pytest.mark.slow)])
def test_cuda_emulated(k: int, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    from tests.cuda import emulated

    with emulated.on_cpu():
        emulated.pretend(capability=80)
        lib = emulated.compile([og.variant(top_k, k=k)], tmp_path, "cuda/sm_80")
        for n in (17, 65, 700) if k == 3 else (130, 1217):
            check(lib.top_k, rows(n)[: 6 if k == 3 else 3], k)
