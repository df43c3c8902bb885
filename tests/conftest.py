"""Two rules for every test: torch missing is a failure, and so is meeting an `InternalError`. Nothing else is here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from types import ModuleType
from unittest import mock

import pytest

from opsgen.errors import InternalError

os.environ["OPSGEN_CACHE"] = "0"  # what is tested is what the compiler makes now

_MET = pytest.StashKey[list[str]]()


def _import_torch() -> ModuleType:
    try:
        return importlib.import_module("torch")
    except ImportError as failure:
        pytest.fail(f"this test needs torch, which cannot be imported ({failure}). Run `make setup`.", pytrace=False)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """The module torch. Where it is missing the test fails: a skipped test would say nothing about conversions."""
    return _import_torch()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch"):
        _import_torch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Notes each `InternalError` that is made during a test, also one that is caught on its way."""
    met = item.stash[_MET] = []
    plain_init = InternalError.__init__

    def noting_init(self: InternalError, *args: object) -> None:
        met.append(" ".join(map(str, args)))
        plain_init(self, *args)

    with mock.patch.object(InternalError, "__init__", noting_init):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Fails the phase that met an `InternalError`, whatever else it came to: passed, expected to fail, or skipped."""
    report = yield
    met = item.stash[_MET]
    if met and not item.get_closest_marker("internal_error"):
        text = f"INTERNAL ERROR, a bug in opsgen: {'; '.join(met)}"
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}\n\n{text}" if report.longrepr else text
        vars(report).pop("wasxfail", None)
        met.clear()
    return report
