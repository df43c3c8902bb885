"""`opsgen compile` and `opsgen list FILE`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opsgen as og
from opsgen.ops import softmax

from .conftest import ROOT, Command

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Two ops for two archs in one file, and what the command printed."""
    path = tmp_path_factory.mktemp("compile") / "both.so"
    words = ["softmax", "rms_norm", "--target", "x86/avx2,x86/avx512", "--absent", "residual", "-o", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "opsgen", "compile", *words], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return path, done.stdout, done.stderr


def test_what_is_printed(both: tuple[Path, str, str]) -> None:
    path, out, err = both
    assert out.splitlines()[0] == "softmax   1 kernel for x86/avx2, 1 kernel for x86/avx512"
    assert re.fullmatch(rf"{re.escape(str(path))}: 4 kernels, \d+ KiB, \d+\.\d s", out.splitlines()[-1])
    assert re.search(r"^\[1/\d+\] softmax for x86/avx2$", err, re.MULTILINE)
    assert not CONTROL.search(out + err)


def test_the_file_works(both: tuple[Path, str, str]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 37)).astype(np.float32)
    np.testing.assert_allclose(og.load(both[0]).softmax(x), softmax.expected(x), rtol=1e-5)


def test_list_of_a_file(both: tuple[Path, str, str], opsgen: Command) -> None:
    done = opsgen("list", both[0])
    assert done.code == 0
    assert "x86 for avx2, avx512" in done.out
    assert "region: any size; workspace: 0 bytes" in done.out
    assert "softmax(x)" in done.out and "without residual" in done.out
    assert "['" not in done.out
    manifest = og.load(both[0]).manifest
    for kernel in manifest.kernels:
        for group in kernel.groups:
            count = f"{len(group.launches)} launch{'es' * (len(group.launches) != 1)}"
            shown = [f"    {group.schedule} ({count})", *(f"      {launch}" for launch in group.launches)]
            assert "\n".join(shown) + "\n" in done.out
    found = json.loads(opsgen("list", both[0], "--json").out)
    assert found["bytes"] == both[0].stat().st_size
    assert [(k["op"], k["arch"]) for k in found["kernels"]] == [
        ("softmax", "avx2"), ("rms_norm", "avx2"), ("softmax", "avx512"), ("rms_norm", "avx512"),
    ]  # fmt: skip


def test_one_kernel(opsgen: Command, tmp_path: Path) -> None:
    path = tmp_path / "one.so"
    done = opsgen("compile", "softmax", "--target", "x86/avx2", "-o", path)
    assert done.code == 0 and f"{path}: 1 kernel, " in done.out


def test_list_of_a_file_loads_no_code(both: tuple[Path, str, str]) -> None:
    listing = f"from opsgen.cli import main; main(['list', {str(both[0])!r}])"
    code = f"{listing}; print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    maps = done.stdout[done.stdout.rindex("KiB") :]
    assert str(both[0]) not in maps


def test_list_of_what_is_no_library(opsgen: Command, tmp_path: Path) -> None:
    path = tmp_path / "file.so"
    path.write_text("hello")
    assert opsgen("list", path).err.startswith("error E4011: ")


def test_json(opsgen: Command, tmp_path: Path, op_file: Path) -> None:
    path = tmp_path / "lib.so"
    done = opsgen(
        "compile",
        f"{op_file}:scaled",
        "-o",
        path,
        "--json",
        "--target",
        "x86/avx2",
        "--dtype",
        "float16,float32",
        "--dim",
        "n=8",
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["file"], found["bytes"], found["archs"], found["ops"]) == (
        str(path),
        path.stat().st_size,
        ["avx2"],
        ["scaled"],
    )
    assert [k["dtypes"] for k in found["kernels"]] == [{"x": t, "out": t} for t in ("float16", "float32")]
    assert "[1/" not in done.err  # only what the op's file printed


def test_a_folder_that_is_not_there_or_cannot_be_written(opsgen: Command, tmp_path: Path) -> None:
    done = opsgen("compile", "relu", "-o", tmp_path / "missing" / "lib.so")
    assert done.code == 1 and done.err.startswith("error E3006: ")
    assert "does not exist" in done.err
    done = opsgen("compile", "relu", "-o", "/proc/opsgen-lib.so")  # not even root writes there
    assert done.code == 1 and "error E3006: /proc/opsgen-lib.so cannot be written" in done.err


def test_without_a_compiler(opsgen: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    done = opsgen("compile", "relu", "-o", tmp_path / "lib.so")
    assert done.code == 1
    assert done.err == "error E2002: g++ was not found; compiling for x86 needs it. Install it: apt-get install g++\n"


@pytest.mark.parametrize("package", ["tvm", "jinja2"])
def test_without_what_compiling_needs(process: Command, tmp_path: Path, package: str) -> None:
    (tmp_path / f"{package}.py").write_text("raise ImportError('hidden by the test', name=__name__)\n")
    words = ["inspect", "relu", "--stage", "source"]
    done = process(*words, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.code == 1 and done.err.startswith("error E2003: ") and 'pip install "opsgen[compile]"' in done.err
    assert process("inspect", "relu", PYTHONPATH=f"{tmp_path}:{ROOT}").code == 0  # the graph needs neither
