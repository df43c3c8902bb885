"""compute-sanitizer on small calls of every schedule; needs a GPU and the sanitizer. Slow: minutes.

Libraries come from OPSGEN_TEST_CUDA_LIBRARIES (see sanitized.py), or are compiled here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda import every_schedule, test_gpu

SANITIZER = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("not test_gpu.has_gpu()", reason="no GPU that torch can use"),
    pytest.mark.skipif(SANITIZER is None, reason="no compute-sanitizer"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library files are."""
    return Path(test_gpu.FOLDER or tmp_path_factory.mktemp("gpu"))


@pytest.mark.parametrize("part", every_schedule.PARTS)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found(folder: Path, tool: str, part: str) -> None:
    import torch

    major, minor = torch.cuda.get_device_capability()
    if not (folder / f"{part}.so").exists():
        every_schedule.write(part, folder / f"{part}.so", f"cuda/sm_{major}{minor}{'a' if major >= 9 else ''}")
    command = [str(SANITIZER), "--tool", tool, "--error-exitcode", "9"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.cuda.sanitized", str(folder), part],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},  # each tensor's end is known to memcheck
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert f"done: {part}" in done.stdout
    assert re.search(r"SUMMARY: 0 (errors|hazards)", done.stdout), done.stdout[-2000:]
