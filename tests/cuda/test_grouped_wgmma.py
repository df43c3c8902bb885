"""Grouped contractions on sm_90a's tensor cores: what is served, which kernel a call gets, what it compiles to."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.dsl.op import Op
from opsgen.ops.grouped_linear import grouped_linear
from opsgen.targets.cuda import codegen
from tests import grouped_ops
from tests.cuda.test_wgmma import HERE, nvcc, on_a_gpu, plan_of, schedule_of  # noqa: F401
from tests.grouped_inputs import OFFSETS, arguments

ALONE = og.variant(grouped_linear, absent=["bias", "scale"], activation="none")
ALL = og.variant(grouped_linear, absent=[], activation="gelu")


@og.op
def product_of_a_sum(
    x: og.Tensor["n", "k"], y: og.Tensor["n", "k"], w: og.Tensor["g", "c", "k"], offsets: og.Tensor["m", og.int64]
) -> og.Tensor:
    return og.dot(x + y, w.at(g=og.segment(offsets, "n")), over="k")


@og.op
def updated(
    y: og.Mut["n", "c"], x: og.Tensor["n", "k"], w: og.Tensor["g", "c", "k"], offsets: og.Tensor["m", og.int64]
) -> og.Results:
    """TMA stores no updates."""
    return og.results(y=y + og.dot(x, w.at(g=og.segment(offsets, "n")), over="k"))


@pytest.mark.parametrize(
    ("op", "dtype", "arch", "schedule"),
    [
        (ALONE, "bfloat16", "sm_90a", "cuda.grouped_wgmma"),
        (ALL, "float16", "sm_90a", "cuda.grouped_wgmma"),
        (grouped_ops.gated, "bfloat16", "sm_90a", "cuda.grouped_wgmma"),
        (grouped_ops.by_sorted_ids, "bfloat16", "sm_90a", "cuda.grouped_wgmma"),
        (ALONE, "float32", "sm_90a", "cuda.grouped_contraction"),
        (ALONE, "bfloat16", "sm_80", "cuda.grouped_contraction"),
        (grouped_ops.turned, "bfloat16", "sm_90a", "cuda.grouped_contraction"),
        (grouped_ops.in_runs, "bfloat16", "sm_90a", "cuda.grouped_contraction"),  # a batch beside the groups
        (grouped_ops.by_any_ids, "bfloat16", "sm_90a", "cuda.row_reduction"),
    ],
)
def test_what_the_tensor_cores_are_given(op: Any, dtype: str, arch: str, schedule: str) -> None:
    assert schedule_of(op, dtype, arch) == schedule


@pytest.mark.parametrize(
    ("tokens", "experts", "columns", "summed", "kernel"),
    [
        (16384, 8, 14336, 4096, "wgmma_alternating"),
        (8192, 64, 1408, 2048, "wgmma_alternating"),
        (4000, 16, 1032, 4104, "wgmma_shared_pair"),  # rows that begin within lines of 128 bytes
        (2000, 16, 1032, 4104, "wgmma_shared"),  # groups of fewer rows than a pair of tiles has
        (300, 8, 14336, 4096, "wgmma_small"),
        (512, 8, 64, 64, "wgmma_small"),
        (513, 8, 64, 64, "wgmma_alternating"),
        (300, 1, 7, 64, "small"),  # an odd number of columns
        (300, 1, 64, 0, "small"),  # a sum of nothing
    ],
)
def test_shapes_choose_kernels(tokens: int, experts: int, columns: int, summed: int, kernel: str) -> None:
    plan = plan_of(ALONE)
    dims = {
        "tokens": tokens, "experts": experts, "offsets": experts + 1, "out_features": columns, "in_features": summed,
    }  # fmt: skip
    launches = [x for x in plan.launches if x.choice and "_g1_" in x.name]  # the first group finds the segments
    assert _chosen(launches, dims) == kernel
    assert not _chosen(launches, dims, aligned=False).startswith("wgmma")


def _chosen(launches: Any, dims: dict[str, int], aligned: bool = True) -> str:
    def meets(launch: Any) -> bool:
        values = ((extent.evaluate(dims), sign, limit) for extent, sign, limit in launch.when)
        return all(a <= b if sign == "<=" else a > b for a, sign, b in values) and (aligned or not launch.aligned)

    return str(next(x for x in launches if meets(x)).name.partition("_g1_")[2])


def test_results_that_tma_cannot_store_are_left_to_the_plain_kernels() -> None:
    assert not any(x.maps for x in plan_of(updated).launches)


@pytest.mark.parametrize(
    ("op", "dtype"), [(ALONE, "bfloat16"), (ALL, "float16"), (grouped_ops.by_sorted_ids, "bfloat16")]
)
def test_kernels_compile_without_spills(op: Op, dtype: str, nvcc: Any) -> None:  # noqa: F811
    plan = plan_of(op, dtype)
    kernels = {x.name: x for x in plan.launches if x.maps}
    assert len(kernels) == 4
    found = codegen.sources({name: x.function for name, x in kernels.items()}, "sm_90a")
    _, used = codegen.compile_units([source for _, source in codegen.units(found)], "sm_90a", nvcc)
    for name in kernels:
        assert (used[name].spilled, used[name].stack) == (0, 0), name
    for source in found.values():  # full boxes by TMA, the last rows of a group from registers
        assert "bulk_tensor_s2g" in source and "og_store_word(" in source


_CALLS = """
import ctypes, sys
from unittest import mock
import numpy as np
import opsgen as og
from opsgen.runtime import selection

driver = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
driver.last_kernel.restype = ctypes.c_char_p
random = np.random.default_rng(1)
with mock.patch.dict(selection._KINDS, {"cpu": ("cuda",)}):
    library = og.load(sys.argv[2])
    for m, g, n, k, pitch in ((9, 2, 8, 8, 8), (300, 3, 264, 72, 80), (70, 1, 130, 64, 64), (40, 2, 64, 20, 20)):
        x = random.standard_normal((m, pitch)).astype(np.float16)[:, :k]
        w = random.standard_normal((g, n, pitch)).astype(np.float16)[..., :k]
        found = library.grouped_linear(x, w, np.zeros(g + 1, np.int64))
        kernel = driver.last_kernel().decode().partition("_g1_")[2]
        wanted = np.stack([x[i].astype(np.float32) @ w[i % g].astype(np.float32).T for i in range(m)])
        print(m, g, n, k, kernel, driver.last_blocks(), np.allclose(found, wanted, atol=0.02, rtol=0.01))
"""


def test_launchers_tell_tma_where_the_groups_lie(nvcc: Any, tmp_path: Path) -> None:  # noqa: F811
    """The stand-in for the driver gives row i the matrix of group i modulo their number."""
    driver, library, script = tmp_path / "libcuda.so.1", tmp_path / "library.so", tmp_path / "calls.py"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["g++", *flags, str(HERE / "multiplying_driver.cc"), "-o", str(driver)], check=True)
    og.compile([ALONE], target="cuda/sm_90a", dtypes=["float16"]).save(library)
    script.write_text(_CALLS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(driver), str(library)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "9 2 8 8 wgmma_small 2 True",
        "300 3 264 72 wgmma_shared 10 True",  # rows further apart than they are long
        "70 1 130 64 small 6 False",  # rows of the result are not multiples of 16 bytes
        "40 2 64 20 any 2 False",
    ]


@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
@pytest.mark.parametrize("op", [ALONE, ALL])
def test_results_on_a_gpu(op: Any, offsets: list[int], tmp_path: Path) -> None:
    if not on_a_gpu():
        pytest.skip("no GPU of compute capability 9.0")
    import torch

    og.compile([op], target="cuda/sm_90a", dtypes=["bfloat16"]).save(tmp_path / "library.so")
    library = og.load(tmp_path / "library.so")
    for columns, summed in ((8, 8), (264, 72), (1000, 136)):
        call = arguments(offsets, columns, summed, "float32", tuple(op.absent))
        tensors = {n: torch.tensor(x, device="cuda") for n, x in call.items()}
        tensors = {n: t.bfloat16() if t.is_floating_point() else t for n, t in tensors.items()}
        found = library.grouped_linear(**tensors, **op.attributes).double().cpu().numpy()
        exact = {n: (t.double() if t.is_floating_point() else t).cpu().numpy() for n, t in tensors.items()}
        wanted = grouped_linear.expected(**exact, **op.attributes)
        # Half an ulp of bfloat16, and float32 sums of products of standard normals before that.
        assert np.all(np.abs(found - wanted) <= np.abs(wanted) * 2.0**-8 + summed * 2.0**-24 * 8 + 2.0**-16)
