"""The rules of conftest.py, tried in a pytest of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

INTERNAL_ERRORS = """
import pytest
from opsgen.errors import InternalError, error

def test_raised(): error("E0000")

def test_caught():
    try:
        error("E0000")
    except RuntimeError:
        pass

@pytest.mark.xfail
def test_expected_to_fail(): error("E0000")

def test_skipped():
    try:
        error("E0000")
    except InternalError:
        pytest.skip("not here")

@pytest.fixture
def broken(): error("E0000")

def test_fixture(broken): pass
"""

ON_PURPOSE = """
import pytest
from opsgen.errors import InternalError, error

@pytest.mark.internal_error
def test_on_purpose():
    with pytest.raises(InternalError): error("E0000")

def test_user_error():
    assert error("E4021", path="x", found="y").code == "E4021"

@pytest.mark.xfail
def test_expected_to_fail(): assert False

def test_skipped(): pytest.skip("not here")
"""

TORCH_MISSING = """
import sys
import pytest
sys.modules["torch"] = None

def test_fixture(torch): pass

@pytest.mark.torch
def test_marker(): pass

def test_without(): pass
"""


def _pytest(folder: Path, text: str) -> tuple[str, dict[str, int]]:
    """The output of a pytest that runs ``text`` under this conftest, and the counts of its summary line."""
    shutil.copy(CONFTEST, folder)
    (folder / "test_inner.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    torch\n    internal_error\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "pytest.ini", "test_inner.py"]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120).stdout
    summary = output.splitlines()[-1]
    return output, {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", summary)}


def test_meeting_an_internal_error_fails(tmp_path: Path) -> None:
    output, counts = _pytest(tmp_path, INTERNAL_ERRORS)
    assert counts == {"failed": 4, "error": 1}, output
    assert output.count("INTERNAL ERROR, a bug in opsgen: unknown error code E0000") >= 5, output


def test_other_outcomes_are_untouched(tmp_path: Path) -> None:
    output, counts = _pytest(tmp_path, ON_PURPOSE)
    assert counts == {"passed": 2, "xfailed": 1, "skipped": 1}, output


def test_missing_torch_fails(tmp_path: Path) -> None:
    output, counts = _pytest(tmp_path, TORCH_MISSING)
    assert counts == {"passed": 1, "error": 2}, output
    assert "this test needs torch" in output


@pytest.mark.torch
def test_torch_fixture(torch: object) -> None:
    assert torch is sys.modules["torch"]
