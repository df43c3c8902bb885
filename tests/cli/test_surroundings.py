"""What happens around a command: signals, folders that cannot be used, output that cannot be written, no home."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opsgen.compiler import cache

from .conftest import ROOT, Command, Done


def without_roots_rights() -> None:
    """Permissions hold for root too: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH leave the bounding set."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):
            assert libc.prctl(24, capability, 0, 0, 0) == 0


def run(*words: object, **environment: str) -> Done:
    """The command as a program that permissions hold for."""
    done = subprocess.run(
        [sys.executable, "-m", "opsgen", *map(str, words)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, preexec_fn=without_roots_rights,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def sealed(tmp_path: Path) -> Callable[[Path], None]:
    return lambda folder: [path.chmod(0o555) for path in (folder, *folder.rglob("*")) if path.is_dir()] and None


# -- signals -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "termi")]
)
def test_a_compile_that_is_stopped_leaves_nothing(tmp_path: Path, number: int, code: int, said: str) -> None:
    places = {name: tmp_path / name for name in ("output", "temporary", "cache")}
    for place in places.values():
        place.mkdir()
    variables = {
        **os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(places["temporary"]), "OPSGEN_CACHE": str(places["cache"])
    }  # fmt: skip
    words = ["compile", "softmax", "rms_norm", "--target", "x86/avx2", "-o", str(places["output"] / "lib.so")]
    with subprocess.Popen(
        [sys.executable, "-m", "opsgen", *words], env=variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stderr and running.stdout
        assert running.stderr.readline().startswith("[1/")
        os.killpg(running.pid, number)  # as a terminal does: the compiler gets it too
        out, err = running.stdout.read(), running.stderr.read()
    assert running.returncode == code
    assert out == "" and err.splitlines()[-1].startswith(said) and "Traceback" not in err
    assert list(places["output"].iterdir()) == [] and list(places["temporary"].iterdir()) == []
    assert [p for p in places["cache"].rglob("*") if p.is_file() and p.parent.name != "locks"] == []


def test_an_interrupt_is_an_exit_code_also_where_python_would_end_by_the_signal() -> None:
    """After a KeyboardInterrupt in an exec() of text, CPython ends by SIGINT and gives no exit code."""
    code = (
        "import sys; from opsgen.cli import listing, main\n"
        "def stop():\n    exec('raise KeyboardInterrupt')\n"
        "listing.everything = stop; sys.exit(main(['list', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (130, "")
    assert json.loads(done.stderr) == {"error": {"code": "interrupted", "message": "interrupted"}}


# -- output ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("words", [["cache", "info"], ["cache", "info", "--json"], ["inspect", "gelu"], ["--help"]])
def test_a_disk_that_is_full(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "opsgen", *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert done.returncode == 1
    assert "E3006" in done.stderr and "standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_reader_that_takes_one_line() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m opsgen inspect attention | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    first, code = done.stdout.splitlines()
    assert first.startswith("# attention(") and code in ("0", "141") and done.stderr == ""


# -- folders -----------------------------------------------------------------------------------------------------------
def test_a_cache_that_can_only_be_read(tmp_path: Path, sealed: Callable[[Path], None]) -> None:
    place, output = tmp_path / "cache", tmp_path / "lib.so"
    words = ["compile", "relu", "--target", "x86/avx2", "-o", output]
    assert run(*words, OPSGEN_CACHE=str(place)).code == 0
    output.unlink()
    sealed(place)
    for path in place.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    done = run(*words, "--json", OPSGEN_CACHE=str(place))  # what is in it serves
    assert (done.code, done.err) == (0, "") and output.exists()
    done = run("cache", "list", "--json", OPSGEN_CACHE=str(place))
    assert done.code == 0 and len(json.loads(done.out)["entries"]) == 3
    done = run("cache", "clear", OPSGEN_CACHE=str(place))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error E3006: {place} cannot be written: Permission denied")
    words[1] = "silu"
    done = run(*words, "--json", OPSGEN_CACHE=str(place))  # what is not is built, and a warning says why it is not kept
    assert done.code == 0 and json.loads(done.out)["ops"] == ["silu"]
    assert json.loads(done.err)["warning"]["code"] == "W3001"
    assert str(place) in json.loads(done.err)["warning"]["message"]


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    done = run("compile", "relu", "--target", "x86/avx2", "-o", tmp_path / "lib.so", OPSGEN_CACHE="/proc/none/cache")
    assert done.code == 0
    assert "warning W3001: the compile cache in /proc/none/cache cannot be used (" in done.err
    assert "warnings.py" not in done.err and ".py:" not in done.err
    assert run("cache", "list", OPSGEN_CACHE="/proc/none/cache").out == "no entries\n"


def test_no_home_folder(opsgen: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    for variable in (cache.FOLDER, "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    done = opsgen("cache", "list")
    assert (done.code, done.out) == (0, f"there is no cache: {cache.why_none()}\n")
    assert "this user has no home folder" in done.out
    assert json.loads(opsgen("cache", "list", "--json").out) == {"folder": None, "entries": []}
    cache._said.clear()
    with pytest.warns(Warning, match=r"W3001: the compile cache in ~/.cache/opsgen cannot be used \(this user has no"):
        assert isinstance(cache.open_cache(), cache.NoCache)
