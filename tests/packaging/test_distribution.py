"""Wheel, sdist and editable install hold every file of the package, also those behind links."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("schedules", "targets", "templates")


def _run(*command: str | Path, cwd: Path) -> str:
    """What a command printed; its whole output where it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def _build(source: Path, kind: str, out: Path) -> Path:
    # From a copy: what one build leaves (build/lib, SOURCES.txt) would hide what the next one forgets.
    copy = shutil.copytree(source, out.parent / f"source of {out.name}", symlinks=True)
    _run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", out, copy, cwd=out.parent)
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def _package_files(package: Path) -> dict[str, bytes]:
    """Every file below the package by its path from the package's parent, links followed."""
    return {
        (Path(folder) / name).relative_to(package.parent).as_posix(): (Path(folder) / name).read_bytes()
        for folder, folders, names in os.walk(package, followlinks=True)
        if not folder.endswith("__pycache__")
        for name in names
    }


def _wheel_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks or would track, with links as links."""
    copy = tmp_path_factory.mktemp("tree") / "opsgen"
    listed = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if os.path.lexists(ROOT / name):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    # What a later schedule, kernel and report will look like: new folders must come along without being named anywhere.
    for name in ("schedules/new_target/new_pattern.py", "templates/new_target/deep/launcher.cc.j2"):
        (copy / name).parent.mkdir(parents=True)
        (copy / name).write_text("# new\n")
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tree, "wheel", tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tree, "sdist", tmp_path_factory.mktemp("sdist") / "dist")


def test_wheel_holds_every_file(tree: Path, wheel: Path) -> None:
    wanted = _package_files(tree / "opsgen")
    packed = _wheel_files(wheel)
    found = {name: data for name, data in packed.items() if ".dist-info/" not in name}
    assert sorted(found) == sorted(wanted)  # a file that is missing here: see package-data in pyproject.toml
    assert found == wanted
    for name in ("opsgen/py.typed", "opsgen/_version.py", *(f"opsgen/{linked}/__init__.py" for linked in LINKED)):
        assert name in found
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed)


def test_wheel_from_sdist_is_the_same(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
        names = archive.getnames()
    _run("tar", "-xzf", sdist, "-C", tmp_path, cwd=tmp_path)
    assert not [name for name in names if name.split("/")[1:2] == ["tests"]]
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    again = _wheel_files(_build(unpacked, "wheel", tmp_path / "dist"))
    assert again == _wheel_files(wheel)


def test_metadata(wheel: Path) -> None:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "opsgen/_version.py").read_text(), re.M)
    assert version
    files = _wheel_files(wheel)
    info = f"opsgen-{version[1]}.dist-info"
    metadata = files[f"{info}/METADATA"].decode()
    assert f"\nVersion: {version[1]}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert b"opsgen = opsgen.cli:main" in files[f"{info}/entry_points.txt"]
    base = {
        re.split("[<>=!;]", line.removeprefix("Requires-Dist: "))[0].strip()
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    }
    assert base == {"numpy", "apache-tvm-ffi"}


def test_installed_wheel_imports(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import opsgen, opsgen.schedules, opsgen.targets, opsgen.templates\n"
        "print(opsgen.__file__, opsgen.templates.__name__)"
    )
    printed = _run(sys.executable, "-I", "-c", program, cwd=tmp_path)
    assert printed.split() == [str(tmp_path / "site/opsgen/__init__.py"), "opsgen.templates"]


def test_editable_install_is_the_tree(tree: Path, tmp_path: Path) -> None:
    backend = "import sys, setuptools.build_meta as backend; backend.build_editable(sys.argv[1])"
    _run(sys.executable, "-c", backend, tmp_path, cwd=tree)
    (made,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "site")
    # -S: only this editable install, not the one that the tests run in.
    program = (
        f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n"
        "from importlib.util import find_spec\n"
        "print(*find_spec('opsgen').submodule_search_locations)\n"
        "print(find_spec('schedules'))"
    )
    printed = _run(sys.executable, "-I", "-S", "-c", program, cwd=tmp_path)
    assert printed.splitlines() == [str(tree / "opsgen"), "None"]


@pytest.mark.parametrize("name", LINKED)
def test_linked_folder(name: str) -> None:
    link = ROOT / "opsgen" / name
    assert link.is_symlink() and os.readlink(link) == f"../{name}"
    bare = [sys.executable, "-c", f"import {name}"]  # -c puts the current folder, the root, on the path
    done = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"ImportError: this folder is the package opsgen.{name}: import opsgen.{name}, not {name}" in done.stderr
