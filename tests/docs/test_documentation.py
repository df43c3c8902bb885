"""What README and docs/ show runs and prints what they say; links lead somewhere; Sphinx finds no fault."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import ROOT, Page, matches, steps

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "console", "text", "sh", "{toctree}", "{eval-rst}"}
"""Of blocks. What is shown in another one would not run; "sh" is for what would install something, and
"json …" is what tests/cli/test_json.py holds commands to."""

SLOW = ("docs/numerics.md", "docs/adding-an-op.md")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def marked(page: str) -> Any:
    return pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if any(steps(text_of(page)))])
def test_what_a_page_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with np.printoptions():  # as they were, behind a page that sets them
        wrong = Page(ROOT / page, tmp_path).check()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_languages_that_are_run(page: str) -> None:
    fences = re.findall(r"^```(.*)$", text_of(page), flags=re.MULTILINE)
    assert {fence for fence in fences[::2] if not fence.startswith("json ")} <= LANGUAGES
    assert set(fences[1::2]) <= {""}


def test_a_wrong_output_is_found(tmp_path: Path) -> None:
    """The check can fail, for Python and for commands."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(2)\n```\n\n```text\n3\n```\n\n```console\n$ echo 4\n4\n$ echo 5\n6\n```\n"
        "```python\n# m.py\nx = 7\n```\n```console\n$ python -c 'import m; print(m.x)'\n8\n```\n"
    )
    wrong = Page(page, tmp_path).check()
    assert [w.splitlines()[:2] for w in wrong] == [["page.md:2 printed", "2"], ["page.md:12 printed", "5"],
                                                   ["page.md:20 printed", "7"]]  # fmt: skip
    assert matches("2...4\n", "2 3 4\n") and not matches("2\n", "3\n")


def test_every_results_file_has_its_command() -> None:
    page = text_of("docs/reproducing.md")
    named = set(re.findall(r"`([\w-]+)\.\*`", page))
    files = [path.name.partition(".")[0] for path in (ROOT / "benchmarks" / "results").glob("*.json")]
    made = {re.sub(r"minilm-\d+-threads.*", "minilm-N-threads", name) for name in files}
    assert made <= named
    for module in re.findall(r"python -m benchmarks\.(\w+)", page):
        assert (ROOT / "benchmarks" / f"{module}.py").exists()


# -- links -------------------------------------------------------------------------------------------------------------
def links(page: str) -> Iterator[str]:
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"(?<!\\)\]\(([^)\s]+)\)", prose)


def anchor(heading: str) -> str:
    """What a heading is called in a link, as GitHub and MyST have it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)}


def dead(page: str) -> list[str]:
    """Links to files or headings that are not there, and addresses that cannot be one."""
    found = []
    for link in links(page):
        if ":" in link:
            if not re.fullmatch(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[^\s<>]*)?", link):
                found.append(link)
            continue
        name, _, heading = link.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        generated = name.startswith("_generated/")  # made when the documentation is built
        if not generated and (not path.exists() or (heading and heading not in anchors(path))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_links(page: str) -> None:
    assert not dead(page)


def test_dead_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("# One `a` page\n[a](gone.md) [b](#two) [c](page.md#one-a-page) [d](http:/x)\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert dead("page.md") == ["gone.md", "#two", "http:/x"]


# -- Sphinx ------------------------------------------------------------------------------------------------------------
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
