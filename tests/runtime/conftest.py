"""The hand-made library, written once per process and loaded anew for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsgen.runtime import Library, load
from tests.runtime import handmade


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handmade.write(tmp_path_factory.mktemp("handmade") / "handmade.so")


@pytest.fixture
def lib(library_path: Path) -> Library:
    return load(library_path)
