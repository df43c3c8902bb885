"""Interleaved timing on an NVIDIA GPU: events of the device, an L2 cache without data of the call, inputs in turn.

Between two calls the device reads more than its L2 holds. (Had it written it, as is often done, a call would pay for
bringing that to memory: on an H200 a kernel that reads 32 MiB took 15.6 us so, and 11.8 us after reads.) It does so for
longer than the host takes to start the call behind it: otherwise the time would be the host's. An event's time is of
about half a microsecond; that of no call at all was 1.3 us there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from .timing import Call, Samples, in_turn

_WARM = 3
_FLUSH_BYTES = 256 << 20  # and four times the L2, where that is more
_AHEAD = 20e-6  # seconds that the host should be ahead by


def interleaved(torch: Any, device: str, contenders: Mapping[str, Sequence[Call]], rounds: int) -> Samples:
    """Times contenders in turn.

    Args:
        torch: the module.
        device: ``"cuda:0"``.
        contenders: what to call, by name: the same call with inputs in different memory, taken in turn.
        rounds: samples of each, one call each. The order is turned about from round to round.
    """
    with torch.cuda.device(device):
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        waste = torch.zeros(max(_FLUSH_BYTES, 4 * l2) // 4, dtype=torch.int32, device=device)
        for calls in contenders.values():
            for i in range(_WARM):
                calls[i % len(calls)]()
        torch.cuda.synchronize()
        flush = _device_seconds(torch, waste.amax)
        repeats = {n: _flushes(torch, calls[0], flush) for n, calls in contenders.items()}
        events: dict[str, list[tuple[Any, Any]]] = {n: [] for n in contenders}
        for number in range(rounds):
            for name in in_turn(list(contenders), number):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                for _ in range(repeats[name]):
                    waste.amax()
                begin.record()
                contenders[name][number % len(contenders[name])]()
                end.record()
                events[name].append((begin, end))
        torch.cuda.synchronize()
        return Samples({n: [b.elapsed_time(e) / 1e3 for b, e in pairs] for n, pairs in events.items()})


def _device_seconds(torch: Any, call: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def _flushes(torch: Any, call: Call, flush: float) -> int:
    """How often to fill the L2 so that the host is done with starting the call before that ends."""
    took = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = perf_counter()
        call()
        took.append(perf_counter() - start)
    torch.cuda.synchronize()
    return max(1, min(64, round((sorted(took)[1] + _AHEAD) / flush + 0.5)))


def host_seconds(torch: Any, call: Call, calls: int = 200, runs: int = 20) -> float:
    """Seconds of host time a call, the best of several runs: what disturbs only adds. The call must be a short one."""
    best = float("inf")
    for _ in range(runs):
        torch.cuda.synchronize()
        start = perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (perf_counter() - start) / calls)
    torch.cuda.synchronize()
    return best
