"""No kernel touches memory behind the arrays that it is given: emulated, with pages there that nobody may touch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.every_schedule import PARTS

QUICK = ("maps", "columns")
EMULATED = [
    pytest.param(p, marks=[] if p in QUICK else [pytest.mark.slow]) for p in PARTS if "wgmma" not in p
]  # fmt: skip


@pytest.mark.parametrize("part", EMULATED)
def test_calls_stay_in_their_memory(part: str) -> None:
    """In another process, which ends where they do not."""
    command = [sys.executable, "-m", "tests.cuda.guarded", part]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"done: {part}" in done.stdout
