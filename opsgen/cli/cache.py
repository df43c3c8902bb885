"""`opsgen cache`: what the compile cache holds."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from ..compiler import cache
from .output import OK, Block, Table, print_json, readable, show


def run(arguments: argparse.Namespace) -> int:
    """The command."""
    place = cache.folder()
    kept = None if place is None else cache.Cache(place, cache.bound())
    document: dict[str, Any] = {"folder": None if place is None else str(place)}
    entries = [] if kept is None else sorted(kept.entries(), key=lambda e: e.used, reverse=True)
    total = sum(e.bytes for e in entries)
    if arguments.action == "clear":
        document |= {"removed": 0 if kept is None else kept.clear(), "bytes": total}
        text: list[Block] = [f"removed {document['removed']} entries, {readable(total)}"]
    elif arguments.action == "info":
        document |= {"entries": len(entries), "bytes": total, "most": cache.bound()}
        text = [f"{len(entries)} entries, {readable(total)} of {readable(cache.bound())}, in {place}"]
    else:
        document["entries"] = [
            {"kind": e.kind, "title": e.title, "bytes": e.bytes, "used": _time(e.used), "file": str(e.path)}
            for e in entries
        ]
        rows = [(_time(e.used), f"{readable(e.bytes):>9}", e.kind, e.title) for e in entries]
        text = [Table(rows)] if rows else ["no entries"]
    if kept is None:
        text = [f"there is no cache: {cache.why_none()}"]
    if arguments.json:
        print_json(document)
    else:
        show(text)
    return OK


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "seconds")
