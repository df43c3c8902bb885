"""Documents have the shapes of docs/json.md: all of the fields, no others, and values of their types."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Command

PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
SHAPES = {
    m[1]: json.loads(m[2]) for m in re.finditer(r"^```json ([\w -]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}
TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "int": (int,), "number": (int, float), "bool": (bool,)}


def wrong(value: Any, shape: Any, where: str = "") -> list[str]:
    """Where a document differs from a shape, and how."""
    if isinstance(shape, str):
        name = shape.removesuffix("?")
        if shape == "any" or (value is None and name != shape):
            return []
        fits = isinstance(value, TYPES[name]) and (isinstance(value, bool) == (name == "bool"))
        return [] if fits else [f"{where}: {value!r} is no {shape}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [found for i, item in enumerate(value) for found in wrong(item, shape[0], f"{where}[{i}]")]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    named = {name.removesuffix("?"): of for name, of in shape.items() if name != "*"}
    needed = {name for name in shape if name != "*" and not name.endswith("?")}
    found = [f"{where}: {name!r} is missing" for name in sorted(needed - set(value))]
    for name, item in value.items():
        of = named.get(name, shape.get("*"))
        found += [f"{where}: {name!r} is not described"] if of is None else wrong(item, of, f"{where}.{name}")
    return found


def check(printed: str, *names: str) -> Any:
    """The document, which has the fields of all the shapes."""
    value = json.loads(printed)
    assert wrong(value, {k: v for name in names for k, v in SHAPES[name].items()}) == []
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"folder": None, "removed": 1, "bytes": 2}, []),
        ({"folder": 1, "removed": 1, "bytes": 2}, [".folder: 1 is no text?"]),
        ({"folder": "x", "removed": True, "bytes": 2}, [".removed: True is no int"]),
        ({"folder": "x", "bytes": 2, "more": 1}, [": 'removed' is missing", ": 'more' is not described"]),
        ([], [": [] is no object"]),
    ],
)
def test_a_difference_is_found(value: Any, said: list[str]) -> None:
    assert wrong(value, SHAPES["cache clear"]) == said


def test_compile_and_bench(opsgen: Command, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    words = ["compile", "relu", "--target", "x86/avx2", "-o", path, "--json"]
    assert check(opsgen(*words).out, "compile")["kernels"]
    done = opsgen("bench", path, "--dims", "rows=3", "--arch", "avx2", "--rounds", 1, "--json")
    (row,) = check(done.out, "bench")["results"]
    assert row["arch"] == "avx2"


@pytest.mark.parametrize("stage", ["graph", "proof", "te", "ir", "source", "asm"])
@pytest.mark.parametrize("target", ["x86/avx2", "cuda/sm_80"])
def test_inspect(opsgen: Command, stage: str, target: str) -> None:
    if target != "x86/avx2" and stage in ("graph", "proof", "te"):
        return  # the same for every target
    op = "softmax" if stage == "proof" else "relu"
    check(opsgen("inspect", op, "--stage", stage, "--target", target, "--json").out, "inspect", f"inspect {stage}")


def test_list(opsgen: Command) -> None:
    found = check(opsgen("list", "--json").out, "list")
    assert found["schedules"] and found["ops"]


def test_doctor(opsgen: Command) -> None:
    found = check(opsgen("doctor", "--json").out, "doctor")
    assert wrong(found["measured"]["cpu"], SHAPES["doctor measured"]) == []
    quick = check(opsgen("doctor", "--json", "--no-measure").out, "doctor")
    assert quick["measured"] == {"cpu": None, "gpus": []}
    assert {c["name"] for c in found["checks"]} - {c["name"] for c in quick["checks"]} == {"cpu rates"}


def test_the_rest(opsgen: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSGEN_CACHE", str(tmp_path / "cache"))
    for action in ("list", "info", "clear"):
        check(opsgen("cache", action, "--json").out, f"cache {action}")
    check(opsgen("new-op", "mine", "--folder", tmp_path, "--json").out, "new-op")
    check(opsgen("completion", "bash", "--json").out, "completion")
    check(opsgen("inspect", "no_such_op", "--json").err, "error")
    monkeypatch.setenv("OPSGEN_CACHE", "/proc/none")
    path = tmp_path / "lib.so"
    assert opsgen("compile", f"{tmp_path}/mine.py:mine", "--target", "x86/avx2", "-o", path, "--json").code == 0


def test_every_command_is_described() -> None:
    from opsgen.cli.grammar import parser

    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    described = {name.split()[0] for name in SHAPES} - {"error", "warning"}
    assert described == set(commands)  # type: ignore[arg-type]
