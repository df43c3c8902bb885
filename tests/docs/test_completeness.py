"""Pages that list something list all of it: options of the command line, environment variables, codes."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from opsgen.cli.grammar import parser
from opsgen.errors import ERRORS, WARNINGS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [p for s in ("opsgen", "schedules", "targets", "templates") for p in (ROOT / s).rglob("*") if p.is_file()]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def test_every_command_has_a_section_and_every_option_is_named() -> None:
    text = page("cli.md")
    for name, command in commands().items():
        assert f"\n## {name}\n" in text
        assert f"    opsgen {name}" in text
        for action in command._actions:
            named = [option for option in action.option_strings if re.search(rf"[`\[ ]{option}\b", text)]
            assert named or not action.option_strings or action.dest == "help", (name, action.option_strings)


def variables(text: str) -> set[str]:
    """The environment variables that a source reads by their names."""
    direct = re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"|getenv\(\"([A-Z_]+)\"\)", text)
    named = re.findall(r"\"((?:OPSGEN|CUDA)_[A-Z_]+)\"", text)
    return {a or b for a, b in direct} | {name for name in named if not name.startswith("OPSGEN_TEST")}


def test_every_environment_variable_is_listed() -> None:
    read: set[str] = set()
    for path in SOURCES:
        if path.suffix in (".py", ".cc", ".j2"):
            read |= variables(path.read_text(encoding="utf-8"))
    assert {"OPSGEN_CACHE", "OPSGEN_OPENMP", "NVCC", "CUDA_HOME"} <= read
    assert not [name for name in read if name not in page("environment.md")]


def test_codes_that_pages_name_are_there() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if path.name == "design.md":  # names some that are planned
            continue
        named = re.findall(r"\b([EW][1-6]\d{3})\b", path.read_text(encoding="utf-8"))
        assert not [code for code in named if code not in ERRORS and code not in WARNINGS], path
