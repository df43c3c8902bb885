"""Kernels for NVIDIA GPUs, run on the CPU (emulated.py): what they compute, and what launcher and driver do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import opsgen as og
from tests.cuda import cases, emulated
from tests.x86 import random_ops

PLAIN = [n for n in cases.OPS if not n.endswith("attention")]


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        yield


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    names = ["softmax", "linear", "layer_norm", "gelu", "embedding", "masked_mean_pool", "masked_attention"]
    return emulated.compile(cases.items(names), tmp_path_factory.mktemp("cuda"), "cuda/sm_80")


@pytest.mark.parametrize("name", ["softmax", "linear", "layer_norm", "gelu", "masked_mean_pool", "masked_attention"])
def test_ops(lib: Any, name: str) -> None:
    before = emulated.driver().kernels_launched()
    for given in cases.calls(name, "float32"):
        cases.check(lib, cases.OPS[name], given)
    assert emulated.driver().kernels_launched() > before
    assert emulated.driver().allocations_held() == 0


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_long_rows(lib: Any, name: str) -> None:
    for given in cases.long_calls(name, "float32", (64, 1023, 2048, 4099, 20000, 60001)):
        cases.check(lib, cases.OPS[name], given)


def test_rows_that_arrive_while_others_are_worked_on(tmp_path: Path) -> None:
    """Several rows a block, which begin where memory is aligned and elsewhere."""
    items = [og.variant(cases.OPS["layer_norm"], absent=["residual"], dtype="float32")]
    lib = emulated.compile(items, tmp_path)
    rng = np.random.default_rng(2)
    for columns in (9000, 9001, 16384, 20000):
        x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, columns), columns))
        cases.check(lib, cases.OPS["layer_norm"], {"x": x, "weight": weight, "bias": weight, "eps": 1e-5})


def test_tiles(lib: Any) -> None:
    for given in cases.linear_calls("float32"):
        cases.check(lib, cases.OPS["linear"], given)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(dtype: str, tmp_path: Path) -> None:
    names = ["softmax", "linear", "gelu"]
    lib = emulated.compile(cases.items(names), tmp_path, "cuda/sm_80", dtypes=[dtype])
    for name in names:
        for given in cases.calls(name, dtype):
            cases.check(lib, cases.OPS[name], given)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", cases.OPS)
def test_every_op(name: str, dtype: str, tmp_path: Path) -> None:
    lib = emulated.compile(cases.items([name]), tmp_path, "cuda/sm_80", dtypes=[dtype])
    for given in cases.calls(name, dtype):
        cases.check(lib, cases.OPS[name], given)


def test_ops_of_users(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lib = emulated.compile([*cases.USERS.values()], tmp_path, "cuda/sm_80")
    for name, op in cases.USERS.items():
        if name != "shift":
            for given in cases.user_calls(name, rng):
                cases.check(lib, op, given)
    ring, x = rng.standard_normal((5, 7)).astype(np.float32), np.ones(7, np.float32)
    wanted = np.concatenate([ring[1:], x[None]])
    lib.shift(ring, x)
    np.testing.assert_array_equal(ring, wanted)


@pytest.mark.parametrize("first", [32, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_ops(first: int, tmp_path: Path) -> None:
    """Ops that nobody wrote (tests/x86/random_ops.py)."""

    def build(ops: Any, target: str) -> Any:
        return emulated.compile(ops, Path(tempfile.mkdtemp(dir=tmp_path)))

    count = 6 if first < 1000 else 60
    with mock.patch.object(og, "compile", build):
        failures, checked, total = random_ops.run_batch(list(range(first, first + count)), calls=3)
    assert not failures, "\n\n".join(map(str, failures))
    assert checked > 0.7 * total > 0


def test_memory_that_is_not_aligned_and_rows_with_gaps(lib: Any) -> None:
    rng = np.random.default_rng(1)
    wide = rng.standard_normal((5, 131)).astype(np.float32)
    for first in range(4):
        for last in (128, 127, 100):
            cases.check(lib, cases.OPS["softmax"], {"x": wide[:, first:last]})
    assert lib.stats["softmax"].copies_in == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinities_come_through(lib: Any) -> None:
    x = np.array([[1.0, np.nan, 2.0, 0.5], [np.inf, 1.0, 2.0, 3.0], [-np.inf, 0.0, 1.0, 2.0]], np.float32)
    y = lib.softmax(x)
    assert np.isnan(y[:2]).all()
    np.testing.assert_allclose(y[2], np.r_[0.0, np.exp([0.0, 1, 2]) / np.exp([0.0, 1, 2]).sum()], rtol=1e-6)


def test_a_gather_past_the_end_reads_the_last_row(lib: Any) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = lib.embedding(np.array([0, 3, 4, -1, 2**40]), table)
    np.testing.assert_array_equal(found, table[[0, 3, 3, 0, 3]])
    with pytest.raises(og.errors.CallError, match="E4009"):
        lib.embedding(np.array([0]), np.zeros((0, 3), np.float32))


# -- the launcher and the driver ---------------------------------------------------------------------------------------
def test_kernels_are_loaded_once_and_when_they_are_needed(tmp_path: Path) -> None:
    before = emulated.driver().modules_loaded()
    lib = emulated.compile([cases.OPS["relu"]], tmp_path)
    assert emulated.driver().modules_loaded() == before
    for _ in range(3):
        lib.relu(np.ones(5, np.float32))
    assert emulated.driver().modules_loaded() == before + 1


def test_the_best_arch_for_the_device(tmp_path: Path) -> None:
    def arch(capability: int) -> str:
        emulated.pretend(capability=capability)
        lib = og.load(path)
        lib.relu(np.ones(5, np.float32))
        [plan] = lib._ops["relu"]._plans.values()
        [name] = {c.kernel.arch for c in lib._ops["relu"].candidates if c.launch is plan.launch}
        return name

    emulated.compile([cases.OPS["relu"]], tmp_path, "cuda/sm_80,cuda/sm_89,cuda/sm_90a")
    found = {}
    for capability in (80, 86, 89, 90):  # a launcher asks a device once: each time another file
        path = tmp_path / f"{capability}.so"
        path.write_bytes((tmp_path / "library.so").read_bytes())
        found[capability] = arch(capability)
    assert found == {80: "sm_80", 86: "sm_80", 89: "sm_89", 90: "sm_90a"}


def test_a_device_that_the_file_has_nothing_for(tmp_path: Path) -> None:
    emulated.pretend(capability=75)
    lib = emulated.compile([cases.OPS["relu"]], tmp_path, "cuda/sm_80,cuda/sm_90a")
    with pytest.raises(og.errors.CallError) as caught:
        lib.relu(np.ones(5, np.float32))
    assert str(caught.value).startswith(
        "E4026: relu: argument 'x' is on cpu, which has compute capability 7.5; this library holds kernels for "
        "cuda/sm_80 and cuda/sm_90a."
    )


def test_no_memory_for_workspace(tmp_path: Path) -> None:
    lib = emulated.compile([cases.OPS["masked_mean_pool"]], tmp_path)
    emulated.pretend(capability=80, free=100)
    with pytest.raises(og.errors.ResourceError) as caught:
        lib.masked_mean_pool(np.ones((40, 3, 5), np.float32), np.ones((40, 3), bool))
    assert str(caught.value).startswith("E6002: masked_mean_pool: 192 bytes of device memory are needed, 100 are free.")


def test_a_launch_that_the_driver_refuses(tmp_path: Path) -> None:
    lib = emulated.compile([cases.OPS["masked_mean_pool"]], tmp_path)
    emulated.driver().refuse_launches(700)
    try:
        with pytest.raises(og.errors.ResourceError) as caught:
            lib.masked_mean_pool(np.ones((2, 3, 5), np.float32), np.ones((2, 3), bool))
    finally:
        emulated.driver().refuse_launches(0)
    assert str(caught.value).startswith(
        "E6004: masked_mean_pool: the CUDA driver refused launching a kernel (CUDA_ERROR_PRETENDED: a pretended error)."
    )
    assert emulated.driver().allocations_held() == 0


def test_arrays_of_other_frameworks_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opsgen.runtime.dlpack_arrays import DLPackAdapter

    class Foreign:
        def __dlpack__(self) -> None:
            """Never asked for."""

    monkeypatch.setattr(DLPackAdapter, "describe", lambda self, value: _on_gpu(value))
    lib = emulated.compile([cases.OPS["relu"]], tmp_path)
    with pytest.raises(og.errors.CallError, match=r"E4017: relu: argument 'x' is an array of cupy on cuda:0; wanted"):
        lib.relu(Foreign())


def _on_gpu(value: Any) -> Any:
    from opsgen.runtime.arrays import ArrayInfo

    return ArrayInfo((3,), (1,), "float32", "cuda:0", "cupy", True, True)


def test_an_old_driver(tmp_path: Path) -> None:
    import subprocess
    import sys

    emulated.compile([cases.OPS["relu"]], tmp_path)
    code = (
        "import sys, numpy as np, opsgen as og\nfrom tests.cuda import emulated\n"
        "with emulated.on_cpu():\n    emulated.pretend(version=12080)\n    lib = og.load(sys.argv[1])\n"
        "    try:\n        lib.relu(np.ones(3, np.float32))\n    except og.errors.TargetError as e:\n        print(e)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "library.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "E2004: this machine's NVIDIA driver is one for CUDA 12.8; cuda needs CUDA 13.0. Update it,"
    )


def test_threads_of_a_row_have_one_total(tmp_path: Path) -> None:
    """Teams of 5, 6, 10 and 12 warps, too, whose totals are added up by groups of 8 or 16 lanes."""
    lib = emulated.compile([og.variant(cases.row_totals, dtype="float32")], tmp_path, "cuda/sm_80")
    for columns in (2048, 2304, 2560, 3072, 4096, 5120):
        y = lib.row_totals(np.random.default_rng(0).standard_normal((20, columns)).astype(np.float32))
        assert all(len(np.unique(row)) == 1 for row in y), columns
