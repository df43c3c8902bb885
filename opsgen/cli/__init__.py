"""The `opsgen` command. See docs/cli.md."""

from .main import main

__all__ = ["main"]
