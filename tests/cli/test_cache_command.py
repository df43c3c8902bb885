"""`opsgen cache`, and compiling without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsgen.cli.main import main
from opsgen.compiler import cache


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["cache", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_list_info_clear(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list"]) == 0
    assert capsys.readouterr().out == "no entries\n"
    output = str(tmp_path / "a.so")
    assert main(["compile", "relu", "--target", "x86/avx2", "-o", output, "--no-cache"]) == 0
    capsys.readouterr()
    assert _json(capsys, "info")["entries"] == 0
    assert main(["compile", "relu", "--target", "x86/avx2", "-o", output]) == 0
    capsys.readouterr()
    listed = _json(capsys, "list")["entries"]
    assert isinstance(listed, list)
    assert {(e["kind"], e["title"]) for e in listed} == {
        ("library", "relu for x86/avx2"), ("unit", "launcher.cc"), ("unit", "threads.cc"),
    }  # fmt: skip
    assert all(Path(e["file"]).stat().st_size == e["bytes"] for e in listed)
    assert main(["cache", "list"]) == 0
    assert "library  relu for x86/avx2\n" in capsys.readouterr().out
    total = sum(e["bytes"] for e in listed)
    assert _json(capsys, "info") == {"folder": str(place), "entries": 3, "bytes": total, "most": 2048 << 20}
    assert _json(capsys, "clear") == {"folder": str(place), "removed": 3, "bytes": total}
    assert _json(capsys, "list")["entries"] == []
    assert main(["cache", "info"]) == 0
    assert capsys.readouterr().out.startswith("0 entries, 0 bytes of 2048.0 MiB, in ")


def test_no_cache(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(cache.FOLDER, "0")
    for action in ("list", "info", "clear"):
        assert main(["cache", action]) == 0
        assert capsys.readouterr().out == "there is no cache: OPSGEN_CACHE is 0\n"


def test_what_else_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 2 and main(["cache", "empty"]) == 2
