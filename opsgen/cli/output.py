"""What commands share: exit codes, the usage error, and how things are printed.

Blocks are printed plainly, or by rich where standard output is a terminal that takes it and rich is installed.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from ..errors import error

OK, FAILED, USAGE, BUG, INTERRUPTED, BROKEN_PIPE, TERMINATED = 0, 1, 2, 70, 130, 141, 143

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red", "NOT": "bold red"}


class UsageError(Exception):
    """A command line that cannot be understood: exit code 2."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


@dataclass(frozen=True)
class Heading:
    """A line above others."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells in columns, all to the left, or (``numbers``) all but the first to the right. The last column may
    be long: it is wrapped, or put below the others where the terminal is narrow."""

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    indent: int = 0
    numbers: bool = False


Block = str | Heading | Table


def show(blocks: Iterable[Block]) -> None:
    """Prints blocks on standard output."""
    blocks = list(blocks)
    if styled(sys.stdout):
        from . import terminal

        put(terminal.text(blocks))
    else:
        put("".join(f"{line}\n" for block in blocks for line in _plain(block)))


def print_json(document: Any) -> None:
    """The one document that a command prints with --json."""
    put(json.dumps(document, indent=2) + "\n")


def put(text: str) -> None:
    """Writes text to standard output, all of it.

    Raises:
        CompileError: E3006, it cannot be written, as where the disk is full.
        BrokenPipeError: what reads it has closed.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        if problem.errno == errno.EPIPE:
            raise BrokenPipeError from None
        discard(sys.stdout)
        raise error("E3006", path="standard output", found=problem.strerror or problem) from None


def discard(stream: TextIO) -> None:
    """Lets what a stream still holds go nowhere: the interpreter flushes it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def styled(stream: TextIO) -> bool:
    """Whether a stream takes colours and tables that fit its width: a terminal, unless NO_COLOR is set or it is dumb,
    and rich is installed."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "", "dumb") or not stream.isatty():
        return False
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def style(cell: str) -> str:
    """How a word of a table is shown, where it has a meaning of its own."""
    return _STYLES.get(cell, "")


def readable(size: int) -> str:
    """A number of bytes for reading."""
    return (
        f"{size} bytes"
        if size < 1024
        else f"{size / 1024:.0f} KiB"
        if size < 1 << 20
        else f"{size / (1 << 20):.1f} MiB"
    )


def _plain(block: Block) -> list[str]:
    if isinstance(block, str):
        return [block]
    if isinstance(block, Heading):
        return [block.text]
    rows = [*([block.head] if block.head else []), *block.rows]
    columns = max((len(row) for row in rows), default=0)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(columns)]
    lines = []
    for row in rows:
        right = [block.numbers and i > 0 for i in range(len(row))]
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right)]
        lines.append((" " * block.indent + "  ".join(cells)).rstrip())
    return lines
