"""What the benchmarks share beyond `opsgen.bench`: the folder of results, a level of instructions for both sides."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsgen.bench import record

RESULTS = Path(__file__).resolve().parent / "results"


def limit_level(level: str) -> None:
    """Lets neither opsgen nor torch use more than a level of instructions; before either is loaded.

    A machine with AVX-512 stands in for one without: the same limit holds for both.
    """
    if level not in ("avx2", "avx512"):
        raise SystemExit(f"no level {level!r}: avx2 or avx512")
    os.environ["OPSGEN_CPU_LEVEL"] = level
    if level == "avx2":
        os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def write(benchmark: str, rows: Sequence[Mapping[str, Any]], *, packages: Sequence[str] = (), **settings: Any) -> Path:
    """Writes ``results/<benchmark>.<cpu>.<date>.json``; a later run of one day replaces an earlier one.

    Args:
        rows: what was measured.
        packages: peers, whose versions are recorded.
        settings: what else was the same for all rows: threads, rounds.
    """
    machine = record.machine()
    found: dict[str, Any] = {
        "benchmark": benchmark,
        "date": record.now().isoformat(timespec="seconds"),
        "machine": machine,
    }
    found |= {"versions": record.versions(*packages), "settings": settings, "rows": list(rows)}
    return save(benchmark, machine["cpu"], found)


def save(benchmark: str, hardware: str, document: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Writes a document to ``<folder>/<benchmark>.<hardware>.<date>.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.{record.slug(hardware)}.{record.now().date().isoformat()}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
