"""docs/errors.md is what its script makes of the table."""

import subprocess
import sys
from pathlib import Path

from opsgen.errors import ERRORS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_error_docs.py"


def test_the_page_is_current() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_code_once() -> None:
    rows = [
        line.split()[1] for line in (ROOT / "docs" / "errors.md").read_text().splitlines() if line.startswith("| E")
    ]
    assert rows == sorted(ERRORS)
