"""What a GPU can do at most, measured through torch: the bytes that a copy moves, and a large product of bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

_COPIED = 1 << 30  # bytes of each side: far more than any L2 cache
_SIZE = 8192  # of the square product: enough tiles for every multiprocessor, several times over
_ROUNDS = 10


@dataclass(frozen=True)
class GpuPeaks:
    """Of one device: its name, bytes a second that a copy reads and writes together, and flop/s in bfloat16."""

    name: str
    copy: float
    bfloat16: float


def peaks(torch: Any, index: int) -> GpuPeaks:
    """Measures a device; about a second.

    Raises:
        torch.OutOfMemoryError: less than 2.5 GiB are free on it.
    """
    device = f"cuda:{index}"
    source = torch.zeros(_COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = _best(torch, device, partial(target.copy_, source))
    del source, target
    a, b = (torch.randn(_SIZE, _SIZE, dtype=torch.bfloat16, device=device) for _ in range(2))
    out = torch.empty_like(a)
    multiplied = _best(torch, device, partial(torch.mm, a, b, out=out))
    return GpuPeaks(torch.cuda.get_device_name(index), 2 * _COPIED / copied, 2 * _SIZE**3 / multiplied)


def _best(torch: Any, device: str, call: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls."""
    found = []
    with torch.cuda.device(device):
        for _ in range(_ROUNDS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1e3)
    return min(found)
