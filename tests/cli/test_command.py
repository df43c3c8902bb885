"""The command itself: help, versions, exit codes, errors as text and as JSON, output that is piped."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opsgen as og
from opsgen.errors import InternalError

from .conftest import ROOT, Command


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = "import sys, opsgen.cli; opsgen.cli.main(['--help']); print(*sys.modules)"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    seconds = time.perf_counter() - start
    assert "usage: opsgen" in done.stdout
    modules = done.stdout.splitlines()[-1].split()
    assert "opsgen.cli.main" in modules
    assert {"tvm", "tvm_ffi", "numpy", "torch", "jinja2", "rich", "shtab"}.isdisjoint(modules)
    assert seconds < 1.5  # 0.12 s on an idle machine; the modules above are what would make it slow


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        *([c, "--help"] for c in ("compile", "inspect", "list", "doctor", "cache", "new-op", "bench", "completion")),
    ],
)
def test_help_of_every_command(opsgen: Command, words: list[str]) -> None:
    done = opsgen(*words)
    assert done.code == 0
    assert done.out.startswith("usage: opsgen")
    assert done.err == ""


def test_version(opsgen: Command) -> None:
    assert opsgen("--version").out == f"opsgen {og.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["frobnicate"],
        ["compile", "gelu"],
        ["compile", "-o", "f.so"],
        ["compile", "gelu", "-o"],
        ["compile", "gelu", "-o", "f.so", "--dim", "rows"],
        ["compile", "gelu", "-o", "f.so", "--attribute", "=3"],
        ["compile", "gelu", "-o", "f.so", "--dtype", "nothing=int32"],
        ["inspect"],
        ["inspect", "gelu", "relu"],
        ["inspect", "gelu", "--dtype", "float32,float16"],
        ["list", "a", "b"],
        ["doctor", "--colour"],
        ["bench"],
    ],
)
def test_a_command_line_that_cannot_be_understood(opsgen: Command, words: list[str]) -> None:
    done = opsgen(*words)
    assert (done.code, done.out) == (2, "")
    assert "error: " in done.err and "Traceback" not in done.err
    done = opsgen(*words, "--json")
    assert (done.code, done.out) == (2, "")
    assert json.loads(done.err)["error"]["code"] == "usage"


ERRORS = {
    "E2001": ["inspect", "gelu", "--stage", "ir", "--target", "x86/sse2"],
    "E3001": ["inspect", "gelu", "--dim", "hidden=3"],
    "E3002": ["inspect", "gelu", "--dtype", "int8"],
    "E3003": ["inspect", "gelu", "--attribute", "approximate=sinh"],
    "E3007": ["inspect", "gelo"],
    "E3008": ["inspect", "softmax", "--dim", "columns=many"],
    "E3010": ["inspect", "no/such/file.py:op"],
    "E3011": ["inspect", "gelu", "--stage", "timeline"],
    "E4021": ["list", "no-such-file.so"],
}


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_is_one_line_with_its_code(opsgen: Command, code: str) -> None:
    done = opsgen(*ERRORS[code])
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error {code}: ")
    assert done.err.count("\n") == 1
    message = done.err.removeprefix(f"error {code}: ").rstrip("\n")
    done = opsgen(*ERRORS[code], "--json")
    assert (done.code, done.out) == (1, "")
    assert json.loads(done.err) == {"error": {"code": code, "message": message}}


def test_targets_of_two_kinds(opsgen: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from opsgen.targets import names

    monkeypatch.setattr(names, "known", lambda: {"x86": ("avx2",), "cuda": ("sm_90a",)})
    done = opsgen("inspect", "gelu", "--stage", "asm", "--target", "x86/avx2,cuda/sm_90a")
    assert done.code == 1 and "E2005" in done.err


@pytest.mark.parametrize("attribute", ["bias", "nothing"])
def test_choices_that_no_op_has(opsgen: Command, attribute: str) -> None:
    for option, words in {"--absent": [attribute], "--attribute": [f"{attribute}=1"]}.items():
        done = opsgen("compile", "gelu", "relu", "-o", "f.so", option, *words)
        assert done.code == 1 and done.err.startswith("error E3003: ")


@pytest.mark.internal_error
@pytest.mark.parametrize(
    ("bug", "text"), [(InternalError("no such thing"), "no such thing"), (KeyError("k"), "KeyError: 'k'")]
)
def test_a_bug_says_so(opsgen: Command, monkeypatch: pytest.MonkeyPatch, bug: Exception, text: str) -> None:
    def fail() -> None:
        raise bug

    monkeypatch.setattr("opsgen.cli.listing.everything", fail)
    monkeypatch.delenv("OPSGEN_TRACEBACK", raising=False)
    done = opsgen("list")
    assert done.code == 70
    assert done.err.startswith(f"internal error: {text}\n")
    assert "bug in opsgen" in done.err and "report" in done.err and "Traceback" not in done.err
    assert json.loads(opsgen("list", "--json").err)["error"]["code"] == "internal"
    monkeypatch.setenv("OPSGEN_TRACEBACK", "1")
    with pytest.raises(type(bug)):
        opsgen("list")


def test_an_interrupt(opsgen: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opsgen.cli.listing.everything", stop)
    assert opsgen("list").code == 130


@pytest.mark.parametrize("words", [["--help"], ["inspect", "attention"], ["list", "--json"]])
def test_a_reader_that_has_closed_is_met_quietly(words: list[str]) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "opsgen", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    assert running.stdout and running.stderr
    running.stdout.close()
    assert running.wait(timeout=100) in (0, 141)
    assert running.stderr.read() == b""
    running.stderr.close()


def test_output_that_can_only_be_ascii(process: Command) -> None:
    done = process("list", PYTHONIOENCODING="ascii", TERM="xterm-256color", COLUMNS="20", FORCE_COLOR="1")
    assert done.code == 0 and "\x1b" not in done.out
    assert re.search(r"^  gelu\(x, \*, approximate='none'\) {20,}y = x \? \?\(x\)$", done.out, re.MULTILINE)
    docs = [op["doc"] for op in json.loads(process("list", "--json", PYTHONIOENCODING="ascii").out)["ops"]]
    assert "y = x · Φ(x)" in docs


def test_options_are_not_abbreviated(opsgen: Command) -> None:
    assert opsgen("inspect", "gelu", "--js").code == 2


def test_the_entry_point_of_the_package_is_this_command() -> None:
    assert 'opsgen = "opsgen.cli:main"' in (ROOT / "pyproject.toml").read_text()


def test_ops_of_files_and_modules(process: Command, op_file: Path) -> None:
    for name in (op_file, "my_ops.py"):
        done = process("inspect", f"{name}:scaled", cwd=op_file.parent)
        assert done.code == 0, done.err
        assert done.out.startswith("# scaled(x, *, factor=2.0)\n")  # without what the file prints
    done = process("inspect", "my_ops:scaled", "--json", cwd=op_file.parent)
    assert done.code == 0, done.err
    assert json.loads(done.out)["op"] == "scaled"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my_ops.py", "the file holds these ops: scaled"),
        ("my_ops.py:other", "has no 'other'; its ops are: scaled"),
        ("my_ops.py:LIMIT", "is a int, not an op; its ops are: scaled"),
        ("broken.py:f", "ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("wrong.py:f", "SyntaxError"),
        ("leaves.py:f", "SystemExit"),
        ("nowhere.module:f", "ModuleNotFoundError: No module named 'nowhere'"),
        (":f", "no module was named"),
        ("flex_attention", "it is no op, but makes ops of functions"),
    ],
)
def test_ops_that_cannot_be_loaded(
    opsgen: Command, op_file: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(op_file.parent)
    Path("broken.py").write_text("x = 1\ny = x / 0\n")
    Path("wrong.py").write_text("def f(:\n")
    Path("leaves.py").write_text("raise SystemExit(0)\n")
    done = opsgen("inspect", name)
    assert done.code == 1 and done.out == ""
    assert "error E3010: " in done.err and said in done.err and "Traceback" not in done.err


def test_a_wrong_definition_is_its_own_error(opsgen: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text('import opsgen as og\n\n@og.op\ndef f(x: og.Tensor["n"]):\n    return og.sum(x, over="m")\n')
    done = opsgen("inspect", f"{path}:f")
    assert done.code == 1 and done.err.startswith("error E1002: bad.py:5 ")
