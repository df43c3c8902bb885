"""Where in the user's source an error is: the innermost frame outside the DSL."""

from __future__ import annotations

import linecache
import os
import sys
import types
from collections.abc import Callable
from typing import Any

_DSL = os.path.dirname(os.path.abspath(__file__))


def user_frame() -> types.FrameType | None:
    """The innermost frame that is not of opsgen.dsl, or None."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _DSL:
        frame = frame.f_back
    return frame


def user_line() -> str:
    """``file.py:12 (`return x * w`)`` of the user's current line, for messages."""
    frame = user_frame()
    return "" if frame is None else _line(frame.f_code.co_filename, frame.f_lineno)


def raised_line(problem: BaseException, file: str) -> str:
    """Like `user_line`, of the innermost line of ``file`` that an exception passed; the exception has left it."""
    found = ""
    entry = problem.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == file:
            found = _line(file, entry.tb_lineno)
        entry = entry.tb_next
    return found or user_line()


def definition_line(function: Callable[..., Any]) -> str:
    """The line on which a function's definition starts."""
    return _line(function.__code__.co_filename, function.__code__.co_firstlineno)


def _line(name: str, line: int) -> str:
    text = linecache.getline(name, line).strip()
    return f"{os.path.basename(name)}:{line}" + (f" (`{text}`)" if text else "")
