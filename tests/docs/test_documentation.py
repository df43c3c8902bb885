"""The Python in README and tutorial runs, in order, and prints what the page says."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/tutorial.md", "docs/language.md", "docs/online-chains.md"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A block of Python, the line of the page that it starts at, and the text block behind it, if there is one."""

    code: str
    line: int
    output: str | None


def blocks(text: str) -> list[Block]:
    pattern = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", flags=re.MULTILINE | re.DOTALL)
    return [Block(m[1], text.count("\n", 0, m.start(1)), m[2]) for m in pattern.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / page
    found = blocks(path.read_text(encoding="utf-8"))
    assert found
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in found:
        code = compile("\n" * block.line + block.code, str(path), "exec")  # tracebacks show the page's lines
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        wanted, got = block.output or "", printed.getvalue()
        assert doctest.OutputChecker().check_output(wanted, got, FLAGS), (
            f"{page}:{block.line + 1} printed\n{got}\nand the page says\n{wanted}"
        )


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "docs/design.md", "docs/library-format.md"])
def test_links_to_files(page: str) -> None:
    path = ROOT / page
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def test_a_wrong_output_is_found() -> None:
    """The check can fail."""
    (block,) = blocks("```python\nprint(2)\n```\n\n```text\n3\n```\n")
    assert block == ("print(2)\n", 1, "3\n")
    assert not doctest.OutputChecker().check_output(block.output or "", "2\n", FLAGS)


def _build(source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html", str(source), str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    done = _build(ROOT / "docs", tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "_generated" / "operators.html").read_text(encoding="utf-8")
    assert "Root Mean Square Layer Normalization" in text and "Llama-3-8B, prefill" in text


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text('extensions = ["myst_parser"]\n')
    (tmp_path / "index.md").write_text("# Title\n\n[there](gone.md)\n")
    assert _build(tmp_path, tmp_path / "out").returncode == 1
