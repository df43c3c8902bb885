"""What a record of measurements says of the machine, its devices and the software."""

from __future__ import annotations

import os
import platform
import re
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from .._version import __version__


def now() -> datetime:
    """In UTC."""
    return datetime.now(timezone.utc)


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
    found = {"python": platform.python_version(), "opsgen": __version__}
    for package in ("numpy", "apache-tvm", "apache-tvm-ffi", *packages):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def gpu(torch: Any, index: int) -> dict[str, Any]:
    """A GPU by name, with its driver's version and that of the CUDA that torch was built with."""
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "l2_mib": round(properties.L2_cache_size / 2**20, 1),
        "driver": _driver(),
        "cuda": torch.version.cuda,
    }


def _driver() -> str:
    """As the kernel module states it: torch does not say it."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else "unknown"


def slug(name: str) -> str:
    """A name of hardware in the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
