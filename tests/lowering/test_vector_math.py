"""vector_math: errors as stated, special values, and vector code without calls."""

import functools
import math
import pathlib
import re

import mpmath
import numpy as np
import pytest
import torch
import tvm
from tvm import tirx

from opsgen.lowering import vector_math

NAMES = sorted(vector_math.FLOAT32)
STATED_ULP = {
    name: float(ulp)
    for name, ulp in re.findall(r"^    (\w+) +[0-9.]+ +([0-9.]+)$", vector_math.__doc__ or "", re.MULTILINE)
}
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

INFINITY, NAN = math.inf, math.nan
SMALLEST, SMALLEST_NORMAL, LARGEST = 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)


def build(function, mcpu: str, lanes: int, dtype: str = "float32", kind=tirx.ForKind.VECTORIZED):
    """y[i] = function(x[i]) for i < len(x) // lanes * lanes, the inner loop of `lanes` steps being of `kind`."""
    x = tirx.decl_buffer((tirx.Var("n", "int64"),), dtype, "x")
    y = tirx.decl_buffer((x.shape[0],), dtype, "y")
    outer, lane = tirx.Var("outer", "int64"), tirx.Var("lane", "int64")
    zero, width = tirx.IntImm("int64", 0), tirx.IntImm("int64", lanes)
    statements = []

    def bind(value):
        variable = tirx.Var(f"t{len(statements)}", value.ty.dtype)
        statements.append(tirx.Bind(variable, value))
        return variable

    index = outer * width + lane
    statements.append(tirx.BufferStore(y, function(bind(tirx.BufferLoad(x, [index])), bind), [index]))
    inner = tirx.For(lane, zero, width, kind, tirx.SeqStmt(statements))
    body = tirx.For(outer, zero, tirx.floordiv(x.shape[0], width), tirx.ForKind.SERIAL, inner)
    kernel = tirx.PrimFunc([x, y], body).with_attr("global_symbol", "kernel").with_attr("tirx.noalias", True)
    return tvm.compile(tvm.IRModule({"kernel": kernel}), target=tvm.target.Target({"kind": "llvm", "mcpu": mcpu}))


@functools.cache
def float32_kernel(name: str, mcpu: str):
    return build(vector_math.FLOAT32[name], mcpu, 16 if mcpu == "x86-64-v4" else 8)


def run(kernel, x: np.ndarray) -> np.ndarray:
    padded = np.concatenate([x, np.zeros(-len(x) % 16, x.dtype)])
    source, destination = tvm.runtime.tensor(padded), tvm.runtime.tensor(np.full_like(padded, 7.0))
    kernel["kernel"](source, destination)
    return destination.numpy()[: len(x)]


def reference(name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = x.astype(np.float64)
    return getattr(torch, name)(torch.from_numpy(wide)).numpy()


def ulp_errors(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Error in units of the last float32 place of the float64 `expected`; infinity where only one is special."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float32)
        place = np.ldexp(1.0, np.maximum(np.frexp(expected)[1], -125) - 24)
        errors = np.abs(actual.astype(np.float64) - expected) / place
    same = (np.isnan(actual) & np.isnan(expected)) | (actual == rounded)
    special = ~np.isfinite(actual) | ~np.isfinite(rounded)
    errors[special] = np.where(same[special], 0.0, np.inf)
    return errors


@functools.cache
def sample() -> np.ndarray:
    """Bit patterns evenly spread over all of float32, and denser for 2^-12 <= |x| < 2^8."""
    everywhere = np.arange(0, 2**32, 8191, dtype=np.uint64)
    usual = np.arange(115 << 23, 135 << 23, 601, dtype=np.uint64)
    return np.concatenate([everywhere, usual, usual + 2**31]).astype(np.uint32).view(np.float32)


@functools.cache
def near_thresholds() -> np.ndarray:
    """The neighbours, both signs, of where a reduction steps, a clamp begins, a result under- or overflows."""
    halves = np.arange(0.5, 152.0)
    centres = np.concatenate(
        [
            halves * math.log(2.0),  # exp, sigmoid
            halves * math.log(2.0) / 2,  # tanh
            halves,  # exp2
            np.arange(1.0, 152.0),
            np.ldexp(math.sqrt(0.5), np.arange(-148, 129)),  # log, log1p
            np.ldexp(1.0, np.arange(-149, 128)),
            math.sqrt(0.5) * 2.0 ** np.arange(129) - 1.0,
            np.arange(1, 400) * math.pi / 4,  # sin, cos
            [103.28, 103.972, 104.0, 87.336548, 88.722839, 89.0, 149.0, 150.0, 151.0, 128.0, 129.0],
            [9.0109, 10.0, 3.8325, 3.95, LARGEST, 16367173.0 * 2.0**72],
            np.abs(inverse_erf_steps()),
        ]
    )
    bits = centres.astype(np.float32).view(np.uint32).astype(np.int64)
    bits = (bits[:, None] + np.arange(-24, 25)).reshape(-1)
    bits = np.unique(bits[(bits >= 0) & (bits <= 0x7F800000)]).astype(np.uint32)
    return np.concatenate([bits, bits | np.uint32(2**31)]).view(np.float32)


def inverse_erf_steps() -> np.ndarray:
    """Where -log2(1 - erf(x)) is half an odd number: the polynomial's steps in erf."""
    return torch.erfinv(1.0 - 2.0 ** -torch.arange(0.5, 26.0, dtype=torch.float64)).numpy()


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

# Exact results, signs of zeros included.
SPECIAL = {
    "exp": [
        (-INFINITY, 0.0),
        (INFINITY, INFINITY),
        (0.0, 1.0),
        (-0.0, 1.0),
        (SMALLEST, 1.0),
        (-SMALLEST, 1.0),
        (LARGEST, INFINITY),
        (-LARGEST, 0.0),
        (-103.9720764, SMALLEST),
        (-103.98, 0.0),
        (88.7228470, INFINITY),
    ],
    "exp2": [
        (-INFINITY, 0.0),
        (INFINITY, INFINITY),
        (0.0, 1.0),
        (-0.0, 1.0),
        (LARGEST, INFINITY),
        (-LARGEST, 0.0),
        (128.0, INFINITY),
        (127.0, 2.0**127),
        (-126.0, SMALLEST_NORMAL),
        (-149.0, SMALLEST),
        (-150.0, 0.0),
    ],
    "log": [
        (0.0, -INFINITY),
        (-0.0, -INFINITY),
        (-1.0, NAN),
        (-SMALLEST, NAN),
        (-INFINITY, NAN),
        (-LARGEST, NAN),
        (INFINITY, INFINITY),
        (1.0, 0.0),
    ],
    "log1p": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (-1.0, -INFINITY),
        (-1.0000001, NAN),
        (-INFINITY, NAN),
        (INFINITY, INFINITY),
        (SMALLEST, SMALLEST),
        (-SMALLEST, -SMALLEST),
        (SMALLEST_NORMAL, SMALLEST_NORMAL),
    ],
    "tanh": [
        (INFINITY, 1.0),
        (-INFINITY, -1.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (SMALLEST, SMALLEST),
        (-SMALLEST, -SMALLEST),
        (LARGEST, 1.0),
        (-LARGEST, -1.0),
        (SMALLEST_NORMAL, SMALLEST_NORMAL),
    ],
    "erf": [
        (INFINITY, 1.0),
        (-INFINITY, -1.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (SMALLEST, SMALLEST),
        (-SMALLEST, -SMALLEST),
        (LARGEST, 1.0),
        (-LARGEST, -1.0),
        (4.0, 1.0),
        (-4.0, -1.0),
    ],
    "sigmoid": [
        (INFINITY, 1.0),
        (-INFINITY, 0.0),
        (0.0, 0.5),
        (-0.0, 0.5),
        (LARGEST, 1.0),
        (-LARGEST, 0.0),
        (-103.97, SMALLEST),
    ],
    "sqrt": [(INFINITY, INFINITY), (0.0, 0.0), (-0.0, -0.0), (-SMALLEST, NAN), (-INFINITY, NAN), (4.0, 2.0)],
    "rsqrt": [(INFINITY, 0.0), (0.0, INFINITY), (-0.0, -INFINITY), (-SMALLEST, NAN), (-INFINITY, NAN), (4.0, 0.5)],
    "sin": [(INFINITY, NAN), (-INFINITY, NAN), (0.0, 0.0), (-0.0, -0.0), (SMALLEST, SMALLEST), (-SMALLEST, -SMALLEST)],
    "cos": [(INFINITY, NAN), (-INFINITY, NAN), (0.0, 1.0), (-0.0, 1.0), (SMALLEST, 1.0)],
}


def assert_exact(actual: np.ndarray, expected: np.ndarray):
    np.testing.assert_array_equal(actual, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual)[numbers], np.signbit(expected)[numbers])


@on_each_cpu
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name, mcpu):
    x, expected = np.array(SPECIAL[name], np.float32).T
    assert_exact(run(float32_kernel(name, mcpu), x), expected)


@on_each_cpu
@pytest.mark.parametrize("name", NAMES)
def test_nan_gives_nan(name, mcpu):
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(
        np.float32
    )
    assert np.isnan(run(float32_kernel(name, mcpu), nans)).all()


@on_each_cpu
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles_against_mpmath(name, mcpu):
    x = np.array([*HARD_ANGLES, LARGEST, 1e20, 2.0**100, 131071.0, 1e6, 1.5707964, 3.1415927, -355.0], np.float32)
    with mpmath.workdps(80):
        expected = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(value)))) for value in x])
    assert ulp_errors(run(float32_kernel(name, mcpu), x), expected).max() <= STATED_ULP[name]


COEFFICIENTS = {
    "_EXP": "exp",
    "_EXP2": "exp2",
    "_LOG": "log",
    "_EXPM1_2R": "tanh",
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
