"""Blocks as a terminal shows them: coloured, and no wider than it is. Needs rich."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from .output import Block, Heading, Table, style

_LEAST = 24  # columns for the last cell of a row; with fewer it stands below the others


def text(blocks: Iterable[Block], width: int | None = None) -> str:
    """The blocks with their escape sequences, for a terminal of ``width`` columns (default: this one's)."""
    width = width or shutil.get_terminal_size().columns
    memory = io.StringIO()
    console = Console(file=memory, force_terminal=True, width=width, highlight=False, legacy_windows=False)
    for block in blocks:
        if isinstance(block, str):
            console.print(Text(block), soft_wrap=False)
        elif isinstance(block, Heading):
            console.print(Text(block.text, style="bold"))
        else:
            for part in _table(block, width):
                console.print(Padding(part, (0, 0, 0, min(block.indent, width // 4))))
    return re.sub(r" +\n", "\n", memory.getvalue())  # rich fills lines up


def _table(block: Table, width: int) -> list[Any]:
    rows = [*([block.head] if block.head else []), *block.rows]
    columns = max((len(row) for row in rows), default=0)
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(columns)]
    room = width - block.indent - sum(widths[:-1]) - 2 * (columns - 1)
    last = widths[-1] if widths else 0
    if block.numbers and room < last:
        return _records(block)
    if room < min(last, _LEAST):
        return _stacked(block)
    grid = Grid(box=None, show_header=bool(block.head), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i in range(columns):
        head = block.head[i] if block.head else ""
        right = block.numbers and i > 0
        grid.add_column(
            head, justify="right" if right else "left", no_wrap=i < columns - 1, overflow="fold", min_width=1
        )
    for row in block.rows:
        grid.add_row(*(_cell(c) for c in row))
    return [grid]


def _cell(cell: str) -> Text:
    return Text(cell, style=style(cell))


def _stacked(block: Table) -> list[Any]:
    """The last cell of each row below the others."""
    found: list[Any] = []
    for row in block.rows:
        first, last = Text("  ").join(_cell(c) for c in row[:-1] if c), _cell(row[-1])
        if first.plain:
            found.append(first)
        if last.plain:
            found.append(Padding(last, (0, 0, 0, 2)))
    return found


def _records(block: Table) -> list[Any]:
    """Each row as lines of name and value: more columns than fit beside each other."""
    found: list[Any] = []
    for row in block.rows:
        found.append(Text(row[0].strip(), style="bold"))
        found += [
            Padding(_pair(name, cell), (0, 0, 0, 2)) for name, cell in zip(block.head[1:], row[1:]) if cell != "-"
        ]
    return found


def _pair(name: str, cell: str) -> Text:
    return Text(f"{name}: ").append(_cell(cell))
