"""Tensor-core contractions on sm_90a of what is no half type: float8, 8-bit integers, and float32 as tf32."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import opsgen as og
from opsgen.compiler.compile import build
from opsgen.compiler.plan import Plan, make_plan
from opsgen.compiler.precision import Precision
from opsgen.compiler.problem import Variant, enumerate_problems
from opsgen.dsl.op import Op
from opsgen.ops import fp8_linear, int8_linear, linear
from opsgen.schedules.cuda import tiles
from opsgen.targets.cuda import codegen, toolchain
from opsgen.targets.names import parse
from tests.integer_products import int_mm, mixed_mm

HERE = Path(__file__).parent
EXACT, TF32, FAST = Precision(), Precision(float32_products="tf32"), Precision(float8_sums="fast")
FLOAT32 = og.variant(linear, absent=["bias", "residual"], activation="none", dtype="float32")
FLOAT8 = og.variant(fp8_linear, absent=["x_scale", "weight_scale", "bias"])
ROWS = og.variant(fp8_linear, absent=["scale"])
MIXED = og.variant(fp8_linear, absent=["scale", "x_scale", "weight_scale", "bias"], dtype={"weight": "float8_e5m2"})
INT8 = og.variant(int8_linear, absent=["bias"], out_dtype="bfloat16")


@og.op
def both_signs(x: og.Tensor["m", "k", og.int8], w: og.Tensor["n", "k", og.uint8]) -> og.Tensor:
    """x · wᵀ in int32."""
    return og.dot(x, w, over="k")


@og.op
def float32_across(x: og.Tensor["m", "k"], w: og.Tensor["k", "n"]) -> og.Tensor:
    """x · w, whose right operand is contiguous along its columns."""
    return og.dot(x, w, over="k")


_plans: dict[tuple[int, str, Precision], Plan] = {}


def plan_of(item: Op | Variant, allowed: Precision = EXACT, arch: str = "sm_90a") -> Plan:
    key = (id(item), arch, allowed)
    if key not in _plans:
        [problem] = enumerate_problems([item], ["float32"], {}, allowed)
        _plans[key] = make_plan(problem, parse([f"cuda/{arch}"])[0])
    return _plans[key]


def sources(plan: Plan) -> dict[str, str]:
    kernels = {launch.name: launch.function for launch in plan.launches if launch.maps}
    return codegen.sources(kernels, "sm_90a")


CASES = [
    (FLOAT8, EXACT, "k32_f32_e4m3_e4m3"),
    (FLOAT8, FAST, "k32_f32_e4m3_e4m3"),
    (MIXED, EXACT, "k32_f32_e4m3_e5m2"),
    (ROWS, EXACT, "k32_f32_e4m3_e4m3"),
    (int_mm, EXACT, "k32_s32_s8_s8"),
    (both_signs, EXACT, "k32_s32_s8_u8"),
    (INT8, EXACT, "k32_s32_s8_s8"),
    (FLOAT32, TF32, "k8_f32_tf32_tf32"),
]


@pytest.mark.parametrize(("item", "allowed", "instruction"), CASES)
def test_what_goes_to_the_tensor_cores(item: Op | Variant, allowed: Precision, instruction: str) -> None:
    plan = plan_of(item, allowed)
    assert plan.steps[-1].schedule.name == "cuda.wgmma"
    for source in sources(plan).values():
        assert set(re.findall(r"mma_async_sync_aligned_m64n\d+(k\w+?)(?:_1_1)?\(", source)) == {instruction}


@pytest.mark.parametrize(
    ("item", "allowed", "arch"),
    [
        (FLOAT32, EXACT, "sm_90a"),  # exact unless asked
        (FLOAT32, FAST, "sm_90a"),
        (FLOAT32, TF32, "sm_80"),
        (FLOAT8, EXACT, "sm_89"),
        (mixed_mm, EXACT, "sm_90a"),  # across the sum: of halves alone
        (float32_across, TF32, "sm_90a"),
    ],
)
def test_what_does_not(item: Op | Variant, allowed: Precision, arch: str) -> None:
    assert plan_of(item, allowed, arch).steps[-1].schedule.name != "cuda.wgmma"


def test_how_operands_are_moved() -> None:
    for item, dtype, box in ((FLOAT8, "float8_e4m3fn", 128), (int_mm, "int8", 128), (FLOAT32, "tfloat32", 32)):
        for launch in plan_of(item, TF32 if item is FLOAT32 else EXACT).launches:
            for m in launch.maps[:2]:
                assert (m.dtype, m.box[0]) == (dtype, box)  # 128 bytes


def test_sums_of_float8_are_apart_unless_they_may_be_fast() -> None:
    forms = tiles.forms(1, False, True)
    assert all(form.promoted for form in forms.values())
    exact, fast = (sources(plan_of(FLOAT8, allowed)) for allowed in (EXACT, FAST))
    apart = re.compile(r"float apart\w*\[(\d+)\]")

    def sizes(found: dict[str, str]) -> set[bool]:
        return {max(map(int, apart.findall(s)), default=0) > 1 for s in found.values()}

    assert sizes(exact) == {True} and sizes(fast) == {False}


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
    ("item", "allowed", "name"),
    [
        (ROWS, EXACT, "QGMMA"),
        (INT8, EXACT, "IGMMA"),
        (FLOAT32, TF32, "HGMMA"),
        (int_mm, EXACT, "IGMMA"),
    ],
)
def test_kernels_compile_without_spills(
    item: Op | Variant, allowed: Precision, name: str, nvcc: Any, tmp_path: Path
) -> None:
    plan = plan_of(item, allowed)
    images, used = codegen.compile_units([s for _, s in codegen.units(sources(plan))], "sm_90a", nvcc)
    assert used and all((u.spilled, u.stack) == (0, 0) for u in used.values()), used
    if disassembler := shutil.which("nvdisasm"):
        (tmp_path / "kernels.cubin").write_bytes(images[0])
        command = [disassembler, "-c", str(tmp_path / "kernels.cubin")]
        assert name in subprocess.run(command, capture_output=True, text=True, check=True).stdout


# -- how it is launched ------------------------------------------------------------------------------------------------
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
    products, floats = og.load(sys.argv[2]), og.load(sys.argv[3])
    for m, n, k in ((9, 8, 16), (129, 264, 80), (40, 64, 20)):
        x, w = (random.integers(-128, 128, (rows, k), np.int8) for rows in (m, n))
        found = products.int_mm(x, w)
        right = np.array_equal(found, x.astype(np.int32) @ w.astype(np.int32).T)
        print("int8", k, "wgmma" in driver.last_kernel().decode(), right)
    for m, n, k in ((9, 8, 16), (129, 264, 80), (40, 64, 21)):
        x, w = (random.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
        found = floats.linear(x, w)
        right = np.allclose(found, x.astype(np.float64) @ w.astype(np.float64).T, atol=1e-4)
        print("tf32", k, "wgmma" in driver.last_kernel().decode(), right)
"""


def test_launchers_tell_tma_what_a_call_brings(nvcc: Any, tmp_path: Path) -> None:
    driver, script = tmp_path / "libcuda.so.1", tmp_path / "calls.py"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["g++", *flags, str(HERE / "multiplying_driver.cc"), "-o", str(driver)], check=True)
    libraries = [tmp_path / "products.so", tmp_path / "floats.so"]
    build([int_mm], libraries[0], "cuda/sm_90a")
    build([FLOAT32], libraries[1], "cuda/sm_90a", ["float32"], allowed=TF32)
    script.write_text(_CALLS, encoding="utf-8")
    command = [sys.executable, str(script), str(driver), *map(str, libraries)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "int8 16 True True",
        "int8 80 True True",
        "int8 20 False False",  # rows that are no multiple of 16 bytes
        "tf32 16 True True",
        "tf32 80 True True",
        "tf32 21 False False",
    ]
