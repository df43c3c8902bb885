"""Progress of long work, on standard error."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from .output import styled


class Progress:
    """Steps: a bar on a terminal (one line that is overwritten where rich is missing), a line each elsewhere; nothing
    where ``quiet``."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._styled = styled(sys.stderr)
        self._terminal = sys.stderr.isatty()
        self._width = 0
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Step ``done`` of ``total`` begins, or goes on: ``what``."""
        if self._quiet:
            return
        if self._styled:
            self._advance(what, done, total)
            return
        line = f"[{done}/{total}] {what}"
        if self._terminal:
            line = line[: shutil.get_terminal_size().columns - 1]  # a line that is wrapped cannot be overwritten
            print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def _advance(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            what_column = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
            columns = (what_column, BarColumn(bar_width=12), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True, expand=True, redirect_stdout=False)
            self._bar.start()
            self._task = self._bar.add_task(what, total=total)
        self._bar.update(self._task, description=what, completed=done, total=total)

    def end(self) -> None:
        """Leaves the terminal's line empty."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif self._terminal and self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
