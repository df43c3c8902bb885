"""`opsgen completion`: what the shells offer."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from opsgen.cli import completion
from opsgen.cli.grammar import SHELLS, STAGES
from opsgen.compiler.inspect import STAGES as SHOWN
from opsgen.ops import all_ops
from opsgen.targets import names

from .conftest import ROOT, Command

OFFERED = {  # what is typed, and what is offered; files are those of the folder
    "opsgen comp": {"compile", "completion"},
    "opsgen compile rms": {name for name in all_ops() if name.startswith("rms")},
    "opsgen compile rms_norm -o x.so --target cuda/sm_8": {"cuda/sm_80", "cuda/sm_86", "cuda/sm_89"},
    "opsgen inspect gelu --stage as": {"asm"},
    "opsgen inspect gelu --dtype bf": {"bfloat16"},
    "opsgen inspect gelu --absent bias --st": {"--stage"},
    "opsgen list zz": {"zz.so"},
    "opsgen compile zz": {"zz_ops.py"},
    "opsgen bench zz": {"zz.so", "zz_ops.py"},
    "opsgen cache cl": {"clear"},
    "opsgen completion z": {"zsh"},
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script for each shell, and files to complete."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / f"_opsgen.{shell}").write_text(completion.script(shell))
    for name in ("zz.so", "zz_ops.py", "zz.txt"):
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize("typed", OFFERED)
def test_bash(scripts: Path, typed: str) -> None:
    program = (
        "source ./_opsgen.bash; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        '_shtab_opsgen; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program, "bash", typed], capture_output=True, text=True, cwd=scripts)
    assert done.stderr == ""
    assert set(done.stdout.split()) == OFFERED[typed]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_it(scripts: Path, shell: str) -> None:
    """Completion in fish is tried too; the shells are not there on every machine, and their syntax is all alike."""
    text = (scripts / f"_opsgen.{shell}").read_text()
    for word in ("rms_norm", "cuda/sm_90a", "bfloat16", *STAGES, "--float8-sums", "completion"):
        assert word in text
    if shutil.which(shell) is None:
        return
    assert subprocess.run([shell, "-n", f"_opsgen.{shell}"], cwd=scripts).returncode == 0
    if shell == "fish":
        for typed, wanted in OFFERED.items():
            program = f"source _opsgen.fish; complete -C '{typed}'"
            done = subprocess.run(["fish", "-c", program], capture_output=True, text=True, cwd=scripts, check=True)
            assert {line.split("\t")[0] for line in done.stdout.splitlines()} >= wanted, typed


def test_it_knows_what_there_is() -> None:
    text = completion.script("bash")
    line = next(line for line in text.splitlines() if line.startswith("_opsgen_op() "))
    assert set(line.split('"')[3].split()) == set(all_ops())
    line = next(line for line in text.splitlines() if line.startswith("_opsgen_target() "))
    listed = {f"{kind}/{arch}" for kind, archs in names.known().items() for arch in archs}
    assert set(line.split('"')[3].split()) == {"x86", *listed, *names.ALIASES}
    assert STAGES == SHOWN


def test_json(opsgen: Command) -> None:
    found = json.loads(opsgen("completion", "fish", "--json").out)
    assert found == {"shell": "fish", "script": completion.script("fish")}


def test_without_shtab(process: Command, tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError('hidden by the test')\n")
    done = process("completion", "bash", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error E2007: shell completions need shtab, which cannot be imported (hidden by")


def test_a_shell_that_is_not_known(opsgen: Command) -> None:
    assert opsgen("completion", "tcsh").code == 2
