"""What terminals show: colours and tables that fit, progress, and plain text where that is wanted."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opsgen.cli import output, terminal
from opsgen.cli.output import Heading, Table

from .conftest import ROOT, Command

Terminal = Callable[..., tuple[int, str]]

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines(shown: str) -> list[str]:
    return ESCAPE.sub("", shown).replace("\r\n", "\n").split("\n")


@pytest.fixture(name="terminal")
def _terminal(terminal: Terminal) -> Terminal:
    return terminal


def test_nothing_is_wider_than_the_terminal(terminal: Terminal) -> None:
    columns = 40
    code, shown = terminal("list", columns=columns)
    assert code == 0
    assert "\x1b[1mops\x1b[0m" in shown
    found = lines(shown)
    assert max(map(len, found)) <= columns
    words = " ".join(" ".join(found).split())
    for text in ("rms_norm(x, weight, residual=None, *, eps=1e-06)", "x86/avx2", "x86.contraction:", "flops_per_ns"):
        assert text in words


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONPATH": "without rich"}])
def test_plain_where_that_is_wanted_or_rich_is_missing(
    terminal: Terminal, process: Command, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('hidden by the test')\n")
    if "PYTHONPATH" in environment:
        environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    code, shown = terminal("cache", "info", columns=40, **environment)
    assert code == 0 and "\x1b" not in shown
    assert shown.replace("\r\n", "\n") == process("cache", "info").out


def test_progress_of_a_compile(terminal: Terminal, tmp_path: Path) -> None:
    code, shown = terminal("compile", "relu", "--target", "x86/avx2", "-o", tmp_path / "lib.so", columns=60)
    assert code == 0
    # Of the steps, a busy machine may draw only the last ones.
    assert re.search(r"(machine code for x86/avx2|launcher) .*[1-5]/5", ESCAPE.sub("", shown))
    assert shown.rindex("\x1b[?25h") < shown.rindex("relu")  # the cursor is there again before the result is printed
    assert lines(shown)[-2].startswith("s") or " 1 kernel, " in lines(shown)[-2] + lines(shown)[-3]


def test_progress_without_rich_is_one_line_that_fits(terminal: Terminal, tmp_path: Path) -> None:
    words = ["compile", "relu", "--target", "x86/avx2", "-o", tmp_path / "lib.so"]
    code, shown = terminal(*words, columns=20, NO_COLOR="1")
    assert code == 0
    assert "\r[1/5] relu for x86/" in shown
    progress = shown[: shown.index("relu  ")]
    assert "\n" not in progress
    assert all(len(piece) < 20 for piece in progress.split("\r"))


def test_an_error_is_coloured_on_a_terminal_alone(terminal: Terminal, process: Command) -> None:
    code, shown = terminal("inspect", "gelo")
    assert code == 1 and shown.startswith("\x1b[31;1merror E3007\x1b[0m: unknown op 'gelo'")
    assert process("inspect", "gelo").err.startswith("error E3007: ")


def test_json_on_a_terminal_has_no_colours(terminal: Terminal) -> None:
    assert "\x1b" not in terminal("cache", "info", "--json")[1]


# -- tables ------------------------------------------------------------------------------------------------------------
ROWS = Table([["a" * 20, "1.5 ms", "small+all"], ["b", "12 us", "NOT"]], ["what", "time", "checked"], numbers=True)


def test_a_table_of_numbers_that_does_not_fit_becomes_records() -> None:
    wide = lines(terminal.text([Heading("op"), ROWS], 60))
    assert wide[1].split() == ["what", "time", "checked"] and wide[2].split() == ["a" * 20, "1.5", "ms", "small+all"]
    assert wide[2].index("1.5 ms") + 6 == wide[3].index("12 us") + 5
    narrow = lines(terminal.text([ROWS], 30))
    assert narrow[:6] == ["a" * 20, "  time: 1.5 ms", "  checked: small+all", "b", "  time: 12 us", "  checked: NOT"]


def test_words_with_a_meaning_are_coloured() -> None:
    assert "\x1b[1;31mproblem\x1b[0m" in terminal.text([Table([["problem", "g++"], ["ok", "x"]])], 60)


def test_what_looks_like_markup_is_text() -> None:
    assert "[bold]x[/bold]" in terminal.text(["[bold]x[/bold]", Table([["[red]", "[/red]"]])], 60)


def test_a_table_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.show([ROWS, Table([("a", "b"), ("ccc", "")], indent=2), "end"])
    assert capsys.readouterr().out.split("\n") == [
        f"what{' ' * 16}    time    checked", f"{'a' * 20}  1.5 ms  small+all", f"b{' ' * 19}   12 us        NOT",
        "  a    b", "  ccc", "end", "",
    ]  # fmt: skip


def test_importing_the_runtime_loads_neither(process: Command) -> None:
    import subprocess

    code = "import opsgen, opsgen.runtime, sys; print({'rich', 'shtab', 'opsgen.cli'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "set()\n"
