"""What is paid on the host: importing, loading, a call, compiling. ``python -m benchmarks.host_costs``

Imports and the cold compile run in fresh processes; the best of several counts, for what disturbs only adds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import opsgen as og
from opsgen.bench import report
from opsgen.ops import rms_norm

from . import harness

ROOT = Path(__file__).resolve().parents[1]


def fresh(code: str) -> float:
    """Seconds that ``code`` says it took, in a process of its own."""
    script = f"from time import perf_counter as now\nstart = now()\n{code}\nprint(now() - start)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def best(repeats: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(repeats))


def call_cost(call: Callable[[], object], repeats: int = 20000) -> float:
    """Seconds a call, the best of seven runs."""

    def run() -> float:
        start = perf_counter()
        for _ in range(repeats):
            call()
        return (perf_counter() - start) / repeats

    return best(7, run)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_costs", description=__doc__)
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows: list[dict[str, Any]] = []

    def add(what: str, seconds: float, limit: float) -> None:
        rows.append({"what": what, "seconds": seconds, "limit": limit})

    add("import opsgen.runtime", best(7, lambda: fresh("import opsgen.runtime")), 0.25)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.so"
        code = f"from examples.minilm import library; library.compile().save({str(path)!r})"
        add("compile the MiniLM library, cold", fresh(code), 90)
        load = f"import opsgen.runtime as r\nstart = now()\nr.load({str(path)!r})"
        add("load it", best(7, lambda: fresh(load)), 0.05)
    library = og.compile([rms_norm])
    x, w = np.ones((1, 1024), np.float32), np.ones(1024, np.float32)
    y = np.empty_like(x)
    add("rms_norm 1 x 1024, numpy, out=", call_cost(lambda: library.rms_norm(x, w, out=y)), 10e-6)
    try:
        import torch
    except ImportError:
        pass
    else:
        tx, tw, ty = (torch.from_numpy(a) for a in (x, w, y))
        add("rms_norm 1 x 1024, torch, out=", call_cost(lambda: library.rms_norm(tx, tw, out=ty)), 10e-6)
    cells = [(r["what"], f"{r['seconds'] * 1e3:.4g} ms", f"{r['limit'] * 1e3:g} ms") for r in rows]
    print(report.table(("what", "took", "at most"), cells))
    if not options.no_save:
        print("written to", harness.write("host_costs", rows, packages=("torch",)))


if __name__ == "__main__":
    main()
