"""What the benchmarks of a library beside torch on the CPU share: options, compiling, and going through the threads."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opsgen as og
from opsgen.bench import timing

from . import harness

Row = dict[str, Any]


def run(
    name: str,
    description: str | None,
    ops: Callable[[], list[Any]],
    measure: Callable[[Any, Any, int, str], list[Row]],
    text: Callable[[Row], str],
    only: str,
) -> None:
    """The command line of a benchmark.

    Args:
        name: of the module, and of the results' file.
        description: what ``--help`` prints.
        ops: what the library holds.
        measure: ``measure(library, torch, rounds, only)`` gives rows for the number of threads that is set.
        text: a row as a line.
        only: what ``--only`` takes.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", default="", help="numbers with commas between them; default: 1 and all")
    parser.add_argument("--only", default="", help=only)
    parser.add_argument("--library", type=Path, help="a file that --compile wrote")
    parser.add_argument("--compile", type=Path, metavar="FILE", help="only compile, for both levels")
    parser.add_argument("--level", default="", help="of instructions, for both: avx2 or avx512; default: all there are")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    if options.level:
        harness.limit_level(options.level)
    if options.compile:
        from opsgen.compiler.compile import build

        build(ops(), options.compile, target="x86/avx2,x86/avx512")
        return
    timing.keep_memory()
    import torch

    lib = og.load(options.library) if options.library else og.compile(ops())
    everything = torch.get_num_threads()
    counts = [int(t) for t in options.threads.split(",")] if options.threads else sorted({1, everything})
    rows: list[Row] = []
    for threads in counts:
        torch.set_num_threads(threads)
        for row in measure(lib, torch, options.rounds, options.only):
            rows.append({"threads": threads, **row})
            mark = " (nearby)" if row["nearby"] else ""
            print(f"{threads:2d} threads  {text(row)}{mark}", flush=True)
    if not options.no_save:
        file = f"{name}-{options.level}" if options.level else name
        print("written to", harness.write(file, rows, packages=("torch",), rounds=options.rounds))
