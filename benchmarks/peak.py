"""What this machine can do at most: FMAs in registers and reads from each cache level. ``python -m benchmarks.peak``

The roofline that other figures are set against: a kernel is as good as it can be where it reaches one of these.
"""

from __future__ import annotations

import argparse

from opsgen.bench import record
from opsgen.bench.peak import LANES, SIZES, peaks
from opsgen.runtime.host import host_levels

from . import harness


def measure(level: str, threads: int, rounds: int) -> dict[str, float]:
    """GFLOP/s and GB/s, the best of ``rounds``."""
    found = peaks(level, threads, 0.25, rounds)
    names = {size: f"read {name} ({size >> 10} KiB a thread) gbs" for name, size in SIZES.items()}
    reads = {names.get(size, f"read ({size >> 10} KiB a thread) gbs"): value for size, value in found.reads.items()}
    return {name: round(value / 1e9, 1) for name, value in {"fma_gflops": found.flops, **reads}.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peak", description=__doc__)
    parser.add_argument("--threads", default="", help="numbers with commas between them; default: 1 and all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    everything = record.machine()["cpus"]
    counts = [int(t) for t in options.threads.split(",")] if options.threads else sorted({1, everything})
    rows = []
    for level in (name for name in host_levels() if name in LANES):
        for threads in counts:
            rows.append({"level": level, "threads": threads, **measure(level, threads, options.rounds)})
            print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    if not options.no_save:
        print("written to", harness.write("peak", rows, rounds=options.rounds))


if __name__ == "__main__":
    main()
