"""Where in the user's source an error is: the innermost frame outside the DSL."""

from __future__ import annotations

import linecache
import os
import sys
import types

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
    if frame is None:
        return ""
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line).strip()
    return f"{os.path.basename(name)}:{line}" + (f" (`{text}`)" if text else "")
