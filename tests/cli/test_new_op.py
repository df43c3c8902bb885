"""`opsgen new-op`: what it writes works as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from opsgen.cli.choices import find_op
from opsgen.cli.main import main


def test_the_skeleton_passes_its_own_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-op", "my_norm", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/my_norm.py\n{tmp_path}/test_my_norm.py\nNext: ")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{tmp_path}/test_my_norm.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert main(["inspect", f"{tmp_path}/my_norm.py:my_norm"]) == 0
    text = (tmp_path / "my_norm.py").read_text()
    assert "return (x - og.mean(" in text
    (tmp_path / "my_norm.py").write_text(text.replace("return (x - og.mean(", "return (x + og.mean("))
    assert subprocess.run(command, capture_output=True, cwd=tmp_path, check=False).returncode == 1


@pytest.mark.torch
def test_the_skeletons_peer_is_its_reference(tmp_path: Path, torch: ModuleType) -> None:
    assert main(["new-op", "mine", "--folder", str(tmp_path)]) == 0
    op = find_op(f"{tmp_path}/mine.py:mine")
    x, scale = torch.randn(3, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    wanted = op.expected(x.numpy(), scale.numpy())
    np.testing.assert_allclose(op.peers["torch"](x, scale).numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_nothing_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_mine.py").write_text("keep")
    assert main(["new-op", "mine", "--folder", str(tmp_path)]) == 1
    assert "error E3006: " in (said := capsys.readouterr().err) and "is not replaced" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["test_mine.py"]
    assert main(["new-op", "mine", "--folder", str(tmp_path / "none")]) == 1
    assert "the folder does not exist" in capsys.readouterr().err


def test_names_that_are_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    assert main(["new-op", long, "--folder", str(tmp_path)]) == 1
    assert "cannot be written: File name too long" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    for words in (["new-op", "mine", "--folder", long], ["compile", "relu", "-o", f"{long}/lib.so"]):
        assert main(words) == 1
        assert "error E3006: " in (said := capsys.readouterr().err) and "does not exist" in said


@pytest.mark.parametrize("name", ["2norm", "class", "_x", "Norm", "a-b", ""])
def test_names_that_are_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-op", name]) == 2
    assert "is no name for an op" in capsys.readouterr().err


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-op", "mine", "--folder", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": [f"{tmp_path}/mine.py", f"{tmp_path}/test_mine.py"]}
