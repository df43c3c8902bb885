"""A kernel that reads memory and writes next to nothing: what a kernel that must read a weight once can reach.

In Triton, which torch brings along on GPUs: its own reductions read a weight of one layer at less than half of the
bandwidth. The shape of the kernel is the fastest of a few, on this GPU and for this size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from opsgen.bench import cuda_timing

SHAPES = ((2048, 4), (4096, 4), (4096, 8), (8192, 4), (8192, 8), (16384, 8), (16384, 16))
"""Words of 32 bits that a block reads, and its warps."""


@triton.jit
def _largest(words, found, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(found + block, tl.max(tl.load(words + at, mask=at < count, other=0), 0))


def fastest(torch: Any, device: str, nbytes: int) -> dict[str, Callable[[], Any]]:
    """The call of the fastest one, by name: it reads ``nbytes``, a multiple of 4, of memory of its own."""
    words = torch.randint(-(2**31), 2**31 - 1, (nbytes // 4,), dtype=torch.int32, device=device)
    calls = {f"read only ({block} words, {warps} warps)": _call(torch, words, block, warps) for block, warps in SHAPES}
    samples = cuda_timing.interleaved(torch, device, {n: [call] for n, call in calls.items()}, 15)
    best = min(calls, key=lambda n: samples.quantiles(n).p50)
    return {best: calls[best]}


def _call(torch: Any, words: Any, block: int, warps: int) -> Callable[[], Any]:
    blocks = triton.cdiv(words.numel(), block)
    found = torch.empty(blocks, dtype=torch.int32, device=words.device)
    return lambda: _largest[(blocks,)](words, found, words.numel(), BLOCK=block, num_warps=warps)
