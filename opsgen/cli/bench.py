"""`opsgen bench`: kernels of a library file, or of ops compiled for it, checked and timed beside torch."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..bench import peak, report
from ..bench.cases import Case, Choice, Skipped, find, kernels_on
from ..bench.measure import Device, Settings, bytes_needed, measure, open_device
from ..bench.timing import keep_memory
from ..dsl.op import Op
from ..errors import OpsgenError, error
from ..runtime import host
from ..runtime.library import Library, load
from ..runtime.library_file import read_manifest, write_bytes
from ..runtime.manifest import Manifest
from . import choices
from .output import OK, Block, Heading, Table, UsageError, print_json, put, readable, show, styled
from .progress import Progress

_ROUNDS = {"cpu": 11, "cuda": 50}
_MEMORY = 0.6  # of what is free may be used
STDOUT = "-"


def run(arguments: argparse.Namespace) -> int:
    """The command. Its record goes to standard output with --json, or to a file with --json FILE."""
    if arguments.rounds is not None and arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: wanted 1 or more")
    with tempfile.TemporaryDirectory(prefix="opsgen-bench-") as folder:
        first = arguments.what[0]
        if first.endswith(".so") or os.path.exists(first):
            if arguments.target is not None:
                raise UsageError("--target is for ops that are compiled first; a library file has its own")
            return _run(arguments, first, arguments.what[1:], {}, first)
        path = str(Path(folder) / "bench.so")
        ops = _compile(arguments, path)
        return _run(arguments, path, list(ops), ops, None)


def _compile(arguments: argparse.Namespace, path: str) -> dict[str, Op]:
    """Compiles the ops of the command line; gives them by name."""
    from ..compiler.compile import build
    from ..compiler.problem import variant

    words = {**vars(arguments), "ops": arguments.what, "dim": [], "absent": arguments.absent or []}
    chosen = choices.read(argparse.Namespace(**words))
    items = [variant(op, absent=chosen.absent_of(op) or None, **chosen.attributes_of(op)) for op in chosen.ops]
    progress = Progress(arguments.json == STDOUT)
    try:
        build(items, Path(path), arguments.target or "x86", chosen.dtypes, progress=progress)
    finally:
        progress.end()
    return {op.name: op for op in chosen.ops}


def _run(
    arguments: argparse.Namespace, path: str, names: Sequence[str], own: Mapping[str, Op], shown: str | None
) -> int:
    manifest = read_manifest(path)
    kind = "cuda" if manifest.kind == "cuda" else "cpu"
    own = {**own, **{op.name: op for name in arguments.module for op in choices.ops_of(name)}}
    choice = _choice(arguments, names, compiled=shown is None)
    device = open_device(arguments.device or ("cuda:0" if kind == "cuda" else "cpu"), shown or path, manifest.kind)
    settings = Settings(arguments.rounds or _ROUNDS[kind], arguments.compile)
    quiet = arguments.json == STDOUT
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    for arch in _archs(arguments, manifest, device, shown or path, everything=shown is None):
        with _at_level(arch):
            one = device if kind == "cuda" else _with_peaks(device)
            kernels = kernels_on(manifest, device.capability)
            cases, left_out = find(manifest, kernels, own, choice)
            if not cases:
                why = "; ".join(f"{s.op}: {s.why}" for s in left_out) or "no kernel is like the one that was asked for"
                fix = "`opsgen list FILE` shows what it holds; --dims gives sizes, as in --dims rows=512,hidden=768."
                raise error("E4032", path=shown or "the ops", found=why, fix=fix)
            if kind == "cpu":
                keep_memory()
            measured, more = _measure(load(path), cases, one, settings, quiet)
        rows += measured
        skipped += [s for s in left_out + more if s not in skipped]
        device = one if device.peaks is None else device
    head = report.document(shown, device, {"rounds": settings.rounds, "compiled": settings.compiled})
    found_all = {**head, "results": rows, "skipped": [{"op": s.op, "why": s.why} for s in skipped]}
    if quiet:
        print_json(found_all)
        return OK
    hardware = head["device"]
    driver = f", driver {hardware['driver']}" if "driver" in hardware else ""
    what = (
        f"{hardware['name']}{driver}; {settings.rounds} rounds; times are medians, 2.00x is twice as fast as the peer"
    )
    _print(what, rows, skipped)
    if isinstance(arguments.json, str):
        write_bytes(arguments.json, (json.dumps(found_all, indent=1) + "\n").encode())
    return OK


def _print(what: str, rows: Sequence[Mapping[str, Any]], skipped: Sequence[Skipped]) -> None:
    if not styled(sys.stdout):
        put(f"{what}\n{report.text(rows, skipped)}\n")
        return
    blocks: list[Block] = [what]
    for part in report.parts(rows):
        blocks += ["", Heading(part.title), Table(part.cells, part.head, numbers=True)]
    show([*blocks, "", *report.notes(rows, skipped)])


def _archs(
    arguments: argparse.Namespace, manifest: Manifest, device: Device, path: str, *, everything: bool
) -> Sequence[str | None]:
    """The levels of x86 to measure, each for itself; None: the best of the file for the device. Of ops that were
    compiled for some levels, these.

    Raises:
        UsageError: --arch for a GPU.
        CallError: E4014, E4026, the file has no kernels for it, or the CPU does not run it.
    """
    if device.capability is not None:
        if arguments.arch is not None:
            raise UsageError("--arch is for x86; on a GPU the best arch of the file is measured")
        if not kernels_on(manifest, device.capability):
            found = f"{device.capability // 10}.{device.capability % 10}"
            known = ", ".join(manifest.archs)
            raise error("E4026", op=path, argument="--device", device=arguments.device, found=found, known=known)
        return [None]
    named = [a for a in (arguments.arch or "").split(",") if a]
    wanted = named or (list(manifest.archs) if everything else [])
    for arch in wanted:
        if arch not in manifest.archs or arch not in host.host_levels():
            found = ", ".join(f"x86/{a}" for a in manifest.archs)
            offers = ", ".join(host.host_levels())
            fix = f"--arch {arch} is not among both. Leave it out, or compile for that level."
            raise error("E4014", path=path, found=found, wanted=f"offers {offers}", fix=fix)
    return wanted or [None]


@contextlib.contextmanager
def _at_level(arch: str | None) -> Iterator[None]:
    """What is loaded meanwhile is for that level."""
    before = os.environ.get(host.VARIABLE)
    if arch is not None:
        os.environ[host.VARIABLE] = arch
    try:
        yield
    finally:
        if arch is not None:
            os.environ.pop(host.VARIABLE)
            if before is not None:
                os.environ[host.VARIABLE] = before


def _with_peaks(device: Device) -> Device:
    """The device with what it can do at most at the present level; without, where no C++ compiler is there."""
    torch = device.tensors.torch
    threads = torch.get_num_threads() if torch is not None else len(os.sched_getaffinity(0))
    level = next((level for level in reversed(host.host_levels()) if level in peak.LANES), None)
    if level is None:
        return device
    try:
        return replace(device, peaks=peak.peaks(level, threads))
    except OpsgenError:
        return device


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


def _choice(arguments: argparse.Namespace, names: Sequence[str], *, compiled: bool) -> Choice:
    """What is asked for; of ops that were ``compiled`` for it, no dtype is left to choose."""
    words = () if compiled else arguments.dtype or ()
    return Choice(
        names,
        [d for word in words for d in word.split(",") if d],
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
