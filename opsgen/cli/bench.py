"""`opsgen bench`: the kernels of a library file, checked and timed beside torch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..bench import report
from ..bench.cases import Case, Choice, Skipped, find, kernels_on
from ..bench.measure import Device, Settings, bytes_needed, measure, open_device
from ..bench.timing import keep_memory
from ..errors import error
from ..runtime.library import Library, load
from ..runtime.library_file import read_manifest, write_bytes
from . import choices
from .compile import Progress
from .output import OK, UsageError, print_json, readable

_ROUNDS = {"cpu": 11, "cuda": 50}
_MEMORY = 0.6  # of what is free may be used
STDOUT = "-"


def run(arguments: argparse.Namespace) -> int:
    """The command. Its record goes to standard output with --json, or to a file with --json FILE."""
    manifest = read_manifest(arguments.file)
    kind = "cuda" if manifest.kind == "cuda" else "cpu"
    if arguments.rounds is not None and arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: wanted 1 or more")
    own = {op.name: op for name in arguments.module for op in choices.ops_of(name)}
    choice = _choice(arguments)
    device = open_device(arguments.device or ("cuda:0" if kind == "cuda" else "cpu"), arguments.file, manifest.kind)
    settings = Settings(arguments.rounds or _ROUNDS[kind], arguments.compile)
    kernels = kernels_on(manifest, device.capability)
    if device.capability is not None and not kernels:
        found = f"{device.capability // 10}.{device.capability % 10}"
        known = ", ".join(manifest.archs)
        raise error("E4026", op=arguments.file, argument="--device", device=arguments.device, found=found, known=known)
    cases, skipped = find(manifest, kernels, own, choice)
    if not cases:
        why = "; ".join(f"{s.op}: {s.why}" for s in skipped) or "no kernel is like the one that was asked for"
        fix = "`opsgen list FILE` shows what it holds; --dims gives sizes, as in --dims rows=512,hidden=768."
        raise error("E4032", path=arguments.file, found=why, fix=fix)
    if kind == "cpu":
        keep_memory()
    lib = load(arguments.file)
    quiet = arguments.json == STDOUT
    rows, more = _measure(lib, cases, device, settings, quiet)
    skipped += more
    head = report.document(arguments.file, device, {"rounds": settings.rounds, "compiled": settings.compiled})
    found_all = {**head, "results": rows, "skipped": [{"op": s.op, "why": s.why} for s in skipped]}
    if quiet:
        print_json(found_all)
        return OK
    hardware = head["device"]
    driver = f", driver {hardware['driver']}" if "driver" in hardware else ""
    print(
        f"{hardware['name']}{driver}; {settings.rounds} rounds; times are medians, 2.00x is twice as fast as the peer"
    )
    print(report.text(rows, skipped))
    if arguments.json is not None:
        write_bytes(arguments.json, (json.dumps(found_all, indent=1) + "\n").encode())
    return OK


def _measure(
    lib: Library, cases: Sequence[Case], device: Device, settings: Settings, quiet: bool
) -> tuple[list[dict[str, Any]], list[Skipped]]:
    rows, skipped = [], []
    progress = Progress(quiet)
    try:
        for number, case in enumerate(cases, 1):
            progress(f"{case.op}, {case.label}", number, len(cases))
            needed, free = bytes_needed(case), device.tensors.free_bytes()
            if needed > _MEMORY / 2 * free:  # results are there twice, and a copy is as large as both
                skipped.append(Skipped(case.op, f"{case.label}: {readable(needed)} needed, {readable(free)} free"))
                continue
            rows.append(report.row(measure(lib, case, device, settings)))
    finally:
        progress.end()
    return rows, skipped


def _choice(arguments: argparse.Namespace) -> Choice:
    return Choice(
        arguments.ops,
        [d for word in arguments.dtype or () for d in word.split(",") if d],
        [_sizes(word) for word in arguments.dims],
        arguments.workload,
        dict(choices.pair("--attribute", w) for w in arguments.attribute),
        None if arguments.absent is None else [n for word in arguments.absent for n in word.split(",") if n],
        {n: _number(n, v) for n, v in (choices.pair("--scalar", w) for w in arguments.scalar)},
    )


def _sizes(word: str) -> Mapping[str, int]:
    pairs = (choices.pair("--dims", p) for p in word.split(",") if p)
    found = {name: choices.extent(name, value) for name, value in pairs}
    for name, value in found.items():
        if value < 0:
            raise error("E3008", dim=name, found=value, wanted="a dim is an int of 0 or more")
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--scalar {name}={text}: wanted a number") from None
