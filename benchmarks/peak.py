"""What this machine can do at most: FMAs in registers and reads from each cache level. ``python -m benchmarks.peak``

The roofline that other figures are set against: a kernel is as good as it can be where it reaches one of these.
Frequencies fall as more cores use wide vectors, so the figures are for a number of threads.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from opsgen.bench import record
from opsgen.runtime.host import host_levels

from . import harness

LANES = {"avx2": 8, "avx512": 16}
SIZES = {"L1": 24 << 10, "L2": 768 << 10, "L3 or memory": 8 << 20, "memory": 256 << 20}
"""Bytes that each thread reads."""


def build(level: str, output: Path) -> None:
    """Compiles peak.cc for a level with g++."""
    march = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}[level]
    flags = ["-O3", f"-march={march}", "-mprefer-vector-width=512", f"-DW={LANES[level]}", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, str(Path(__file__).with_name("peak.cc")), "-o", str(output)], check=True)


def rate(work: Callable[[int, int], int], threads: int, seconds: float = 0.25) -> float:
    """Units of work a second of all threads together. ``work(thread, turns)`` returns the units done."""
    turns, took = 1, 0.0
    while took < seconds / 10:  # how many turns take a while
        start = perf_counter()
        work(0, turns)
        took = perf_counter() - start
        turns *= 2
    turns = max(1, int(turns / 2 * seconds / took))
    done = [0] * threads
    barrier = threading.Barrier(threads + 1)

    def run(i: int) -> None:
        barrier.wait()
        done[i] = work(i, turns)
        barrier.wait()

    workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for w in workers:
        w.start()
    barrier.wait()
    start = perf_counter()
    barrier.wait()
    took = perf_counter() - start
    for w in workers:
        w.join()
    return sum(done) / took


def measure(library: ctypes.CDLL, threads: int, rounds: int) -> dict[str, float]:
    """GFLOP/s and GB/s, the best of ``rounds``."""
    pointer, integer = ctypes.POINTER(ctypes.c_float), ctypes.c_int64
    library.opsgen_peak_fma.argtypes = (integer, pointer)
    library.opsgen_peak_read.argtypes = (pointer, integer, integer, pointer)
    for f in (library.opsgen_peak_fma, library.opsgen_peak_read):
        f.restype = integer
    out = [np.zeros(64, np.float32) for _ in range(threads)]
    outs = [o.ctypes.data_as(pointer) for o in out]
    found = {"fma_gflops": max(rate(lambda i, n: library.opsgen_peak_fma(n, outs[i]), threads) for _ in range(rounds))}
    for name, size in SIZES.items():
        data = [np.ones(size // 4, np.float32) for _ in range(threads)]
        places = [d.ctypes.data_as(pointer) for d in data]

        def read(i: int, n: int, places: Any = places, size: int = size) -> int:
            return int(library.opsgen_peak_read(places[i], size // 4, n, outs[i]))

        found[f"read {name} ({size >> 10} KiB a thread) gbs"] = max(rate(read, threads) for _ in range(rounds))
    return {name: round(value / 1e9, 1) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peak", description=__doc__)
    parser.add_argument("--threads", default="", help="numbers with commas between them; default: 1 and all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    everything = record.machine()["cpus"]
    counts = [int(t) for t in options.threads.split(",")] if options.threads else sorted({1, everything})
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for level in (name for name in host_levels() if name in LANES):
            path = Path(folder) / f"peak-{level}.so"
            build(level, path)
            library = ctypes.CDLL(str(path))
            for threads in counts:
                rows.append({"level": level, "threads": threads, **measure(library, threads, options.rounds)})
                print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    if not options.no_save:
        print("written to", harness.write("peak", rows, rounds=options.rounds))


if __name__ == "__main__":
    main()
