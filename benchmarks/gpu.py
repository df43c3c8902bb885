"""Kernels on an NVIDIA GPU beside torch: cuBLAS, torch's own kernels, torch.compile. ``python -m benchmarks.gpu``

In two halves. ``--build FOLDER`` writes the library files; it needs TVM and nvcc, and no GPU. ``--libraries FOLDER``
measures them; it needs torch and a GPU, and no TVM. Without either, both happen here.

Every case is checked against float64 in the same run before it is timed (`opsgen.bench`). Contenders start from the
same tensors, whose weights are as torch has them, and are timed in turn with a cold L2 cache.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import opsgen as og
from opsgen.bench import cuda_timing, inputs, report
from opsgen.bench.cases import Case, Choice, find, kernels_on
from opsgen.bench.measure import Device, Settings, measure, open_device
from opsgen.bench.tensors import nbytes
from opsgen.errors import CallError
from opsgen.runtime.library_file import read_manifest

from . import harness
from .gpu_cases import SETS, Entry, Set

ELEMENTS = 1 << 19  # of a value that is checked at single positions: the peer in float64 sees the rest
HOST = "host"
HOST_LIMITS = {"call": 10e-6, "load": 0.1}


# -- the half with TVM -------------------------------------------------------------------------------------------------
def build(folder: Path, names: list[str], target: str) -> None:
    """Writes a library file for each set; a set of an op that is not there is left out, with a message."""
    from opsgen import ops
    from opsgen.compiler.compile import build as compile_to

    folder.mkdir(parents=True, exist_ok=True)
    for file in dict.fromkeys(SETS[n].file for n in names if n in SETS):
        entries = [e for s in SETS.values() if s.file == file for e in s.entries()]
        missing = sorted({e.op for e in entries if e.op not in ops.__all__})
        if missing:
            print(f"{file}: not built: there is no op {', '.join(missing)}", flush=True)
            continue
        variants = {(e.op, e.absent, tuple(e.attributes.items())): e for e in entries}
        items = [og.variant(getattr(ops, e.op), absent=e.absent, **e.attributes) for e in variants.values()]
        start = perf_counter()
        compile_to(items, folder / f"{file}.so", target, list(next(s.dtypes for s in SETS.values() if s.file == file)))
        size = (folder / f"{file}.so").stat().st_size
        print(f"{file}: {len(items)} variants, {size >> 10} KiB, {perf_counter() - start:.0f} s", flush=True)


# -- the half with a GPU -----------------------------------------------------------------------------------------------
def run_set(name: str, chosen: Set, folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """The record of a set, written as it grows, and how many cases were wrong."""
    path = folder / f"{chosen.file}.so"
    if not path.exists():
        print(f"{name}: left out: there is no {path.name}", flush=True)
        return {}, 0
    lib, manifest = og.load(path), read_manifest(path)
    device = open_device(options.device, str(path), manifest.kind)
    kernels = kernels_on(manifest, device.capability)
    head = report.document(path.name, device, {"rounds": options.rounds, "quick": options.quick})
    rows: list[dict[str, Any]] = []
    wrong = 0
    for entry in chosen.entries():
        if options.quick and not entry.quick:
            continue
        case = _case(entry, manifest, kernels)
        if case is None:
            print(f"{name}: left out: {path.name} has no kernel for {entry.op} {dict(entry.dims)}", flush=True)
            continue
        settings = Settings(options.rounds, entry.compiled and not options.no_compile, ELEMENTS)
        start = perf_counter()
        try:
            beside = _readonly(device, case, entry.readonly) if entry.readonly else {}
            row = report.row(measure(lib, case, device, settings, replaced=entry.replaced, beside=beside))
        except CallError as failure:
            wrong += 1
            print(f"{name}: {failure}", flush=True)
            continue
        rows.append({**row, "nearby": entry.nearby, "took": round(perf_counter() - start, 2)})
        print(_line(rows[-1]), flush=True)
        device.tensors.torch.cuda.empty_cache()
        _save(name, head, rows, options)
    return {**head, "results": rows}, wrong


def _case(entry: Entry, manifest: Any, kernels: Any) -> Case | None:
    if entry.op not in manifest.ops:
        return None
    attributes = {n: str(v) for n, v in entry.attributes.items()}
    choice = Choice([entry.op], [entry.dtype], [entry.dims], "", attributes, entry.absent)
    cases, _ = find(manifest, kernels, {}, choice)
    return next((Case(c.kernel, c.signature, c.definition, entry.label, c.dims) for c in cases), None)


def _readonly(device: Device, case: Case, name: str) -> dict[str, Callable[[], Any]]:
    """A kernel that only reads as many bytes as an input has; nothing where Triton is not installed."""
    try:
        from . import read_only
    except ImportError:
        return {}
    (wanted,) = (i for i in inputs.of_kernel(case.kernel, case.dims) if i.name == name)
    return read_only.fastest(device.tensors.torch, device.tensors.device, nbytes(wanted.shape, wanted.dtype))


def _line(row: dict[str, Any]) -> str:
    ours = row["seconds"]["opsgen"]["p50"]
    chosen = [str(v) for v in row["attributes"].values()] + [f"without {n}" for n in row["absent"]]
    rates = f"{row['tflops']:.0f} TFLOP/s" if row["tflops"] > 100 else f"{row['gbs'] or 0:.0f} GB/s"
    ratios = "  ".join(f"{n} {r:.3f}x" for n, r in row["ratio"].items())
    size = row["workload"] if row["workload"][:1].isdigit() else "x".join(map(str, row["dims"].values()))
    nearby = " (nearby)" if row["nearby"] else ""
    return (
        f"{row['op']} {row['dtype']} ({', '.join(chosen)}) {size}{nearby}: {report.duration(ours)}, {rates}; {ratios}; "
        f"error {row['checked']['worst']:.2f} of its bound{'' if row['checked']['whole'] else ', not whole'}"
        f"; {row['took']:.1f} s"
    )


def host(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Seconds of the host: loading a file, the first call, and a call of small kernels beside torch's."""
    path = folder / f"{SETS['rows'].file}.so"
    if not path.exists():
        print(f"{HOST}: left out: there is no {path.name}", flush=True)
        return {}, 0
    device = open_device(options.device, str(path), "cuda")
    torch = device.tensors.torch
    loads = []
    for _ in range(7):
        start = perf_counter()
        lib = og.load(path)
        loads.append(perf_counter() - start)
    rows: list[dict[str, Any]] = [{"what": f"load {path.name}", "seconds": min(loads), "limit": HOST_LIMITS["load"]}]
    x = torch.randn(8, 64, device=options.device, dtype=torch.bfloat16)
    w, out = torch.ones(64, device=options.device, dtype=torch.bfloat16), torch.empty_like(x)
    start = perf_counter()
    lib.softmax(x, out=out)
    torch.cuda.synchronize()
    rows.append({"what": "first call of a kernel, its code brought to the device", "seconds": perf_counter() - start})
    functional = torch.nn.functional
    ours: dict[str, Callable[[], Any]] = {
        "softmax 8x64, out=": lambda: lib.softmax(x, out=out),
        "softmax 8x64": lambda: lib.softmax(x),
        "layer_norm 8x64, out=": lambda: lib.layer_norm(x, w, w, out=out),
    }
    theirs: dict[str, Callable[[], Any]] = {
        "torch's softmax 8x64, out=": lambda: torch.softmax(x, -1, out=out),
        "torch's layer_norm 8x64": lambda: functional.layer_norm(x, (64,), w, w),
    }
    for what, call in {**ours, **theirs}.items():
        limit = HOST_LIMITS["call"] if what in ours else None
        rows.append({"what": what, "seconds": cuda_timing.host_seconds(torch, call), "limit": limit})
    for row in rows:
        most = f", at most {row['limit'] * 1e6:.0f} us" if row.get("limit") else ""
        print(f"{row['what']}: {row['seconds'] * 1e6:.2f} us{most}", flush=True)
    head = report.document(path.name, device, {})
    _save(HOST, head, rows, options)
    return {**head, "results": rows}, 0


def _save(name: str, head: dict[str, Any], rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if not options.no_save:
        document = {"benchmark": f"gpu-{name}", **head, "results": rows}
        harness.save(f"gpu-{name}", head["device"]["name"], document, options.output)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    names = [*SETS, HOST]
    parser.add_argument("--set", action="append", choices=names, help="may be repeated; default: all")
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="only write the library files there")
    parser.add_argument("--target", default="h200", help="what --build compiles for")
    parser.add_argument("--libraries", type=Path, metavar="FOLDER", help="measure what --build wrote there")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="a few listed shapes of each set")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--output", type=Path, default=harness.RESULTS, help="folder for the records")
    options = parser.parse_args()
    chosen: list[str] = options.set or names
    if options.build:
        build(options.build, [*chosen, *(["rows"] if HOST in chosen else [])], options.target)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = options.libraries or Path(made)
        if not options.libraries:
            build(folder, [*chosen, *(["rows"] if HOST in chosen else [])], options.target)
        wrong = 0
        for name in chosen:
            start = perf_counter()
            wrong += (host(folder, options) if name == HOST else run_set(name, SETS[name], folder, options))[1]
            print(f"-- {name}: {perf_counter() - start:.0f} s", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
