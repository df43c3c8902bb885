"""What commands share: exit codes, the usage error, and how things are printed."""

from __future__ import annotations

import json
from typing import Any

OK, FAILED, USAGE, BUG, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 70, 130, 141


class UsageError(Exception):
    """A command line that cannot be understood: exit code 2."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


def print_json(document: Any) -> None:
    """The one document that a command prints with --json."""
    print(json.dumps(document, indent=2))


def readable(size: int) -> str:
    """A number of bytes for reading."""
    return (
        f"{size} bytes"
        if size < 1024
        else f"{size / 1024:.0f} KiB"
        if size < 1 << 20
        else f"{size / (1 << 20):.1f} MiB"
    )
