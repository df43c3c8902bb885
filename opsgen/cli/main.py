"""Exit codes and the printing of errors and warnings. Commands are imported when they run: --help loads nothing."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from .._version import __version__
from ..errors import InternalError, OpsgenError
from .grammar import parser
from .output import (
    BROKEN_PIPE,
    BUG,
    FAILED,
    INTERRUPTED,
    OK,
    TERMINATED,
    USAGE,
    UsageError,
    discard,
    put,
    styled,
)

_MODULES = {"list": "listing", "new-op": "new_op"}


class _Terminated(BaseException):
    """SIGTERM: what is half done is cleared away, as after Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # formulas in docstrings are not ASCII; what reads us may be
            stream.reconfigure(errors="replace")
    as_json = any(word == "--json" or word.startswith("--json=") for word in words)
    try:
        with _terminable(), _warnings_as_lines(as_json):
            return _run(words)
    except UsageError as bad:
        _report("usage", str(bad), as_json, prefix=bad.usage)
        return USAGE
    except BrokenPipeError:  # what reads us has closed
        discard(sys.stdout)
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _report("interrupted", "interrupted", as_json)
        # CPython notes that an interrupt left an exec() of text, as dataclasses are made with, and then ends by SIGINT
        # whatever the exit code is (seen in 3.11). The next exec() clears the note.
        exec("")
        return INTERRUPTED
    except _Terminated:
        _report("terminated", "terminated", as_json)
        return TERMINATED
    except OpsgenError as failure:
        code_, _, message = str(failure).partition(": ")
        _report(failure.code or code_, message, as_json)
        return FAILED
    except Exception as bug:
        if os.environ.get("OPSGEN_TRACEBACK"):
            raise
        what = str(bug) if isinstance(bug, InternalError) else f"{type(bug).__name__}: {bug}"
        message = (
            f"{what}\nThis is a bug in opsgen {__version__}. Please report it to the project's issue tracker, with the "
            "command line and what it prints with OPSGEN_TRACEBACK=1 set."
        )
        _report("internal", message, as_json)
        return BUG


def _run(words: list[str]) -> int:
    try:
        arguments = parser().parse_args(words)
    except SystemExit:  # --help and --version have been printed
        put("")
        return OK
    module = importlib.import_module(f".{_MODULES.get(arguments.command, arguments.command)}", __package__)
    code: int = module.run(arguments)
    return code


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, where nobody else takes it."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _warnings_as_lines(as_json: bool) -> Iterator[None]:
    """opsgen's own warnings are printed as errors are."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, Warning) or category.__module__ != "opsgen.errors":
            before(message, category, *where, **more)
            return
        code, _, text = str(message).partition(": ")
        _report(code, text, as_json, word="warning")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _report(code: str, message: str, as_json: bool, prefix: str = "", word: str = "error") -> None:
    """One line on standard error, or one JSON document on a line."""
    if as_json:
        print(json.dumps({word: {"code": code, "message": message}}), file=sys.stderr)
        return
    if code in ("interrupted", "terminated"):
        print(message, file=sys.stderr)
        return
    label = {"usage": word, "internal": "internal error"}.get(code, f"{word} {code}")
    if styled(sys.stderr):
        label = f"\x1b[{33 if word == 'warning' else 31};1m{label}\x1b[0m"
    print(f"{prefix if code == 'usage' else ''}{label}: {message}", file=sys.stderr)
