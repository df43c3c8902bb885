"""Attention on x86 beside torch's scaled_dot_product_attention. ``python -m benchmarks.attention``

Without TVM on the measuring machine: compile elsewhere (``--compile FILE``) and give the file (``--library FILE``).

Both start from the same contiguous float32 tensors [batch, heads, length, head_dim]. Ours write to memory that is there
before, torch allocates from a heap that keeps what was freed. Torch's form of grouped heads is ``enable_gqa``. The peer
of the sliding window is our own attention over all keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opsgen as og
from opsgen.bench import timing

from . import beside_torch

SHAPES = ((1, 12, 512, 64), (1, 12, 2048, 64), (32, 12, 128, 32), (8, 12, 256, 32))
SHAPES_NEARBY = ((1, 11, 500, 64), (1, 10, 1900, 80), (2, 9, 700, 96))
"""Batch, heads, length, head dim."""
DECODE = ((1, 32, 8, 4096, 128),)
DECODE_NEARBY = ((1, 28, 4, 4000, 128), (1, 16, 16, 3000, 64), (3, 12, 4, 5000, 96))
"""Batch, query heads, heads of keys and values, length of the cache, head dim; one query."""
WINDOW = ((1, 4, 8192, 64, 256),)
WINDOW_NEARBY = ((1, 4, 8000, 64, 250), (1, 3, 7000, 80, 300), (1, 4, 9000, 64, 200))
"""Batch, heads, length, head dim, window."""
MOST_ERROR = 1e-5


def ops() -> list[Any]:
    from opsgen import ops as standard

    causal = og.variant(standard.causal_attention, align="bottom-right")
    plain = og.variant(standard.scaled_dot_product_attention, absent=["bias", "mask"])
    return [plain, causal, standard.sliding_window_attention]


def cases(lib: Any, torch: Any) -> list[tuple[str, str, bool, int, dict[str, Callable[[], Any]]]]:
    """What is measured: name, shape, whether nearby, flops, and the contenders, ours and the peer."""
    peer = torch.nn.functional.scaled_dot_product_attention
    found: list[tuple[str, str, bool, int, dict[str, Callable[[], Any]]]] = []

    def tensors(b: int, h: int, m: int, kv: int, n: int, d: int) -> tuple[Any, ...]:
        return torch.randn(b, h, m, d), torch.randn(b, kv, n, d), torch.randn(b, kv, n, d), torch.empty(b, h, m, d)

    for shapes, nearby in ((SHAPES, False), (SHAPES_NEARBY, True)):
        for b, h, n, d in shapes:
            q, k, v, y = tensors(b, h, n, h, n, d)
            lse, s, flops = torch.empty(b, h, n), d**-0.5, 4 * b * h * n * n * d
            full = {
                "opsgen": lambda q=q, k=k, v=v, y=y, s=s: lib.scaled_dot_product_attention(q, k, v, scale=s, out=y),
                "torch": lambda q=q, k=k, v=v: peer(q, k, v),
            }
            causal = {
                "opsgen": lambda q=q, k=k, v=v, y=y, z=lse, s=s: lib.causal_attention(
                    q, k, v, scale=s, align="bottom-right", out=(y, z)
                )[0],
                "torch": lambda q=q, k=k, v=v: peer(q, k, v, is_causal=True),
            }
            found.append(("full", f"{b}x{h}x{n}x{d}", nearby, flops, full))
            found.append(("causal", f"{b}x{h}x{n}x{d}", nearby, flops // 2, causal))
    for shapes_, nearby in ((DECODE, False), (DECODE_NEARBY, True)):
        for b, h, kv, n, d in shapes_:
            q, k, v, y = tensors(b, h, 1, kv, n, d)
            one = {
                "opsgen": lambda q=q, k=k, v=v, y=y, s=d**-0.5: lib.scaled_dot_product_attention(
                    q, k, v, scale=s, out=y
                ),
                "torch": lambda q=q, k=k, v=v: peer(q, k, v, enable_gqa=True),
            }
            found.append(("decode", f"{b}x{h}/{kv}x{n}x{d}", nearby, 4 * b * h * n * d, one))
    for shapes__, nearby in ((WINDOW, False), (WINDOW_NEARBY, True)):
        for b, h, n, d, w in shapes__:
            q, k, v, y = tensors(b, h, n, h, n, d)
            z, s = torch.empty_like(y), d**-0.5
            window = {
                "opsgen": lambda q=q, k=k, v=v, y=y, s=s, w=w: lib.sliding_window_attention(
                    q, k, v, scale=s, window=float(w), out=y
                ),
                "opsgen, all keys": lambda q=q, k=k, v=v, z=z, s=s: lib.scaled_dot_product_attention(
                    q, k, v, scale=s, out=z
                ),
            }
            found.append((f"window {w}", f"{b}x{h}x{n}x{d}", nearby, 4 * b * h * n * w * d, window))
    return found


def measure(lib: Any, torch: Any, rounds: int, only: str) -> list[dict[str, Any]]:
    rows = []
    for name, shape, nearby, flops, contenders in cases(lib, torch):
        if only and not name.startswith(only):
            continue
        ours, peer = contenders
        if peer == "torch":
            error = float((contenders[ours]() - contenders[peer]()).abs().max())
            if error > MOST_ERROR:
                raise SystemExit(f"{name} {shape}: off torch by {error:.1e}; nothing was measured")
        samples = timing.interleaved(contenders, rounds)
        row: dict[str, Any] = {"case": name, "shape": shape, "nearby": nearby, "peer": peer}
        for k in contenders:
            row[f"{k}_ms"] = timing.milliseconds(samples.quantiles(k))
        row["gflops"] = round(flops / samples.quantiles(ours).p50 / 1e9, 1)
        row["ratio"] = round(samples.ratio(ours, peer), 3)
        rows.append(row)
    return rows


def text(row: dict[str, Any]) -> str:
    speed = f"{row['gflops']:7.1f} GFLOP/s"
    return f"{row['case']:10s} {row['shape']:18s} {speed}  {row['ratio']:.2f}x {row['peer']}"


def main() -> None:
    only = "cases whose names start so: full, causal, decode, window"
    beside_torch.run("attention", __doc__, ops, measure, text, only)


if __name__ == "__main__":
    main()
