"""The command in this process, and in one of its own."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsgen.cli import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Done:
    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def opsgen(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command here: ``opsgen("list", "--json")``."""

    def run(*words: Any) -> Done:
        capsys.readouterr()
        code = main([str(w) for w in words])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def process() -> Command:
    """Runs the command as a program, with changes to its environment."""

    def run(*words: Any, cwd: Path | None = None, **environment: str) -> Done:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        done = subprocess.run(
            [sys.executable, "-m", "opsgen", *map(str, words)], capture_output=True, text=True, env=variables, cwd=cwd,
            check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def terminal() -> Callable[..., tuple[int, str]]:
    """Runs the command on a terminal of some columns; gives the exit code, and all that it shows."""

    def run(*words: Any, columns: int = 100, **environment: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        variables = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        variables |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environment}
        with subprocess.Popen(
            [sys.executable, "-m", "opsgen", *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs,
            env=variables,
        ) as running:  # fmt: skip
            os.close(theirs)
            shown = b""
            while True:
                try:
                    piece = os.read(ours, 1 << 16)
                except OSError:  # the other side has closed
                    break
                shown += piece
        os.close(ours)
        return running.returncode, shown.decode()

    return run


OP_FILE = '''
import opsgen as og

print("printed while it is imported")
LIMIT = 3

@og.op
def scaled(x: og.Tensor["...", "n"], *, factor: float = 2.0) -> og.Tensor:
    """y = factor x"""
    return x * factor
'''


@pytest.fixture
def op_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_ops.py"
    path.write_text(OP_FILE)
    return path
