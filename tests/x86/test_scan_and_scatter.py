"""Scans and scatters on x86 against float64, within the bounds of an error analysis."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.lowering.error_bounds import bounded
from opsgen.runtime.host import host_levels
from tests import scans_and_scatters as made

OPS = {op.name: op for op in (*made.SCANS, *made.SCATTERS)}
LONG = ((1, 70_001), (3, 40_000), (65, 17_000))
"""Lines and lengths around what is cut into chunks."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from opsgen.compiler.compile import build

    path = tmp_path_factory.mktemp("scans") / "scans.so"
    build(
        [*OPS.values(), *made.UPDATES, *made.SETS], path, ["x86/avx2", "x86/avx512"], ["float32", "bfloat16", "float64"]
    )
    return path


@pytest.fixture(scope="module", params=["avx2", "avx512"])
def lib(request: pytest.FixtureRequest, path: Path) -> Any:
    if request.param not in host_levels():
        pytest.skip(f"this CPU has no {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSGEN_CPU_LEVEL", request.param)
        return og.load(path)


def check(lib: Any, name: str, arguments: dict[str, Any]) -> None:
    got = lib[name](**arguments)
    results = got if isinstance(got, tuple) else (got,)
    for (result, bound), y in zip(bounded(OPS[name], arguments).items(), results, strict=True):
        bad = bound.wrong(y)
        assert not len(bad), (
            f"{name}.{result}: {len(bad)} of {y.size} wrong, first at {tuple(bad[0])}: {y[tuple(bad[0])]} where "
            f"{bound.value[tuple(bad[0])]} ± {bound.bound[tuple(bad[0])]:.2e} is right; "
            f"{ {n: x.shape for n, x in arguments.items()} }"
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", [op.name for op in made.SCANS])
def test_scans(lib: Any, name: str, dtype: str) -> None:
    for arguments in made.scan_calls(name, dtype, LONG if name in ("rows", "columns", "backwards") else ()):
        check(lib, name, arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", [op.name for op in made.SCATTERS])
def test_scatters(lib: Any, name: str, dtype: str) -> None:
    for n, m, v in made.SCATTER_SIZES:
        check(lib, name, made.scatter_arguments(name, n, m, v, dtype))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([op.name for op in made.SCANS]), st.integers(0, 90), st.integers(0, 500), st.integers(0, 9))
def test_scans_of_any_size(path: Path, name: str, lines: int, n: int, seed: int) -> None:
    check(og.load(path), name, made.scan_arguments(name, lines, n, "float32", seed))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([op.name for op in made.SCATTERS]),
    st.integers(0, 200), st.integers(0, 90), st.integers(0, 40), st.integers(0, 9),
)  # fmt: skip
def test_scatters_of_any_size(path: Path, name: str, n: int, m: int, v: int, seed: int) -> None:
    check(og.load(path), name, made.scatter_arguments(name, n, m, v, "float32", seed))


def test_memory_that_is_not_contiguous(lib: Any) -> None:
    wide = np.random.default_rng(2).standard_normal((70, 140)).astype(np.float32)
    for x in (wide[:, 3:99], wide.T[5:80], wide[::2, ::3], np.asfortranarray(wide)):
        check(lib, "columns", {"x": x})
        check(lib, "rows", {"x": x})


def test_the_error_of_a_long_sum_does_not_grow_with_its_length(lib: Any) -> None:
    """0.1 is not a float32: in float32 alone, the sum of a million of them is off by more than a hundredth."""
    x = np.full((1, 1_000_000), 0.1, np.float32)
    wanted = np.cumsum(x, 1, dtype=np.float64)
    for y in (lib.rows(x).total, lib.columns(np.ascontiguousarray(x.T)).T):
        assert np.max(np.abs(y / wanted - 1)) < 4 * 2.0**-24
    count = lib.spread(
        np.ones((20_000_000, 1), np.float32), np.zeros(20_000_000, np.int64), np.zeros((1, 1), np.float32)
    )
    assert count.weight[0] == 20_000_000  # which adding ones in float32 does not reach


def test_nan_and_infinities(lib: Any) -> None:
    x = np.random.default_rng(3).standard_normal((3, 50)).astype(np.float32)
    x[0, 20], x[1, 7], x[2, 30], x[2, 40] = np.nan, np.inf, np.inf, -np.inf
    high = np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1]
    np.testing.assert_array_equal(lib.backwards(x).high, high)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(lib.rows(x).total), np.isnan(np.cumsum(x, 1)))
    found = lib.spread(x, np.array([1, 0, 1]), np.zeros((3, 50), np.float32))
    np.testing.assert_array_equal(found.high, [x[1], np.maximum(x[0], x[2]), np.full(50, -np.inf)])


_ONE = """
import hashlib, sys
import numpy as np, opsgen as og
lib = og.load(sys.argv[1])
x = np.random.default_rng(4).standard_normal((3, 200_000)).astype(np.float32)
i = np.random.default_rng(5).integers(0, 40, 3000)
results = [*lib.rows(x), *lib.spread(x.reshape(-1, 200), i, np.zeros((40, 200), np.float32))]
print(hashlib.sha256(b"".join(np.ascontiguousarray(r).tobytes() for r in results)).hexdigest())
"""


def test_sums_are_the_same_for_any_number_of_threads(path: Path) -> None:
    found = []
    for threads in ("1", "2", "5"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", _ONE, str(path)]
        found.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found[0]) == 65 and found == found[:1] * 3


def test_updates_in_place(lib: Any) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 100)).astype(np.float32)
    wanted = np.cumsum(x, 1, dtype=np.float64) + x
    lib.updated(x)
    np.testing.assert_allclose(x, wanted, rtol=1e-5, atol=1e-5)
    table, y, i = rng.standard_normal((4, 20)), rng.standard_normal((9, 20)), rng.integers(0, 4, 9)
    wanted = table.copy()
    np.add.at(wanted, i, y * table[i])
    lib.cache(table, y, i)
    np.testing.assert_allclose(table, wanted, rtol=1e-12)


@pytest.mark.parametrize("dims", [{"n": 5}, {"n": 40_000}, {"n": 5, "m": 33}])
def test_bound_dims(dims: dict[str, int]) -> None:
    lib = og.compile([made.columns, made.rows], target="x86", dims=dims)
    n, m = dims["n"], dims.get("m", 3)
    check(lib, "rows", made.scan_arguments("rows", 2, n, "float32"))
    check(lib, "columns", made.scan_arguments("columns", m, n, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("op", made.SETS, ids=lambda op: op.name)
def test_rows_that_are_set(lib: Any, op: og.Op, dtype: str) -> None:
    for seed, (n, m, v) in enumerate(made.SET_SIZES):
        given = made.set_arguments(op, n, m, v, dtype, seed)
        made.check_set(lib, op, given, {"float32": 2.0**-22, "bfloat16": 2.0**-8, "float64": 2.0**-50}[dtype])


def test_a_strided_cache_and_one_that_overlaps_what_is_set(lib: Any) -> None:
    wide = np.zeros((9, 2, 40), np.float32)
    x, i = np.ones((2, 2, 5), np.float32), np.array([4, 8])
    lib.rows_set(wide[:, :, 3:8], x, i)
    assert wide[[4, 8], :, 3:8].all() and wide.sum() == x.sum()
    for cache, rows in ((wide, wide[:2]), (wide[:, :, :20], wide[:2, :, 10:30])):
        before = wide.copy()
        with pytest.raises(og.OpsgenError, match="E40"):
            lib.rows_set(cache, rows, i)
        assert np.array_equal(wide, before)
    with pytest.raises(og.OpsgenError, match="E4010"):
        lib.rows_set(wide, wide[:0].copy(), i[:0])


@og.op
def renamed(x: og.Tensor["a", "b"]):
    """A scan whose operand has a dim under another name in memory."""
    t = og.rename(x, b="n")
    return og.results(minus=1.0 - t, scanned=og.cumsum(t, over="a") - t)


def test_a_dim_under_another_name() -> None:
    x = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    for name, got in og.compile(renamed)["renamed"](x)._asdict().items():
        assert not len(bounded(renamed, {"x": x})[name].wrong(got))


@og.op
def followed(k: og.Tensor["a", og.int32]):
    """An array read at positions that are its own elements."""
    return og.cast(k.at(a=k), "float32") * 0.1


def test_bounds_of_an_array_read_at_its_own_elements() -> None:
    k = np.array([3, 0, 2, 1], np.int32)
    (bound,) = bounded(followed, {"k": k}).values()
    np.testing.assert_allclose(bound.value, k[k] * 0.1)
    assert not len(bound.wrong(og.compile(followed)["followed"](k)))


@og.op
def masked(m: og.Tensor["a", og.bool_], x: og.Tensor["a"]):
    """A result that stands in for infinity, and is rounded as any other."""
    return og.where(m, x, -1e30)


def test_bounds_of_a_stand_in_for_infinity() -> None:
    given = {"m": np.array([True, False]), "x": np.array([2.0, 3.0], np.float32)}
    (bound,) = bounded(masked, given).values()
    assert not len(bound.wrong(og.compile(masked)["masked"](**given)))
    assert len(bound.wrong(np.array([2.0, -1.00001e30], np.float32))) == 1
    assert len(bound.wrong(np.array([2.000001, -1e30], np.float32))) == 1
