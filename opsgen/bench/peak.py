"""What this machine's CPU can do at most, measured: FMAs in registers, and reads from each cache level and from memory.

Frequencies fall as more cores use wide vectors, so the figures are for a number of threads.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..errors import error

LANES = {"avx2": 8, "avx512": 16}
SIZES = {"L1": 24 << 10, "L2": 768 << 10, "L3 or memory": 8 << 20, "memory": 256 << 20}
"""Bytes that each thread reads."""


@dataclass(frozen=True)
class Peaks:
    """The best rates of some threads at a level of instructions: flop/s in float32, and bytes a second that are read,
    by the bytes that each thread goes through."""

    level: str
    threads: int
    flops: float
    reads: Mapping[int, float]

    @property
    def memory(self) -> float:
        """Bytes a second from memory."""
        return self.reads[max(self.reads)]

    def bandwidth(self, moved: int) -> float:
        """Bytes a second for ``moved`` bytes that are used again and again: of the cache that holds them."""
        mine = moved / self.threads
        return self.reads[min((s for s in self.reads if s >= mine), default=max(self.reads))]


@lru_cache(maxsize=8)
def peaks(level: str, threads: int, seconds: float = 0.08, rounds: int = 2) -> Peaks:
    """Measures them, once; about a second. ``seconds`` of each sample, the best of ``rounds`` counts.

    Raises:
        TargetError: E2002, there is no C++ compiler.
        CompileError: E3005, it fails.
    """
    with tempfile.TemporaryDirectory(prefix="opsgen-peak-") as folder:
        path = Path(folder) / "peak.so"
        build(level, path)
        library = ctypes.CDLL(str(path))
    pointer, integer = ctypes.POINTER(ctypes.c_float), ctypes.c_int64
    library.opsgen_peak_fma.argtypes = (integer, pointer)
    library.opsgen_peak_read.argtypes = (pointer, integer, integer, pointer)
    for f in (library.opsgen_peak_fma, library.opsgen_peak_read):
        f.restype = integer
    outs = [np.zeros(64, np.float32).ctypes.data_as(pointer) for _ in range(threads)]

    def best(work: Callable[[int, int], int]) -> float:
        return max(rate(work, threads, seconds) for _ in range(rounds))

    flops = best(lambda i, n: int(library.opsgen_peak_fma(n, outs[i])))
    reads = {}
    for size in (min(s, _largest(threads)) for s in SIZES.values()):
        data = [np.ones(size // 4, np.float32) for _ in range(threads)]
        places = [d.ctypes.data_as(pointer) for d in data]

        def read(i: int, n: int, places: Any = places, size: int = size) -> int:
            return int(library.opsgen_peak_read(places[i], size // 4, n, outs[i]))

        reads[size] = best(read)
    return Peaks(level, threads, flops, reads)


def build(level: str, output: Path) -> None:
    """Compiles peak.cc for a level. Raises as `peaks` does."""
    name = os.environ.get("CXX") or "g++"
    compiler = shutil.which(name)
    if compiler is None:
        raise error("E2002", tool=name, target="measuring a CPU", fix="apt-get install g++")
    march = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}[level]
    flags = ["-O3", f"-march={march}", "-mprefer-vector-width=512", f"-DW={LANES[level]}", "-shared", "-fPIC"]
    source = resources.files("opsgen") / "templates" / "x86" / "peak.cc"
    done = subprocess.run([compiler, *flags, str(source), "-o", str(output)], capture_output=True, text=True)
    if done.returncode != 0:
        raise error("E3005", tool=name, status=done.returncode, found=done.stderr.strip()[-2000:] or "no message")


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


def _largest(threads: int) -> int:
    """Bytes for each thread that leave most of the memory that is free alone; a multiple of what a turn reads."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(24 << 10, free // 4 // threads >> 12 << 12)
