"""Which configuration of the x86 contraction is fastest. ``python -m benchmarks.sweep --compile DIR``, then
``--measure DIR``

The first needs TVM, the second only numpy, apache-tvm-ffi and torch, so that a library compiled here can be measured
on another machine. The defaults in schedules/x86/contraction.py come from its results.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import opsgen as og
from opsgen.bench import timing

from . import harness

TILES = {"avx512": ((12, 4, 32), (14, 4, 32), (6, 3, 64), (7, 3, 64)), "avx2": ((6, 3, 16), (5, 2, 16), (4, 2, 24))}
"""Rows, rows at the end and columns of a register tile."""
BLOCK_ROWS = (48, 96, 192)
COLUMN_BLOCKS = (1, 2, 4, 8)
SHAPES = ((512, 768, 768), (512, 3072, 768), (128, 1024, 1024), (2048, 2048, 2048))


def configurations(arch: str) -> list[dict[str, int]]:
    return [
        {"rows": r, "rows_at_end": e, "columns": c, "row_block": max(1, rows // r), "column_block": b}
        for (r, e, c), rows, b in product(TILES[arch], BLOCK_ROWS, COLUMN_BLOCKS)
    ]


def compile_all(folder: Path, arch: str) -> None:
    from opsgen.compiler.compile import build
    from opsgen.ops import linear

    folder.mkdir(parents=True, exist_ok=True)
    found = configurations(arch)
    for i, config in enumerate(found):
        op = og.variant(linear, absent=["residual"], activation="gelu")
        build(op, folder / f"{arch}-{i}.so", f"x86/{arch}", configs={"x86.contraction": config})
        print(f"{i + 1} of {len(found)}: {config}", flush=True)
    (folder / f"{arch}.json").write_text(json.dumps(found))


def measure(folder: Path, arch: str, rounds: int, threads: int) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(threads)
    functional = torch.nn.functional
    found = json.loads((folder / f"{arch}.json").read_text())
    libraries = [og.load(folder / f"{arch}-{i}.so") for i in range(len(found))]
    ratios = np.zeros((len(found), len(SHAPES)))
    for column, (m, n, k) in enumerate(SHAPES):
        x, w, b, y = torch.randn(m, k), torch.randn(n, k) / k**0.5, torch.randn(n), torch.empty(m, n)
        calls: dict[str, Any] = {"torch": lambda x=x, w=w, b=b: functional.gelu(functional.linear(x, w, b))}
        for i, lib in enumerate(libraries):
            p = lib.pack("linear.weight", w)
            calls[str(i)] = lambda lib=lib, x=x, p=p, b=b, y=y: lib.linear(x, p, b, activation="gelu", out=y)
        samples = timing.interleaved(calls, rounds)
        ratios[:, column] = [samples.ratio(str(i), "torch") for i in range(len(found))]
    mean = np.exp(np.log(ratios).mean(axis=1))
    rows = [
        {"threads": threads, "config": config, "mean": round(float(mean[i]), 3), "ratios": ratios[i].round(3).tolist()}
        for i, config in enumerate(found)
    ]
    rows.sort(key=lambda row: -row["mean"])
    for row in rows[:6]:
        print(threads, row["mean"], row["ratios"], row["config"], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--compile", type=Path, metavar="DIR")
    parser.add_argument("--measure", type=Path, metavar="DIR")
    parser.add_argument("--arch", choices=tuple(TILES), default="avx512")
    parser.add_argument("--threads", default="1", help="numbers with commas between them")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    harness.limit_level(options.arch)
    timing.keep_memory()
    if options.compile:
        compile_all(options.compile, options.arch)
    if options.measure:
        rows = []
        for threads in map(int, options.threads.split(",")):
            rows += measure(options.measure, options.arch, options.rounds, threads)
        shapes = ["x".join(map(str, s)) for s in SHAPES]
        path = harness.write(
            f"sweep-{options.arch}",
            rows,
            packages=("torch",),
            rounds=options.rounds,
            shapes=shapes,
            what="linear+gelu packed",
        )
        print("written to", path)


if __name__ == "__main__":
    main()
