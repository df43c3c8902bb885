"""`opsgen list` without a file, and `opsgen doctor`."""

import json
import re
from pathlib import Path

import pytest

from opsgen.cli import doctor
from opsgen.ops import all_ops

from .conftest import ROOT, Command


def test_list(opsgen: Command) -> None:
    done = opsgen("list")
    assert (done.code, done.err) == (0, "")
    for op in all_ops().values():
        assert op.call_form() in done.out
    assert "x86/avx2" in done.out and "x86.contraction: " in done.out
    found = json.loads(opsgen("list", "--json").out)
    assert [op["name"] for op in found["ops"]] == list(all_ops())
    for s in found["schedules"]:
        kind = s["name"].split(".")[0]
        assert set(s["defaults"]) <= {t for t in found["targets"] if t.startswith(f"{kind}/")} != set()
        if kind == "x86":
            assert set(s["defaults"]) == {"x86/avx2", "x86/avx512"}
        for config in s["defaults"].values():
            assert all(config[knob] in values for knob, values in s["knobs"].items())


def test_list_without_tvm(process: Command, tmp_path: Path) -> None:
    (tmp_path / "tvm.py").write_text("raise ImportError('hidden by the test')\n")
    done = process("list", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.code == 0 and 'pip install "opsgen[compile]"' in done.out
    assert json.loads(process("list", "--json", PYTHONPATH=f"{tmp_path}:{ROOT}").out)["schedules"] is None


def test_doctor(process: Command) -> None:
    done = process("doctor", "--json", "--no-measure")
    found = json.loads(done.out)
    by_name = {c["name"]: c for c in found["checks"]}
    assert done.code == (0 if found["ok"] else 1)
    assert found["ok"] == all(c["status"] != "problem" for c in found["checks"])
    assert {
        "python",
        "cpu",
        "tvm-ffi",
        "numpy",
        "tvm",
        "jinja2",
        "sympy",
        "g++",
        "temporary folder",
        "disk",
        "threads",
        "torch",
    } <= set(by_name)
    assert re.search(r"\d+ threads?$", by_name["threads"]["found"])
    assert by_name["threads"]["status"] == "ok" and by_name["threads"]["fix"] == ""
    text = process("doctor", "--no-measure").out
    assert all(name in text for name in by_name)


def test_doctor_where_things_are_missing(process: Command, tmp_path: Path) -> None:
    for package in ("rich", "shtab"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('hidden by the test')\n")
    hidden = {"PATH": str(tmp_path), "CXX": "", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = process("doctor", "--json", **hidden, OPSGEN_CPU_LEVEL="baseline")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["measured"] == {"cpu": None, "gpus": []}
    by_name = {c["name"]: c for c in found["checks"]}
    for name, fix in {
        "cpu rates": "",
        "rich": 'pip install "opsgen[cli]"',
        "shtab": 'pip install "opsgen[cli]"',
    }.items():
        assert (by_name[name]["status"], by_name[name]["fix"]) == ("note", fix)
    assert by_name["g++"] == {
        "name": "g++",
        "status": "problem",
        "found": "g++ was not found",
        "fix": "apt-get install g++",
    }
    assert by_name["cpu"]["status"] == "problem" and "--target x86/avx2" in by_name["cpu"]["fix"]
    assert by_name["threads"]["status"] == "note"
    text = process("doctor", "--no-measure", PATH=str(tmp_path), CXX="").out
    assert "-> apt-get install g++" in text and text.endswith("1 problem\n")


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("0.1.14.post0", "ok"),
        ("0.1.15.post1", "problem"),
        ("0.1.15.post2", "problem"),
        ("0.1.15.post3", "ok"),
        ("0.1.13", "problem"),
        (None, "problem"),
    ],
)
def test_doctor_knows_the_bad_versions(monkeypatch: pytest.MonkeyPatch, version: str | None, status: str) -> None:
    monkeypatch.setattr(doctor, "_version", lambda *names: version)
    check = doctor.tvm_ffi()
    assert check.status == status
    assert (check.fix == "") == (status == "ok")


def test_doctor_and_the_package_want_the_same() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'"apache-tvm=={doctor.TVM}"' in project
    ffi = re.search(r'"apache-tvm-ffi(>=[^"]*)"', project)
    assert ffi and f">={doctor.TVM_FFI_LEAST}" in ffi[1]
    assert set(re.findall(r"!=([\w.]+)", ffi[1])) == doctor.TVM_FFI_BAD


def test_doctor_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(doctor.tempfile, "TemporaryDirectory", fail)
    (check,) = doctor.temporary()
    assert check.status == "problem" and "TMPDIR" in check.fix


def test_doctor_with_little_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK", 1 << 60)
    assert [c.status for c in doctor.temporary()] == ["ok", "problem"]
