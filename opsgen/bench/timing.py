"""Interleaved timing on the CPU, and samples of times.

Contenders are timed in turn, round by round, in one process. A machine's clock drifts by more than the differences that
matter, so the figure that counts is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np

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
        """Of one contender."""
        return Quantiles(*np.percentile(self.seconds[name], (20, 50, 80)).tolist())

    def ratio(self, ours: str, peer: str) -> float:
        """How many times as fast as ``peer``: the median over rounds."""
        return float(np.median(np.divide(self.seconds[peer], self.seconds[ours])))


def interleaved(contenders: Mapping[str, Call], rounds: int) -> Samples:
    """Times contenders in turn, whose calls return when they are done.

    Args:
        contenders: what to call, by name.
        rounds: samples of each. The order is turned about from round to round: nobody always follows the same one.
    """

    def sample(call: Call, repeats: int) -> float:
        start = perf_counter()
        for _ in range(repeats):
            call()
        return (perf_counter() - start) / repeats

    repeats = {}
    for name, call in contenders.items():
        sample(call, 2)  # warms caches, threads and allocators
        repeats[name] = max(1, int(np.ceil(SAMPLE_SECONDS / sample(call, 1))))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in in_turn(list(contenders), number):
            seconds[name].append(sample(contenders[name], repeats[name]))
    return Samples(seconds)


def in_turn(names: list[str], number: int) -> list[str]:
    """The order of a round."""
    return names if number % 2 == 0 else names[::-1]


def keep_memory() -> None:
    """Lets malloc keep what is freed: torch allocates its results, and the page faults of fresh memory from the system
    would cost it more than its kernels do."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def milliseconds(quantiles: Quantiles) -> dict[str, float]:
    """For a record: three quantiles in ms, to a tenth of a microsecond."""
    return {name: round(1e3 * value, 4) for name, value in quantiles._asdict().items()}
