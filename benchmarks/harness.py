"""What every benchmark shares: interleaved timing, ratios, and a record of machine, versions and date.

Contenders are timed in turn, round by round, in one process. A machine's clock drifts by more than the differences that
matter, so the figure that counts is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import opsgen

RESULTS = Path(__file__).resolve().parent / "results"
SAMPLE_SECONDS = 5e-3
"""The least that one sample should take: shorter calls are repeated, and the sample is their mean."""

Call = Callable[[], object]


class Quantiles(NamedTuple):
    """Seconds a call."""

    p20: float
    p50: float
    p80: float


class Samples(NamedTuple):
    """Seconds a call of each contender, one sample a round: ``samples.seconds["torch"][round]``."""

    seconds: dict[str, list[float]]

    def quantiles(self, name: str) -> Quantiles:
        return Quantiles(*np.percentile(self.seconds[name], (20, 50, 80)).tolist())

    def ratio(self, ours: str, peer: str) -> float:
        """How many times as fast as ``peer``: the median over rounds."""
        return float(np.median(np.divide(self.seconds[peer], self.seconds[ours])))


def interleaved(contenders: Mapping[str, Call], rounds: int, synchronize: Call | None = None) -> Samples:
    """Times contenders in turn.

    Args:
        contenders: what to call, by name.
        rounds: samples of each. The order is turned about from round to round: nobody always follows the same one.
        synchronize: waits for a device to finish; None where calls return when they are done.
    """
    wait = synchronize or (lambda: None)

    def sample(call: Call, repeats: int) -> float:
        wait()
        start = perf_counter()
        for _ in range(repeats):
            call()
        wait()
        return (perf_counter() - start) / repeats

    repeats = {}
    for name, call in contenders.items():
        sample(call, 2)  # warms caches, threads and allocators
        repeats[name] = max(1, int(np.ceil(SAMPLE_SECONDS / sample(call, 1))))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            seconds[name].append(sample(contenders[name], repeats[name]))
    return Samples(seconds)


def keep_memory() -> None:
    """Lets malloc keep what is freed: torch allocates its results, and the page faults of fresh memory from the system
    would cost it more than its kernels do."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def limit_level(level: str) -> None:
    """Lets neither opsgen nor torch use more than a level of instructions; before either is loaded.

    A machine with AVX-512 stands in for one without: the same limit holds for both.
    """
    if level not in ("avx2", "avx512"):
        raise SystemExit(f"no level {level!r}: avx2 or avx512")
    os.environ["OPSGEN_CPU_LEVEL"] = level
    if level == "avx2":
        os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def machine() -> dict[str, Any]:
    """The CPU by name, the CPUs that this process may use, and memory."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpuinfo = ""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", cpuinfo, flags=re.MULTILINE))
    name = fields.get("model name") or platform.processor() or platform.machine()
    return {
        "cpu": name,
        "cpu_family_model": f"{fields.get('cpu family', '?')}/{fields.get('model', '?')}",
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
    }


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, of what opsgen runs on, and of further packages."""
    found = {"python": platform.python_version(), "opsgen": opsgen.__version__}
    for package in ("numpy", "apache-tvm", "apache-tvm-ffi", *packages):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def write(benchmark: str, rows: Sequence[Mapping[str, Any]], *, packages: Sequence[str] = (), **settings: Any) -> Path:
    """Writes ``results/<benchmark>.<cpu>.<date>.json``; a later run of one day replaces an earlier one.

    Args:
        rows: what was measured.
        packages: peers, whose versions are recorded.
        settings: what else was the same for all rows: threads, rounds.
    """
    now = datetime.now(timezone.utc)
    record = {"benchmark": benchmark, "date": now.isoformat(timespec="seconds"), "machine": machine()}
    record |= {"versions": versions(*packages), "settings": settings, "rows": list(rows)}
    RESULTS.mkdir(exist_ok=True)
    cpu = re.sub(r"[^a-z0-9]+", "-", machine()["cpu"].lower()).strip("-")
    path = RESULTS / f"{benchmark}.{cpu}.{now.date().isoformat()}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def milliseconds(quantiles: Quantiles) -> dict[str, float]:
    """For a record: three quantiles in ms, to a tenth of a microsecond."""
    return {name: round(1e3 * value, 4) for name, value in quantiles._asdict().items()}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
