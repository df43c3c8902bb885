"""Contractions and row operations on x86 beside torch. ``python -m benchmarks.x86``

Without TVM on the measuring machine: compile elsewhere (``--compile FILE``) and give the file (``--library FILE``).

Ours and torch start from the same float32 arrays. Ours write to memory that is there before; torch allocates, from a
heap that keeps what was freed (`timing.keep_memory`). ``packed``: the weight was packed once, outside of the timing,
by ``lib.pack``; ``unpacked``: it comes as torch holds it, [out, in].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opsgen as og
from opsgen.bench import timing

from . import beside_torch

LINEAR = ((512, 768, 768), (512, 3072, 768), (128, 1024, 1024), (2048, 2048, 2048), (1, 4096, 4096))
LINEAR_NEARBY = ((500, 760, 780), (130, 1000, 1050), (1, 4000, 4100))
ROWS = ((512, 768), (512, 4096), (4096, 4096))
ROWS_NEARBY = ((500, 770), (510, 4100), (4000, 4111))
"""Rows, out features, in features; rows, columns. Nobody chose the nearby ones."""


def ops() -> list[Any]:
    from opsgen import ops as standard

    plain = [standard.softmax, og.variant(standard.gelu, approximate="none"), standard.swiglu, standard.add_rms_norm]
    return [
        og.variant(standard.linear, absent=["residual"], activation="none"),
        og.variant(standard.linear, absent=["residual"], activation="gelu"),
        og.variant(standard.layer_norm, absent=["residual"]),
        og.variant(standard.rms_norm, absent=["residual"]),
        *plain,
    ]


def linear_rows(lib: Any, torch: Any, rounds: int, shapes: Any, nearby: bool) -> list[dict[str, Any]]:
    functional = torch.nn.functional
    found = []
    for m, n, k in shapes:
        x, w, b, y = torch.randn(m, k), torch.randn(n, k) / k**0.5, torch.randn(n), torch.empty(m, n)
        packed = lib.pack("linear.weight", w)
        want = functional.gelu(functional.linear(x.double(), w.double(), b.double()))
        for weight in (w, packed):
            error = float((lib.linear(x, weight, b, activation="gelu") - want).abs().max())
            if error > 1e-4:
                raise SystemExit(f"linear {m} x {n} x {k} is off by {error:.1e}; nothing was measured")
        for name, peer, activation in (
            ("linear", lambda x=x, w=w, b=b: functional.linear(x, w, b), "none"),
            ("linear+gelu", lambda x=x, w=w, b=b: functional.gelu(functional.linear(x, w, b)), "gelu"),
        ):
            samples = timing.interleaved(
                {
                    "unpacked": lambda a=activation, x=x, w=w, b=b, y=y: lib.linear(x, w, b, activation=a, out=y),
                    "packed": lambda a=activation, x=x, p=packed, b=b, y=y: lib.linear(x, p, b, activation=a, out=y),
                    "torch": peer,
                },
                rounds,
            )
            found.append(_row(name, f"{m}x{n}x{k}", nearby, samples, 2 * m * n * k, 4 * (m * k + n * k + m * n)))
    return found


def row_operations(lib: Any, torch: Any, x: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], int]]:
    """Our call, torch's, and how many arrays of x's size are moved."""
    functional, n = torch.nn.functional, x.shape[1]
    g, b, r = torch.randn(n), torch.randn(n), torch.randn_like(x)
    y, z = torch.empty_like(x), torch.empty_like(x)

    def add_norm() -> tuple[Any, Any]:
        total = x + r
        return functional.rms_norm(total, (n,), g, 1e-6), total

    return {
        "copy": (lambda: y.copy_(x), lambda: y.copy_(x), 2),
        "layer_norm": (lambda: lib.layer_norm(x, g, b, out=y), lambda: functional.layer_norm(x, (n,), g, b), 2),
        "rms_norm": (lambda: lib.rms_norm(x, g, out=y), lambda: functional.rms_norm(x, (n,), g, 1e-6), 2),
        "softmax": (lambda: lib.softmax(x, out=y), lambda: functional.softmax(x, -1), 2),
        "gelu": (lambda: lib.gelu(x, out=y), lambda: functional.gelu(x), 2),
        "swiglu": (lambda: lib.swiglu(x, r, out=y), lambda: functional.silu(x) * r, 3),
        "add_rms_norm": (lambda: lib.add_rms_norm(x, r, g, out=(y, z)), add_norm, 4),
    }


def _row(name: str, shape: str, nearby: bool, samples: timing.Samples, flops: int, moved: int) -> dict[str, Any]:
    ours = [k for k in samples.seconds if k != "torch"]
    row: dict[str, Any] = {"op": name, "shape": shape, "nearby": nearby}
    for k in (*ours, "torch"):
        row[f"{k}_ms"] = timing.milliseconds(samples.quantiles(k))
        row[f"{k}_gflops"] = round(flops / samples.quantiles(k).p50 / 1e9, 1)
        row[f"{k}_gbs"] = round(moved / samples.quantiles(k).p50 / 1e9, 2)
    row["ratio"] = {k: round(samples.ratio(k, "torch"), 3) for k in ours}
    return row


def measure(lib: Any, torch: Any, rounds: int, only: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if only != "rows":
        for shapes, nearby in ((LINEAR, False), (LINEAR_NEARBY, True)):
            rows += linear_rows(lib, torch, rounds, shapes, nearby)
    if only != "linear":
        for shapes_, nearby in ((ROWS, False), (ROWS_NEARBY, True)):
            for m, n in shapes_:
                x = torch.randn(m, n)
                for name, (ours, theirs, arrays) in row_operations(lib, torch, x).items():
                    samples = timing.interleaved({"opsgen": ours, "torch": theirs}, rounds)
                    rows.append(_row(name, f"{m}x{n}", nearby, samples, 0, 4 * arrays * m * n))
    return rows


def text(row: dict[str, Any]) -> str:
    first = next(iter(row["ratio"]))
    flops, moved = row[f"{first}_gflops"], row[f"{first}_gbs"]
    speed = f"{flops:7.1f} GFLOP/s" if flops else f"{moved:7.2f} GB/s"
    ratios = "  ".join(f"{k} {v:.2f}x" for k, v in row["ratio"].items())
    return f"{row['op']:14s} {row['shape']:16s} {speed}  {ratios}"


def main() -> None:
    beside_torch.run("x86", __doc__, ops, measure, text, "linear or rows")


if __name__ == "__main__":
    main()
