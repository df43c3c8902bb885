"""AVX-512 forms of elementary functions: errors as stated, special values, the same bits in vectors of any length."""

import functools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import tirx

import opsgen as og
from opsgen.runtime.host import host_levels
from opsgen.schedules.x86 import elementary
from opsgen.targets.x86 import codegen, instructions
from tests.elementary import (
    NANS,
    SPECIAL,
    Array,
    assert_exact,
    function_of,
    near_thresholds,
    reference,
    run,
    sample,
    stated_errors,
    ulp_errors,
)

NAMES = sorted(elementary.AVX512)
STATED_ULP = stated_errors(elementary.__doc__)
STEP = instructions.ERF_STEP

runs = pytest.mark.skipif("avx512" not in host_levels(), reason="this CPU has no AVX-512")


@functools.cache
def kernels() -> Any:
    """One module with a kernel for each function and vector length: ``erf16``."""
    functions = {}
    for name in NAMES:
        for lanes in instructions.LENGTHS:
            kind = tirx.ForKind.VECTORIZED if lanes > 1 else tirx.ForKind.SERIAL
            functions[f"{name}{lanes}"] = function_of(elementary.AVX512[name], lanes, "float32", kind, f"{name}{lanes}")
    return codegen.build(functions, "avx512")


def value(name: str, x: Array, lanes: int = 16) -> Array:
    return run(kernels(), x, f"{name}{lanes}")


@functools.cache
def near_steps() -> Array:
    """`near_thresholds`, and the neighbours of where the erf changes its polynomial, or tanh and erf their argument."""
    centres = np.concatenate([(np.arange(16) + 0.5) * STEP, np.arange(17) * STEP, [15.4999 * STEP, 10.0]])
    bits = centres.astype(np.float32).view(np.int32).astype(np.int64)[:, None] + np.arange(-64, 65)
    bits = np.unique(bits[bits >= 0]).astype(np.uint32)
    return np.concatenate([near_thresholds(), bits.view(np.float32), -bits.view(np.float32)])


def test_every_function_has_a_stated_error() -> None:
    assert sorted(STATED_ULP) == NAMES
    assert max(STATED_ULP.values()) < 4.0
    assert max(STATED_ULP[name] for name in ("exp", "exp2")) <= 1.0


@runs
@pytest.mark.parametrize("name", NAMES)
def test_error_is_as_stated(name: str) -> None:
    for x in (sample(), near_steps()):
        errors = ulp_errors(value(name, x), reference(name, x))
        worst = int(errors.argmax())
        assert errors[worst] <= STATED_ULP[name], f"{name}({x[worst]!r}): {errors[worst]:.3f} ulp"


@runs
@pytest.mark.parametrize(("name", "low", "high"), [("tanh", -1, 1), ("erf", -1, 1), ("sigmoid", 0, 1)])
def test_range_is_kept(name: str, low: float, high: float) -> None:
    near_the_end = np.arange(0x40800000, 0x41200000, 3, dtype=np.uint32).view(np.float32)  # 4 to 10
    for x in (sample(), near_steps(), near_the_end, -near_the_end):
        y = value(name, x[~np.isnan(x)])
        assert low <= y.min() <= y.max() <= high


@runs
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    x, expected = np.array(SPECIAL[name], np.float32).T
    assert_exact(value(name, x), expected)
    assert np.isnan(value(name, NANS)).all()


@runs
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_functions_are_odd(name: str) -> None:
    x = sample()[~np.isnan(sample())]
    assert_exact(value(name, -x), -value(name, x))


@runs
@pytest.mark.parametrize("name", NAMES)
def test_vectors_of_any_length_give_the_same_bits(name: str) -> None:
    x = np.concatenate([near_steps(), NANS, sample()[::97]])
    whole = value(name, x, 16)
    for lanes in instructions.LENGTHS:
        assert_exact(value(name, x, lanes), whole)


@og.op
def functions(x: og.Tensor["n"]) -> og.Results:
    return og.results(**{name: getattr(og, name)(x) for name in NAMES})


@runs
def test_a_value_is_the_same_at_any_position(tmp_path: Path) -> None:
    """In an op: vectors of 64, then of 16, then single elements."""
    from opsgen.compiler.compile import build

    build(functions, tmp_path / "f.so", "x86/avx512", configs={"x86.map": {"registers": 4}})
    lib = og.load(tmp_path / "f.so")
    values = np.array([-0.7, 0.3, 1.1, 3.0, -20.0, 0.126, np.nan, np.inf, 1e-41, 0.0], np.float32)
    wanted = lib.functions(values)  # single elements
    for length in (15, 16, 64 + 16 + 15):
        for i, v in enumerate(values):
            found = lib.functions(np.full(length, v))
            for name in NAMES:
                assert_exact(getattr(found, name), np.full(length, getattr(wanted, name)[i]))


def test_inspecting_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """TVM has a name to print for each operator."""
    ir = og.inspect(functions, "ir", "x86/avx512")
    assert all(f"opsgen.{name}" in ir for name in ("scale_by_power", "reciprocal_estimate", "erf_coefficient5"))
    assert "Warning" not in capfd.readouterr().err


# -- coefficients ------------------------------------------------------------------------------------------------------
POLYNOMIALS = {"EXP": "exp", "EXP2": "exp2", "EXPM1_2R": "tanh"}


def built(name: str) -> Any:
    return codegen.build({"kernel": function_of(elementary.AVX512[name], 16)}, "avx512")


@runs
@pytest.mark.parametrize(
    ("table", "index"), [(table, i) for table in POLYNOMIALS for i in range(len(getattr(elementary, table)))]
)
def test_a_wrong_coefficient_shows(table: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(getattr(elementary, table))
    values[index] *= 1.1
    monkeypatch.setattr(elementary, table, tuple(values))
    name, x = POLYNOMIALS[table], sample()[::7]
    assert ulp_errors(run(built(name), x), reference(name, x)).max() > STATED_ULP[name]


@runs
@pytest.mark.parametrize("power", range(6))
def test_a_wrong_coefficient_of_the_erf_shows(power: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every interval, as soon as it matters there: by 8 units in the last place of the erf at the interval's end."""
    middles = np.arange(16) * STEP
    unit = 2.0 ** (np.floor(np.log2([max(math.erf(m), STEP / 2) for m in middles])) - 23)
    wrong = [np.array(row) for row in instructions._ERF]
    wrong[power] = (wrong[power] + 8 * unit / (STEP / 2) ** power).astype(np.float32).tolist()
    monkeypatch.setattr(instructions, "_ERF", tuple(map(tuple, wrong)))
    instructions.functions.cache_clear()
    try:
        kernel = built("erf")
    finally:
        monkeypatch.undo()
        instructions.functions.cache_clear()
    x = (middles[:, None] + np.linspace(-0.499, 0.499, 101) * STEP).clip(min=1e-3).astype(np.float32)
    errors = ulp_errors(run(kernel, x.reshape(-1)), reference("erf", x.reshape(-1))).reshape(x.shape)
    assert (errors.max(axis=1) > STATED_ULP["erf"]).all()


# -- machine code ------------------------------------------------------------------------------------------------------
USED = {
    "exp": {"vscalefps"},
    "exp2": {"vscalefps"},
    "tanh": {"vscalefps", "vrcp14ps"},
    "sigmoid": {"vscalefps", "vrcp14ps"},
    "erf": {"vpermps"},
}


@pytest.mark.parametrize("lanes", [16, 64])
@pytest.mark.parametrize("name", NAMES)
def test_machine_code(name: str, lanes: int) -> None:
    assembly = codegen.assembly(kernels())
    loop = assembly[assembly.index(f"\n{name}{lanes}_compute_:") :].split(".Lfunc_end")[0]
    found = set(re.findall(r"^\t([a-z]\w*)\b", loop, re.MULTILINE))
    assert not {"call", "callq"} & found
    assert not {i for i in found if re.fullmatch(r"v(add|sub|mul|div|max|min|scalef|rcp14|fn?m\w+)\w*ss", i)}
    assert found >= USED[name]
    assert "vdivps" not in found
    assert "%zmm" in loop
    assert any("fmadd" in i for i in found)
