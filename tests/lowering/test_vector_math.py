"""vector_math: errors as stated, special values, and vector code without calls."""

import functools
import pathlib
import re

import mpmath
import numpy as np
import pytest
import tvm
from tvm import tirx

from opsgen.lowering import vector_math
from tests.elementary import (
    INFINITY,
    LARGEST,
    NAN,
    NANS,
    SPECIAL,
    assert_exact,
    function_of,
    near_thresholds,
    reference,
    run,
    sample,
    stated_errors,
    ulp_errors,
)

NAMES = sorted(vector_math.FLOAT32)
STATED_ULP = stated_errors(vector_math.__doc__)
CPUINFO = pathlib.Path("/proc/cpuinfo")
CPU_FLAGS = set(CPUINFO.read_text().split()) if CPUINFO.exists() else set()
NEEDED_FLAGS = {
    "x86-64-v3": {"avx2", "fma"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
RUNNABLE = [mcpu for mcpu, flags in NEEDED_FLAGS.items() if flags <= CPU_FLAGS]
on_each_cpu = pytest.mark.parametrize(
    "mcpu",
    [
        pytest.param(mcpu, marks=pytest.mark.skipif(mcpu not in RUNNABLE, reason=f"this CPU is no {mcpu}"))
        for mcpu in NEEDED_FLAGS
    ],
)


def build(function, mcpu: str, lanes: int, dtype: str = "float32", kind=tirx.ForKind.VECTORIZED):
    module = tvm.IRModule({"kernel": function_of(function, lanes, dtype, kind)})
    return tvm.compile(module, target=tvm.target.Target({"kind": "llvm", "mcpu": mcpu}))


@functools.cache
def float32_kernel(name: str, mcpu: str):
    return build(vector_math.FLOAT32[name], mcpu, 16 if mcpu == "x86-64-v4" else 8)


def test_every_function_has_a_stated_error():
    assert sorted(STATED_ULP) == NAMES == sorted(vector_math.FLOAT64)
    assert max(STATED_ULP.values()) < 4.0
    assert max(STATED_ULP[name] for name in ("exp", "exp2", "log", "log1p")) < 2.0


@on_each_cpu
@pytest.mark.parametrize("name", NAMES)
def test_error_is_as_stated(name, mcpu):
    for x in (sample(), near_thresholds()):
        errors = ulp_errors(run(float32_kernel(name, mcpu), x), reference(name, x))
        worst = int(errors.argmax())
        assert errors[worst] <= STATED_ULP[name], f"{name}({x[worst]!r}): {errors[worst]:.3f} ulp"


@pytest.mark.skipif(len(RUNNABLE) < 2, reason="needs AVX-512")
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_on_both_cpus(name):
    results = [run(float32_kernel(name, mcpu), near_thresholds()) for mcpu in NEEDED_FLAGS]
    np.testing.assert_array_equal(*results)


@on_each_cpu
@pytest.mark.parametrize(
    ("name", "low", "high"), [("tanh", -1, 1), ("erf", -1, 1), ("sin", -1, 1), ("cos", -1, 1), ("sigmoid", 0, 1)]
)
def test_range_is_kept(name, low, high, mcpu):
    finite = sample()[np.isfinite(sample())]
    for x in (finite, near_thresholds()[np.isfinite(near_thresholds())]):
        y = run(float32_kernel(name, mcpu), x)
        assert y.min() >= low and y.max() <= high


# The float32 nearest to a multiple of pi/2, and the nearest one of the largest binade.
HARD_ANGLES = [16367173.0 * 2.0**72, 12438944.0 * 2.0**104]


@on_each_cpu
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name, mcpu):
    x, expected = np.array(SPECIAL[name], np.float32).T
    assert_exact(run(float32_kernel(name, mcpu), x), expected)


@on_each_cpu
@pytest.mark.parametrize("name", NAMES)
def test_nan_gives_nan(name, mcpu):
    assert np.isnan(run(float32_kernel(name, mcpu), NANS)).all()


@on_each_cpu
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles_against_mpmath(name, mcpu):
    x = np.array([*HARD_ANGLES, LARGEST, 1e20, 2.0**100, 131071.0, 1e6, 1.5707964, 3.1415927, -355.0], np.float32)
    with mpmath.workdps(80):
        expected = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(value)))) for value in x])
    assert ulp_errors(run(float32_kernel(name, mcpu), x), expected).max() <= STATED_ULP[name]


COEFFICIENTS = {
    "EXP": "exp",
    "EXP2": "exp2",
    "_LOG": "log",
    "EXPM1_2R": "tanh",
    "_EXP2M1": "erf",
    "_ERF": "erf",
    "_SIN": "sin",
    "_COS": "cos",
    "_TURNS": "sin",
}


@pytest.mark.skipif(not RUNNABLE, reason="needs AVX2")
@pytest.mark.parametrize(
    ("table", "index"), [(table, i) for table in COEFFICIENTS for i in range(len(getattr(vector_math, table)))]
)
def test_a_wrong_coefficient_shows(table, index, monkeypatch):
    values = list(getattr(vector_math, table))
    values[index] *= 1.1
    monkeypatch.setattr(vector_math, table, tuple(values))
    name = COEFFICIENTS[table]
    x = np.concatenate([sample()[::7], np.array(HARD_ANGLES, np.float32)])
    wrong = run(build(vector_math.FLOAT32[name], RUNNABLE[0], 8), x)
    assert ulp_errors(wrong, reference(name, x)).max() > STATED_ULP[name]


@pytest.mark.parametrize(("mcpu", "register"), [("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
@pytest.mark.parametrize("name", NAMES)
def test_machine_code_is_vector_code(name, mcpu, register):
    assembly = float32_kernel(name, mcpu).mod.inspect_source("asm")
    loop = assembly[assembly.index("\nkernel_compute_:") :].split(".Lfunc_end")[0]
    instructions = re.findall(r"^\t([a-z]\w*)\b", loop, re.MULTILINE)
    assert not {"callq", "call"} & set(instructions)
    scalar = [
        i for i in instructions if re.fullmatch(r"v(add|sub|mul|div|sqrt|max|min|round|rndscale|fn?m\w+)\w*s[sd]", i)
    ]
    assert not scalar
    assert f"%{register}" in loop
    if name != "sqrt" and name != "rsqrt":
        assert any("fmadd" in i for i in instructions)


def float64_kernel(name: str):
    kind = tirx.ForKind.SERIAL if name in vector_math.NEEDS_SERIAL_LOOP else tirx.ForKind.VECTORIZED
    return build(vector_math.FLOAT64[name], RUNNABLE[-1], 8, "float64", kind)


def mpmath_value(name: str, x: float) -> float:
    functions = {
        "exp2": lambda v: mpmath.mpf(2) ** v,
        "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
        "rsqrt": lambda v: 1 / mpmath.sqrt(v),
    }
    with mpmath.workdps(60):
        return float(functions.get(name, getattr(mpmath, name, None))(mpmath.mpf(x)))


@pytest.mark.skipif(not RUNNABLE, reason="needs AVX2")
@pytest.mark.parametrize("name", NAMES)
def test_float64(name):
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(0, 3, 96), 10.0 ** generator.uniform(-12, 2, 96), [700.0, 1e-300, 1e-5]])
    if name in ("log", "log1p", "sqrt", "rsqrt"):
        x = np.abs(x)
    expected = np.array([mpmath_value(name, float(value)) for value in x])
    # libm is good to 1 ulp; sigmoid and rsqrt add a sum, a quotient or a root to it.
    np.testing.assert_allclose(run(float64_kernel(name), x), expected, rtol=4 * np.finfo(np.float64).eps, atol=0)


@pytest.mark.skipif(not RUNNABLE, reason="needs AVX2")
@pytest.mark.parametrize("name", NAMES)
def test_float64_special_values(name):
    kernel = float64_kernel(name)
    assert np.isnan(run(kernel, np.array([NAN, -NAN]))).all()
    x, expected = np.array([(x, y) for x, y in SPECIAL[name] if x in (0.0, INFINITY, -INFINITY)]).T
    assert_exact(run(kernel, x), expected)
