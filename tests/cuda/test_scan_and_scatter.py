"""Scans and scatters for NVIDIA GPUs, emulated and compiled: what they compute, and what their kernels take."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.problem import enumerate_problems
from tests import scans_and_scatters as made
from tests.cuda import cases, emulated
from tests.cuda.test_compile import check_resources

OPS = {op.name: op for op in (*made.SCANS, *made.SCATTERS)}


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        yield


@pytest.fixture(scope="module")
def lib() -> Any:
    with emulated.on_cpu():
        folder = Path(tempfile.mkdtemp(prefix="opsgen-scans-"))
        return emulated.compile([*OPS.values(), *made.UPDATES, *made.SETS], folder, "cuda/sm_80")


@pytest.mark.parametrize("name", [op.name for op in made.SCANS])
def test_scans(lib: Any, name: str) -> None:
    for given in made.scan_calls(name, "float32"):
        cases.check(lib, OPS[name], given)
    assert emulated.driver().allocations_held() == 0


@pytest.mark.parametrize(("lines", "n"), [(3, 4097), (2, 20_001)])
@pytest.mark.parametrize("name", ["rows", "backwards"])
def test_long_rows(lib: Any, name: str, lines: int, n: int) -> None:
    """Of several tiles; cut into chunks."""
    cases.check(lib, OPS[name], made.scan_arguments(name, lines, n, "float32"))


@pytest.mark.parametrize("n", [400, 1300])
@pytest.mark.parametrize("name", ["columns", "middle"])
def test_long_columns(lib: Any, name: str, n: int, lines: int = 33) -> None:
    """Of several tiles; cut into chunks."""
    cases.check(lib, OPS[name], made.scan_arguments(name, lines, n, "float32"))


@pytest.mark.parametrize("name", [op.name for op in made.SCATTERS])
def test_scatters(lib: Any, name: str) -> None:
    for n, m, v in made.SCATTER_SIZES:
        cases.check(lib, OPS[name], made.scatter_arguments(name, n, m, v, "float32"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_types(dtype: str, tmp_path: Path) -> None:
    names = ("backwards", "middle", "spread")
    lib = emulated.compile([OPS[n] for n in names], tmp_path, "cuda/sm_80", dtypes=[dtype])
    for name in names[:2]:
        for given in made.scan_calls(name, dtype):
            cases.check(lib, OPS[name], given)
    for n, m, v in made.SCATTER_SIZES:
        cases.check(lib, OPS["spread"], made.scatter_arguments("spread", n, m, v, dtype))


def test_memory_that_is_not_aligned(lib: Any) -> None:
    wide = np.random.default_rng(1).standard_normal((5, 1200)).astype(np.float32)
    for first in range(4):
        for x in (wide[:, first:1150], wide.T[5:600, first:4]):
            cases.check(lib, OPS["rows"], {"x": x})
            cases.check(lib, OPS["columns"], {"x": x})


def test_the_error_of_a_long_sum_does_not_grow_with_its_length(lib: Any) -> None:
    """0.1 is not a float32: in float32 alone, the sum of this many of them is off by more than a thousandth."""
    x = np.full((1, 200_000), 0.1, np.float32)
    wanted = np.cumsum(x, 1, dtype=np.float64)
    for y in (lib.rows(x).total, lib.columns(np.ascontiguousarray(x.T)).T):
        assert np.max(np.abs(y / wanted - 1)) < 16 * 2.0**-24


def test_updates_in_place(lib: Any) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 100)).astype(np.float32)
    wanted = np.cumsum(x, 1, dtype=np.float64) + x
    lib.updated(x)
    np.testing.assert_allclose(x, wanted, rtol=1e-5, atol=1e-5)
    table, y = (rng.standard_normal(s).astype(np.float32) for s in ((4, 50), (9, 50)))
    i = rng.integers(0, 4, 9)
    wanted = table.astype(np.float64)
    np.add.at(wanted, i, np.asarray(y * table[i], np.float64))
    lib.cache(table, y, i)
    np.testing.assert_allclose(table, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", made.SETS, ids=lambda op: op.name)
def test_rows_that_are_set(lib: Any, op: og.Op) -> None:
    for backwards in (0, 1):  # the last source stays, whichever block is the last
        emulated.driver().run_backwards(backwards)
        for seed, (n, m, v) in enumerate(made.SET_SIZES):
            made.check_set(lib, op, made.set_arguments(op, n, m, v, "float32", seed), 2.0**-20)
    emulated.driver().run_backwards(0)


def test_rows_of_halves_that_are_set(tmp_path: Path) -> None:
    op = made.set_and_read
    lib = emulated.compile([op], tmp_path, "cuda/sm_80", dtypes=["bfloat16"])
    for seed, (n, m, v) in enumerate(made.SET_SIZES):
        made.check_set(lib, op, made.set_arguments(op, n, m, v, "bfloat16", seed), 2.0**-8)


def test_rows_that_are_set_where_memory_is_not_aligned(lib: Any) -> None:
    wide = np.zeros((9, 2, 41), np.float32)
    x, i = np.ones((3, 2, 8), np.float32), np.array([4, -1, 8])
    for first in range(5):
        lib.rows_set(wide[:, :, first : first + 8], x * (first + 1), i)
        assert (wide[[4, 8], :, first : first + 8] == first + 1).all()
    assert wide.sum() == 4 * (1 + 2 + 3 + 4 + 5 * 8)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_do_not_spill(arch: str) -> None:
    """Of halves: test_every_schedule.py has those of float32."""
    check_resources(
        enumerate_problems([made.rows, made.middle, made.spread, made.set_and_read], ["bfloat16"], {}), arch
    )


def test_bound_dims_leave_one_kernel(tmp_path: Path) -> None:
    from opsgen.compiler.plan import make_plan
    from opsgen.targets.names import parse

    @og.op
    def f(x: og.Tensor["r", "n"]) -> og.Tensor:
        return og.cumsum(x, over="n")

    [target] = parse("cuda/sm_80")
    [problem] = enumerate_problems([f], ["float32"], {"n": 100})
    plan = make_plan(problem, target)
    assert [x.name.rsplit("_", 1)[1] for x in plan.launches] == ["warp"]
    assert plan.spaces == () and plan.slots() == []  # none for the kernels that are left out
