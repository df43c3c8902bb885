"""What kernels may give up of float32: the options, where they are recorded, and their errors."""

import json
from pathlib import Path

import pytest

import opsgen as og
from opsgen.cli.main import main
from opsgen.compiler.compile import build
from opsgen.compiler.precision import Precision
from opsgen.compiler.problem import enumerate_problems
from opsgen.errors import CompileError
from opsgen.ops import fp8_linear, linear, relu
from opsgen.runtime.library_file import read_manifest

ALONE = og.variant(linear, absent=["bias", "residual"], activation="none")
FLOAT8 = og.variant(fp8_linear, absent=["scale", "x_scale", "weight_scale", "bias"])
TF32, FAST = Precision(float32_products="tf32"), Precision(float8_sums="fast")


def test_nothing_is_given_up_unless_asked() -> None:
    [plain] = enumerate_problems([ALONE], ["float32"], {})
    [same] = enumerate_problems([ALONE], ["float32"], {}, Precision())
    [tf32] = enumerate_problems([ALONE], ["float32"], {}, TF32)
    assert plain.precision == same.precision == "fp32" and plain.hash() == same.hash() != tf32.hash()


@pytest.mark.parametrize(
    ("item", "dtype", "allowed", "precision"),
    [
        (ALONE, "float32", TF32, "fp32, tf32"),
        (ALONE, "float64", TF32, "fp64"),
        (ALONE, "bfloat16", TF32, "fp32"),
        (relu, "float32", TF32, "fp32"),
        (FLOAT8, "float32", FAST, "fp32, fast float8 sums"),
        (FLOAT8, "float32", TF32, "fp32"),
        (ALONE, "float32", FAST, "fp32"),
    ],
)
def test_the_class_of_the_arithmetic(item: object, dtype: str, allowed: Precision, precision: str) -> None:
    [problem] = enumerate_problems([item], [dtype], {}, allowed)  # type: ignore[list-item]
    assert problem.precision == precision


def test_the_manifest_and_the_file_say_so(tmp_path: Path) -> None:
    kernels = {}
    for name, allowed in (("plain", None), ("tf32", TF32)):
        build([ALONE], tmp_path / name, "x86/avx2", ["float32"], {}, allowed=allowed)
        kernels[name] = read_manifest(tmp_path / name).kernels[0]
    assert kernels["plain"].precision == "fp32" and kernels["tf32"].precision == "fp32, tf32"
    assert kernels["plain"].symbol != kernels["tf32"].symbol


def test_values_that_an_option_has_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"E3014: float32_products is 'bf16'; it can be .*float32.*tf32"):
        og.compile([relu], float32_products="bf16")
    with pytest.raises(CompileError, match=r"E3014: float8_sums is 'slow'; it can be .*float32.*fast"):
        og.compile([relu], float8_sums="slow")
    command = ["compile", "relu", "-o", str(tmp_path / "x.so"), "--float32-products", "half"]
    assert main(command) != 0
    assert "E3014: float32_products is 'half'" in capsys.readouterr().err


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "linear.so")
    words = ["--absent", "bias", "residual", "--attribute", "activation=none", "--float32-products", "tf32"]
    assert main(["compile", "linear", "-o", path, "--target", "x86/avx2", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == path
    assert {k.precision for k in read_manifest(Path(path)).kernels} == {"fp32, tf32"}
