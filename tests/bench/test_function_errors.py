"""docs/functions.md is what its script makes of its data, and the data are what this machine finds again."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import opsgen as og
from opsgen.ops import table_lookup
from opsgen.runtime.host import host_levels

torch = pytest.importorskip("torch")

from opsgen.bench import function_errors as errors  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
DATA = json.loads((ROOT / "docs" / "data" / "functions.json").read_text(encoding="utf-8"))
VARIANTS = {v.name: v for v in errors.variants()}


def test_the_page_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "function_errors.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_function_in_every_type_and_nothing_wrong() -> None:
    assert {"x86/avx2", "x86/avx512"} <= set(DATA)
    for target, found in DATA.items():
        assert set(found["rows"]) == set(VARIANTS), target
        for name, kinds in found["rows"].items():
            assert list(kinds) == list(errors.DTYPES)
            assert [w["wrong"] for w in kinds.values()] == [0, 0, 0], f"{target}: {name}"


@pytest.mark.parametrize(
    "names", [["erf", "gelu, none", "silu"], pytest.param(list(VARIANTS), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_fresh_measurement_agrees(names: list[str]) -> None:
    """Of half types to a thousandth of an ulp, for all arguments are taken; of float32 within a factor of 2, for they
    are a 16th of the page's."""
    target = "x86/avx512" if "avx512" in host_levels() else "x86/avx2"
    items = [item for item, name in zip(errors.library_items(), VARIANTS) if name in names]
    lib = og.compile(items, target=target, dtypes=list(errors.DTYPES))
    for name in names:
        variant = VARIANTS[name]
        for dtype in errors.DTYPES:
            known = DATA[target]["rows"][name][dtype]
            found = errors.worst(variant, dtype, errors.of_numpy(lib, variant, dtype), count=1 << 18)
            assert found.wrong == 0, (name, dtype)
            for field in ("ulp", "relative", "absolute"):
                fresh, said = getattr(found, field), known[field]
                where = f"{name}, {dtype}: {field} {fresh}, and {said} on the page"
                if dtype != "float32":
                    assert math.isclose(fresh, said, rel_tol=1e-3), where
                else:
                    assert said / 2 <= fresh or field == "absolute", where
                    assert fresh <= said * 1.05, where


EXACT: dict[str, Any] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "gelu, none": lambda x: x * mpmath.ncdf(x),
    "gelu, tanh": lambda x: x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3))),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_compared_with_is_right(name: str) -> None:
    """To 12 digits, in all of the range: more than any type here has."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(40) * 4, rng.standard_normal(10) * 1e-4, rng.uniform(-12, 12, 40)])
    x = x.astype(np.float32).astype(np.float64)
    if name in ("log", "sqrt", "rsqrt", "log1p"):
        x = np.abs(x)
    found = VARIANTS[name].exact(torch.from_numpy(x)).numpy()
    with mpmath.workdps(60):
        form = EXACT.get(name) or getattr(mpmath, name)
        for argument, value in zip(x.tolist(), found.tolist()):
            right = form(mpmath.mpf(argument))
            assert abs(value - right) <= 1e-12 * abs(right), (argument, value, right)


def test_errors_are_found() -> None:
    """What is off by two in the last place is said to be, and so is a NaN."""
    exp = VARIANTS["exp"]

    def off(x: Any) -> Any:
        with np.errstate(all="ignore"):
            right = np.exp(x.astype(np.float64)).astype(np.float32)
            return np.where(x == 2, np.nextafter(np.nextafter(right, np.float32(9)), np.float32(9)), right)

    found = errors.worst(exp, "float32", off, count=1000)
    assert 1.5 <= found.ulp <= 2.5
    assert found.at == 2
    assert found.wrong == 0
    assert errors.worst(exp, "float32", lambda x: np.where(x == 2, np.nan, off(x)), count=1000).wrong > 0
    assert errors.worst(exp, "bfloat16", off).ulp <= 0.01, "rounded to float32, not to bfloat16"


def test_a_table_has_every_result_rounded_once() -> None:
    lib = og.compile(table_lookup, dtypes=["float16", "bfloat16"])
    for dtype in ("float16", "bfloat16"):
        gelu = VARIANTS["gelu, none"]
        kind = getattr(torch, dtype)
        x = torch.from_numpy(errors.halves(dtype)).to(kind)
        table = gelu.exact(x.double()).to(kind)

        def compute(values: Any, table: Any = table, kind: Any = kind) -> Any:
            return lib.table_lookup(torch.from_numpy(values).to(kind).view(torch.int16), table).float().numpy()

        found = errors.worst(gelu, dtype, compute)
        assert found.ulp <= 0.501
        assert found.wrong == 0
