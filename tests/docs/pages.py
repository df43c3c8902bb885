"""Runs what a page of the documentation shows, and compares it with what the page says it prints.

A page is Markdown. Its blocks run in order, in one process and one empty folder:

    ```python     runs; a block of ```text right behind it is what it prints
    ```python     whose first line is `# name.py` is a file of that name
    ```console    lines after `$ ` are commands; what follows each is what it prints, errors included

``...`` in an output stands for anything, and white space does not count. With OPSGEN_TEST_GOLDEN=write outputs that
differ are written to the page.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCKS = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```$)?|^```console\n(?P<console>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# (\w+\.py)\n")
_FUNCTION = 'opsgen() { python -m opsgen "$@"; }\n'


class Step(NamedTuple):
    """Something that runs: Python, a file or a command; its line in the page; what it is to print; and where that lies
    in the text (None: there is no place for it)."""

    kind: str
    code: str
    line: int
    output: str
    place: tuple[int, int] | None


def steps(text: str) -> Iterator[Step]:
    """What a page has run, in order."""
    for block in _BLOCKS.finditer(text):
        if block["code"] is not None:
            line = text.count("\n", 0, block.start("code"))
            kind = "file" if _FILE.match(block["code"]) else "python"
            place = None if block["output"] is None else block.span("output")
            yield Step(kind, block["code"], line, block["output"] or "", place)
        else:
            start = block.start("console")
            for command in re.finditer(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", block["console"], re.MULTILINE):
                line = text.count("\n", 0, start + command.start())
                place = start + command.start(2), start + command.end(2)
                yield Step("console", command[1], line, command[2], place)


def matches(wanted: str, got: str) -> bool:
    """Whether a page says what was printed."""
    return doctest.OutputChecker().check_output(wanted, got, FLAGS)


class Page:
    """A page that runs in ``folder``."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__page__"}

    def run(self, step: Step) -> str:
        """What a step prints."""
        if step.kind == "file":
            found = _FILE.match(step.code)
            assert found
            (self.folder / found[1]).write_text(step.code, encoding="utf-8")
            return ""
        if step.kind == "console":
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                ["bash", "-c", _FUNCTION + step.code], cwd=self.folder, env=environment, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            return done.stdout
        printed = io.StringIO()
        code = compile("\n" * step.line + step.code, str(self.path), "exec")  # tracebacks show the page's lines
        with contextlib.redirect_stdout(printed):
            exec(code, self.names)
        return printed.getvalue()

    def check(self) -> list[str]:
        """What the page says wrongly."""
        text = self.path.read_text(encoding="utf-8")
        renew = os.environ.get("OPSGEN_TEST_GOLDEN") == "write"
        wrong: list[str] = []
        changes: list[tuple[tuple[int, int], str]] = []
        for step in steps(text):
            got = self.run(step)
            if matches(step.output, got):
                continue
            if renew and step.place is not None:
                changes.append((step.place, got))
            else:
                wrong.append(f"{self.path.name}:{step.line + 1} printed\n{got}\nand the page says\n{step.output}")
        for (start, end), got in reversed(changes):
            text = text[:start] + got + text[end:]
        if changes:
            self.path.write_text(text, encoding="utf-8")
        return wrong
