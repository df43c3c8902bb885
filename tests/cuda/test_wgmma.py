"""The tensor-core contraction on sm_90a: what it serves, which kernel a call gets, what it compiles to, its numbers."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.plan import Plan, make_plan
from opsgen.compiler.problem import Variant, enumerate_problems, variant
from opsgen.dsl.op import Op
from opsgen.lowering.kernel import Launch
from opsgen.ops.linear import linear
from opsgen.schedules.cuda import half_results, tiles
from opsgen.targets.cuda import codegen, toolchain
from opsgen.targets.names import parse

HERE = Path(__file__).parent
ALONE = variant(linear, absent=["bias", "residual"], activation="none")
BIAS = variant(linear, absent=["residual"], activation="none")
RESIDUAL = variant(linear, absent=[], activation="gelu")
TANH = variant(linear, absent=["residual"], activation="gelu_tanh")


@og.op
def times(x: og.Tensor["rows", "inner"], w: og.Tensor["inner", "columns"]):
    """y = x · w"""
    return og.dot(x, w, over="inner")


@og.op
def gradient(x: og.Tensor["inner", "rows"], w: og.Tensor["inner", "columns"]):
    """y = xᵀ · w"""
    return og.dot(x, w, over="inner")


@og.op
def project(
    x: og.Tensor["batch", "queries", "inner"], w: og.Tensor["heads", "width", "inner"], b: og.Tensor["heads", "width"]
):
    """y = x · wᵀ + b, for each head"""
    return og.dot(x, w, over="inner") + b


@og.op
def scores(q: og.Tensor["batch", "queries", "inner"], k: og.Tensor["batch", "keys", "inner"]):
    """s = q · kᵀ in float32"""
    return og.cast(og.dot(q, k, over="inner"), og.float32)


@og.op
def wide(x: og.Tensor["rows", "inner"], w: og.Tensor["columns", "inner"]):
    """y = x · wᵀ in float32"""
    return og.cast(og.dot(x, w, over="inner"), og.float32)


@og.op
def two(
    x: og.Tensor["rows", "inner"], w: og.Tensor["columns", "inner"], residual: og.Tensor["rows", "columns", og.float32]
):
    """y = x · wᵀ + residual in float32, and rounded"""
    y = og.dot(x, w, over="inner") + residual
    return og.results(y=y, h=og.cast(y, x.dtype))


@og.op
def transposed(x: og.Tensor["rows", "inner"], w: og.Tensor["columns", "inner"]):
    """y = w · xᵀ, of which the rows are the left operand's"""
    return og.transpose(og.dot(x, w, over="inner"), "columns", "rows")


@og.op
def of_a_sum(x: og.Tensor["rows", "inner"], y: og.Tensor["rows", "inner"], w: og.Tensor["columns", "inner"]):
    """(x + y) · wᵀ"""
    return og.dot(x + y, w, over="inner")


_plans: dict[tuple[object, ...], Plan] = {}


def plan_of(op: Op | Variant, dtype: str = "bfloat16", arch: str = "sm_90a", **dims: int) -> Plan:
    """The plan; each is made once, for that takes seconds."""
    key = (id(op), dtype, arch, *dims.items())
    if key not in _plans:
        _plans[key] = make(op, dtype, arch, dims)
    return _plans[key]


def make(op: Op | Variant, dtype: str, arch: str, dims: Mapping[str, int]) -> Plan:
    [problem] = enumerate_problems([op], [dtype], dims)
    [target] = parse([f"cuda/{arch}"])
    return make_plan(problem, target)


def schedule_of(op: Op | Variant, dtype: str = "bfloat16", arch: str = "sm_90a") -> str:
    return plan_of(op, dtype, arch).steps[-1].schedule.name


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (ALONE, "bfloat16"),
        (TANH, "float16"),
        (times, "bfloat16"),
        (gradient, "float16"),
        (project, "bfloat16"),
        (scores, "bfloat16"),
    ],
)
def test_half_precision_parameters_go_to_the_tensor_cores(op: Op | Variant, dtype: str) -> None:
    assert schedule_of(op, dtype) == "cuda.wgmma"


@pytest.mark.parametrize(
    ("op", "dtype", "arch", "schedule"),
    [
        (ALONE, "float32", "sm_90a", "cuda.contraction"),
        (ALONE, "bfloat16", "sm_80", "cuda.mma"),
        (of_a_sum, "bfloat16", "sm_90a", "cuda.mma"),
    ],
)
def test_all_else_stays_with_other_schedules(op: Op | Variant, dtype: str, arch: str, schedule: str) -> None:
    assert schedule_of(op, dtype, arch) == schedule


def chosen(plan: Plan, dims: Mapping[str, int], aligned: bool = True) -> tuple[str, int]:
    """The kernel that a call runs, and the blocks of its clusters, as launchers choose: the cheapest of those with
    costs whose conditions it meets, else the first of the others.
    """

    def meets(launch: Launch) -> bool:
        values = ((extent.evaluate(dims), sign, limit) for extent, sign, limit in launch.when)
        return all(a <= b if sign == "<=" else a > b for a, sign, b in values) and (aligned or not launch.aligned)

    met = [launch for launch in plan.launches if meets(launch)]
    found = min(
        (x for x in met if x.cost is not None),
        key=lambda x: x.cost.evaluate(dims) if x.cost is not None else 0,
        default=met[0],
    )
    assert found.grid is not None
    return found.name.partition("_g0_")[2].removeprefix("wgmma_"), found.grid.cluster


@pytest.mark.parametrize(
    ("op", "m", "n", "k", "kernel"),
    [
        (ALONE, 1000, 1000, 1000, "small 2"),
        (ALONE, 64, 256, 264, "small_alone 1"),
        (ALONE, 128, 4096, 4096, "small_alone 1"),
        (ALONE, 64, 4096, 14336, "split 2"),
        (ALONE, 512, 512, 4096, "split 2"),  # 64 tiles
        (ALONE, 4096, 4096, 4096, "shared 2"),
        (ALONE, 16384, 1024, 1024, "shared 2"),
        (ALONE, 2048, 2048, 2048, "alternating 1"),  # as long as a pair, which starts later
        (ALONE, 8000, 8200, 7992, "shared 2"),
        (ALONE, 4000, 4104, 4160, "alternating_pair 2"),  # rows that begin at odd multiples of 128 bytes
        (ALONE, 1100, 1048, 968, "alternating 1"),  # too few blocks to ask for more lines than there are
        (ALONE, 2176, 1920, 2240, "alternating 1"),  # 72 pairs of shared tiles: the last 6 would run alone
        (BIAS, 16384, 4096, 1024, "alternating 1"),
        (BIAS, 16000, 4000, 1000, "shared 2"),  # rows that begin in the middle of lines
        (BIAS, 4096, 4096, 4096, "shared 2"),
        (TANH, 4096, 4096, 4096, "alternating 1"),
        (TANH, 8192, 8192, 8192, "shared 2"),
        (wide, 16384, 4096, 1024, "alternating 1"),
        (RESIDUAL, 16384, 4096, 1024, "alternating 1"),
        (RESIDUAL, 16300, 4040, 1048, "alternating_pair 2"),
        (ALONE, 16, 4096, 4096, "few_rows_16 1"),
        (ALONE, 17, 14336, 4096, "small_alone 1"),
        (ALONE, 4096, 4096, 0, "mma_large 1"),  # a sum of nothing
        (ALONE, 65, 0, 64, "mma_large 1"),
    ],
)
def test_shapes_choose_kernels(op: Op | Variant, m: int, n: int, k: int, kernel: str) -> None:
    dims = {"rows": m, "out_features": n, "in_features": k, "columns": n, "inner": k}
    assert "{} {}".format(*chosen(plan_of(op), dims)) == kernel
    assert chosen(plan_of(op), dims, aligned=False)[0] in ("few_rows_16", "few_rows_32", "mma_unaligned")


def test_bound_dims_leave_out_kernels() -> None:
    plan = plan_of(times, rows=4096, inner=4096, columns=4096)
    assert [launch.name.partition("_g0_")[2] for launch in plan.launches if launch.maps] == [
        "wgmma_shared",
        "wgmma_loose",
    ]


@pytest.mark.parametrize(("op", "stored"), [(ALONE, [2]), (wide, [4]), (two, [4, 2]), (scores, [4]), (transposed, [])])
def test_results_leave_by_tma_where_they_lie_along_columns(op: Op | Variant, stored: list[int]) -> None:
    launch = next(x for x in plan_of(op).launches if x.maps)
    assert [4 if m.dtype == "float32" else 2 for m in launch.maps[2:]] == stored
    assert all(m.box[:2] == (128 // size, 64) for m, size in zip(launch.maps[2:], stored, strict=True))


def test_results_that_tma_cannot_store_leave_one_by_one() -> None:
    loose = next(x for x in plan_of(ALONE).launches if "loose" in x.name)
    assert {(p.kind, p.name) for p, n in loose.aligned} == {
        ("input", "x"), ("input_stride", "x"), ("input", "weight"), ("input_stride", "weight"),
    }  # fmt: skip


@pytest.mark.parametrize(("kernel", "residual"), [("wgmma_alternating", 16), ("wgmma_split", 4)])  # by TMA; in pairs
def test_only_what_is_read_in_vectors_must_be_aligned(kernel: str, residual: int) -> None:
    launch = next(x for x in plan_of(RESIDUAL).launches if x.name.endswith(kernel))
    assert {(p.kind, p.name): n for p, n in launch.aligned if not p.dim} == {
        ("input", "x"): 16,
        ("input", "weight"): 16,
        ("result", "out"): 16,
        ("input", "bias"): 4,
        ("input", "residual"): residual,
    }


def test_what_an_epilogue_reads_of_each_sum_comes_by_tma() -> None:
    """Where there are boxes for it: not where blocks share a tile, or results are stored one by one."""
    brought = {
        x.name.partition("_g0_")[2]: [m for m in x.maps if m.name == "brought"] for x in plan_of(RESIDUAL).launches
    }
    fetching = {"wgmma_shared", "wgmma_alternating", "wgmma_alternating_pair", "wgmma_small", "wgmma_small_alone"}
    assert {name for name, maps in brought.items() if maps} == fetching
    assert all(m.box == (64, 64) and m.dtype == "bfloat16" for maps in brought.values() for m in maps)
    for op in (BIAS, two):  # nothing of the kind; a float32
        assert all(m.name != "brought" for x in plan_of(op).launches for m in x.maps)


def test_boxes_have_no_more_rows_than_there_are() -> None:
    for launch in plan_of(ALONE).launches:
        assert [m.clipped for m in launch.maps] == [m.name == "left" for m in launch.maps]
    assert not any(m.clipped for x in plan_of(gradient).launches for m in x.maps)  # their rows are the sum's


def test_forms_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AssertionError):
        tiles.Form(256, 256, stages=4)  # accumulators
    with pytest.raises(AssertionError):
        tiles.Form(128, 256, stages=6)  # shared memory
    with pytest.raises(AssertionError):
        tiles.Form(128, 64, stages=4, cluster=16)  # 4 rows are half of what is swizzled together
    with pytest.raises(AssertionError):
        tiles.Form(128, 256, stages=2, split=True)  # the ring does not hold the partial sums


# -- what it compiles to ----------------------------------------------------------------------------------------------
def sources(plan: Plan) -> dict[str, str]:
    return {
        launch.name.partition("_g0_")[2]: codegen.kernel_source(launch.name, launch.function, "sm_90a")
        for launch in plan.launches
        if launch.maps
    }


@pytest.mark.parametrize(("op", "left", "right"), [(ALONE, 0, 0), (times, 0, 1), (gradient, 1, 1)])
def test_operands_are_multiplied_as_they_lie(op: Op | Variant, left: int, right: int) -> None:
    for source in sources(plan_of(op)).values():
        assert re.search(rf"mma_async_sync_aligned_m64n\d+k16_f32_bf16_bf16_1_1_{left}_{right}\(", source)


def test_gelu_is_one_function_where_results_are_rounded_to_halves() -> None:
    assert "og_half_gated_erf_bfloat16_" in sources(plan_of(RESIDUAL))["wgmma_alternating"]
    assert "og_half_gated_erf_float16_" in sources(plan_of(RESIDUAL, "float16"))["wgmma_alternating"]
    assert "og_half_gated_tanh_of_" in sources(plan_of(TANH))["wgmma_alternating"]
    assert "og_half_" not in sources(plan_of(wide))["wgmma_alternating"]


@pytest.fixture(scope="module")
def nvcc() -> toolchain.Compiler:
    try:
        found = toolchain.compiler()
    except og.errors.TargetError as missing:
        pytest.skip(str(missing))
    if found.name != "nvcc":
        pytest.skip("NVRTC does not say what kernels use")
    return found


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (ALONE, "bfloat16"),
        (RESIDUAL, "bfloat16"),
        (TANH, "float16"),
        (gradient, "float16"),
        (project, "bfloat16"),
        (wide, "float16"),
        (two, "bfloat16"),
    ],
)
def test_kernels_compile_without_spills(op: Op | Variant, dtype: str, nvcc: Any, tmp_path: Path) -> None:
    plan = plan_of(op, dtype)
    kernels = {launch.name: launch for launch in plan.launches if launch.maps}
    found = codegen.sources({name: launch.function for name, launch in kernels.items()}, "sm_90a")
    images, used = codegen.compile_units([source for _, source in codegen.units(found)], "sm_90a", nvcc)
    assert set(used) == set(kernels)
    for name, launch in kernels.items():
        assert (used[name].spilled, used[name].stack) == (0, 0), name
        if launch.grid is not None and launch.grid.threads == 384:
            # 65536 registers for 384 threads, in steps of 8: setmaxnreg shares out what is known at entry.
            assert used[name].registers == 168
    if disassembler := shutil.which("nvdisasm"):
        (tmp_path / "kernels.cubin").write_bytes(images[0])
        command = [disassembler, "-c", str(tmp_path / "kernels.cubin")]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "HGMMA" in text and "USETMAXREG" in text and "UTMALDG" in text and "UTMASTG" in text


# -- how it is launched ---------------------------------------------------------------------------------------------
_CALLS = """
import ctypes, sys
from unittest import mock
import numpy as np
import opsgen as og
from opsgen.runtime import selection

driver = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)  # the launcher's dlopen finds it
driver.last_kernel.restype = ctypes.c_char_p
random = np.random.default_rng(1)
with mock.patch.dict(selection._KINDS, {"cpu": ("cuda",)}):
    library = og.load(sys.argv[2])
    sizes = (33, 8, 8, 8), (129, 264, 72, 80), (300, 130, 64, 64), (65, 64, 20, 20), (1, 8, 8, 8), (65, 72, 4104, 4104)
    for m, n, k, pitch in sizes:
        x, w = (random.standard_normal((rows, pitch)).astype(np.float16)[:, :k] for rows in (m, n))
        found = library.linear(x, w)
        kernel = driver.last_kernel().decode().partition("_g0_")[2]
        right = np.array_equal(found, (x.astype(np.float32) @ w.astype(np.float32).T).astype(np.float16))
        close = np.allclose(found, x.astype(np.float32) @ w.astype(np.float32).T, atol=0.02, rtol=0.01)
        print(m, n, k, kernel, driver.last_blocks(), driver.last_cluster(), bool(right or close))
        if kernel.startswith("wgmma") and "loose" not in kernel:
            found = library.wide(x, w)
            assert np.allclose(found, x.astype(np.float32) @ w.astype(np.float32).T, atol=1e-3, rtol=1e-3), (m, n, k)
            assert driver.last_kernel().decode().partition("_g0_")[2] == kernel
"""


def test_launchers_tell_tma_what_a_call_brings(nvcc: Any, tmp_path: Path) -> None:
    driver, library, script = tmp_path / "libcuda.so.1", tmp_path / "library.so", tmp_path / "calls.py"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["g++", *flags, str(HERE / "multiplying_driver.cc"), "-o", str(driver)], check=True)
    og.compile([ALONE, wide], target="cuda/sm_90a", dtypes=["float16"]).save(library)
    script.write_text(_CALLS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(driver), str(library)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "33 8 8 wgmma_small_alone 1 1 True",
        "129 264 72 wgmma_small_alone 9 1 True",  # rows further apart than they are long
        "300 130 64 wgmma_loose 6 1 False",  # rows of the result are not multiples of 16 bytes
        "65 64 20 mma_unaligned 1 1 False",
        "1 8 8 few_rows_8 1 1 False",
        "65 72 4104 wgmma_split 32 8 True",  # 4 tiles, each shared by 8 blocks
    ]


# -- numbers ----------------------------------------------------------------------------------------------------------
def test_erfc_is_within_what_a_half_type_shows() -> None:
    z = np.linspace(0, 9, 20001)
    t = 1 / (1 + half_results.ERFC_P * z)
    found = sum(c * t ** (i + 1) for i, c in enumerate(half_results.ERFC)) * np.exp(-z * z)
    wanted = np.array([math.erfc(x) for x in z])
    assert np.max(np.abs(found / wanted - 1)) < 2**-17


@pytest.mark.parametrize(("dtype", "near", "far"), [("float16", 2**-17, 2**-17), ("bfloat16", 2**-11.5, 2**-8.5)])
def test_gelu_is_within_what_a_half_type_shows(dtype: str, near: float, far: float) -> None:
    fit = half_results.LOG_NORMAL[dtype]
    z = np.linspace(0, fit.most, 20001, dtype=np.float32)
    power = np.zeros_like(z)
    for c in reversed(fit.coefficients):
        power = power * z + np.float32(c)
    wanted = np.array([math.erfc(x / math.sqrt(2)) / 2 for x in z.astype(np.float64)])
    error = np.abs(np.exp2(power.astype(np.float64)) / wanted - 1)
    assert np.max(error[z <= 6]) < near and np.max(error) < far
    # From the end on: less than half of the smallest number, or what float32 flushes to zero.
    assert fit.most * wanted[-1] < {"float16": 2.0**-25, "bfloat16": 2.0**-120}[dtype]


def test_arguments_of_tanh_that_are_polynomials_are_seen() -> None:
    graph = trace_of_polynomials()
    y = graph["y"]
    assert half_results.polynomial(graph["odd"], y) == pytest.approx((0, 0.5, 0, 0.125))
    assert half_results.polynomial(graph["mixed"], y) == pytest.approx((3, 2, 1))
    assert half_results.polynomial(graph["high"], y) is None
    assert half_results.polynomial(graph["other"], y) is None


def trace_of_polynomials() -> dict[str, Any]:
    found: dict[str, Any] = {}

    @og.op
    def polynomials(x: og.Tensor["n"], z: og.Tensor["n"]):
        """Sums and products of x, and of x and z."""
        found.update(y=x, odd=0.5 * (x + 0.25 * (x * x * x)), mixed=(x + 1.0) * (x + 1.0) + 2.0)
        found.update(high=x * x * x * x * x * x, other=x + z)
        return x

    enumerate_problems([polynomials], ["float32"], {})
    return found


def on_a_gpu() -> bool:
    torch = pytest.importorskip("torch")
    return bool(torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0))


@pytest.mark.parametrize(
    ("m", "n", "k"), [(9, 8, 8), (129, 264, 72), (1537, 1992, 520), (640, 4104, 4104), (130, 136, 1000), (77, 99, 101)]
)
@pytest.mark.parametrize("op", [ALONE, BIAS, RESIDUAL, TANH])
def test_results_on_a_gpu(op: Variant, m: int, n: int, k: int, tmp_path: Path) -> None:
    if not on_a_gpu():
        pytest.skip("no GPU of compute capability 9.0")
    import torch

    og.compile([op], target="cuda/sm_90a", dtypes=["bfloat16"]).save(tmp_path / "library.so")
    library = og.load(tmp_path / "library.so")
    random = np.random.default_rng(m + n + k)
    shapes = {"x": (m, k), "weight": (n, k), "bias": (n,), "residual": (m, n)}
    given = {name: shape for name, shape in shapes.items() if name not in (op.absent or ())}
    tensors = {
        name: torch.tensor(random.standard_normal(shape), dtype=torch.bfloat16, device="cuda")
        for name, shape in given.items()
    }
    found = library.linear(**tensors, **op.attributes).double().cpu().numpy()
    exact = {name: t.double().cpu().numpy() for name, t in tensors.items()}
    wanted = linear.reference(**exact, **op.attributes)
    # Half an ulp of bfloat16, and float32 sums of k products of standard normals before that.
    error = np.abs(found - wanted)
    assert np.all(error <= np.abs(wanted) * 2.0**-8 + k * 2.0**-24 * 8 + 2.0**-16)
