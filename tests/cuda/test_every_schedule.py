"""Every schedule has problems in every_schedule.py, their calls run all of its kernels, and no kernel spills."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from opsgen.compiler.plan import Plan
from opsgen.lowering.kernel import Launch
from opsgen.schedules import cuda
from opsgen.targets.cuda import ARCHS, codegen
from tests.cuda.every_schedule import PARTS, plans

HERE = Path(__file__).parent
SCHEDULES = Path(cuda.__file__).resolve().parent
BUILDERS = {p.stem for p in SCHEDULES.glob("*.py") if re.search(r"\bLaunch\b", p.read_text())} - {"kernels"}
"""What speaks of launches: it builds kernels, or says when they run. `kernels` is where all of them come from."""

_built: dict[str, tuple[list[Plan], set[str]]] = {}


def built(part: str) -> tuple[list[Plan], set[str]]:
    """A part's plans for sm_90a (or what it is for), and the schedules in which its kernels were built."""
    if part not in _built:
        found: set[str] = set()
        plain = Launch.__init__

        def noting(self: Launch, *args: Any, **named: Any) -> None:
            frame: Any = sys._getframe(1)
            while frame is not None:
                path = Path(frame.f_code.co_filename)
                if path.parent.name == "cuda" and path.parent.resolve() == SCHEDULES:
                    found.add(path.stem)
                frame = frame.f_back
            plain(self, *args, **named)

        with mock.patch.object(Launch, "__init__", noting):
            made = plans(part, PARTS[part].target or "cuda/sm_90a")
        _built[part] = made, found & BUILDERS
    return _built[part]


ALL = [pytest.param(p, marks=pytest.mark.slow) if "wgmma" in p else p for p in PARTS]
"""Kernels of wgmma take seconds to be made, and more to be compiled."""


@pytest.mark.parametrize("part", ALL)
def test_a_part_has_the_schedules_that_it_names(part: str) -> None:
    assert built(part)[1] == PARTS[part].schedules


def test_every_schedule_has_a_part() -> None:
    assert set().union(*(p.schedules for p in PARTS.values())) == BUILDERS


def archs(part: str) -> tuple[str, ...]:
    """Those for which a part's kernels are compiled here: what is for sm_80 has other schedules on sm_90a."""
    if "wgmma" in part:
        return ("sm_90a",)
    return ("sm_80",) if PARTS[part].target == "cuda/compute_80" else ("sm_80", "sm_90a")


QUICK = ("maps", "columns", "scans", "sets")
"""Others take nvcc ten seconds and more; test_compile.py and its neighbours have samples of them."""

COMPILED = [
    pytest.param(part, arch, marks=[] if part in QUICK else [pytest.mark.slow])
    for part in PARTS
    for arch in archs(part)
]


@pytest.fixture(scope="module")
def left_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The kernels of each part that none of its calls runs."""
    driver = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["g++", *flags, str(HERE / "multiplying_driver.cc"), "-o", str(driver)], check=True)
    command = [sys.executable, "-m", "tests.cuda.noted_calls", str(driver)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_calls_run_every_kernel(left_out: dict[str, list[str]], part: str) -> None:
    assert left_out[part] == []


@pytest.mark.parametrize(("part", "arch"), COMPILED)
def test_no_kernel_spills(part: str, arch: str) -> None:
    """Nor leaves an array on the stack."""
    functions = {x.name: x.function for plan in plans(part, f"cuda/{arch}") for x in plan.launches}
    units = codegen.units(codegen.sources(functions, arch))
    _, used = codegen.compile_units([source for _, source in units], arch)
    assert set(functions) <= set(used)
    for name in functions:
        assert (used[name].spilled, used[name].stack) == (0, 0), f"{name}: {used[name]}"
        assert used[name].registers * 256 <= ARCHS[arch].registers, f"{name}: {used[name]}"
