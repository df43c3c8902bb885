"""8-bit floats in generated CUDA: the conversions by bit arithmetic on the CPU, and the instructions by their names."""

from pathlib import Path

import pytest

from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import enumerate_problems
from opsgen.targets.cuda import ARCHS, codegen, toolchain
from opsgen.targets.names import parse
from tests import float8
from tests.cuda import emulated


def test_conversions(tmp_path: Path) -> None:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        float8.check_conversions(emulated.compile(float8.OPS, tmp_path))


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_compiles_without_spills(arch: str) -> None:
    [target] = parse(f"cuda/{arch}")
    functions = {
        x.name: x.function
        for p in enumerate_problems(float8.OPS, ["float32"], {})
        for x in make_plan(p, target).launches
    }
    [(_, source)] = codegen.units(codegen.sources(functions, arch))
    _, used = toolchain.compile_source(source, ARCHS[arch])
    assert set(functions) <= set(used)
    assert all(u.spilled == 0 and u.stack == 0 for u in used.values())
    text = toolchain.ptx(source, ARCHS[arch])
    for instruction in ("cvt.rn.f16x2.e4m3x2", "cvt.rn.f16x2.e5m2x2", "satfinite.e4m3x2.f32", "satfinite.e5m2x2.f32"):
        assert (instruction in text) == (arch != "sm_80")
