"""How much memory attention takes beyond its inputs and its result. ``python -m benchmarks.attention_memory``

Beside the unfused form in torch, softmax(q kᵀ) v, which holds the scores and their softmax at once. Each figure is the
growth of a fresh process's peak resident memory in one call, after a call with a small input has loaded what is needed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import opsgen as og

from . import harness

LENGTHS = (1024, 2048, 4096, 8192)
HEADS, HEAD_DIM = 12, 64
FORMS = ("opsgen", "opsgen causal", "torch unfused")


def call(form: str, length: int, library: str) -> int:
    """The bytes by which one call raises the process's peak."""
    import torch

    torch.set_num_threads(1)
    lib = og.load(library)
    scale = HEAD_DIM**-0.5

    def run(q: Any, k: Any, v: Any, y: Any, lse: Any) -> None:
        if form == "opsgen":
            lib.scaled_dot_product_attention(q, k, v, scale=scale, out=y)
        elif form == "opsgen causal":
            lib.causal_attention(q, k, v, scale=scale, align="bottom-right", out=(y, lse))
        else:
            torch.matmul(torch.softmax(torch.matmul(q * scale, k.transpose(2, 3)), -1), v, out=y)

    def tensors(n: int) -> tuple[Any, ...]:
        q, k, v, y = (torch.rand(1, HEADS, n, HEAD_DIM) for _ in range(4))
        return q, k, v, y, torch.zeros(1, HEADS, n)

    run(*tensors(64))
    large = tensors(length)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = _resident("VmHWM")
    run(*large)
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    """Bytes, from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) * 1024


def measure(library: Path) -> list[dict[str, Any]]:
    rows = []
    for length in LENGTHS:
        row: dict[str, Any] = {"length": length, "heads": HEADS, "head_dim": HEAD_DIM}
        for form in FORMS:
            command = [sys.executable, "-m", __spec__.name, "--one", form, "--length", str(length)]
            done = subprocess.run([*command, "--library", str(library)], capture_output=True, text=True, check=True)
            row[f"{form} MB"] = round(int(done.stdout.split()[-1]) / 1e6, 2)
        row["share"] = round(row["opsgen MB"] / row["torch unfused MB"], 5)
        rows.append(row)
        print(row, flush=True)
    return rows


def plot(rows: list[dict[str, Any]], output: Path) -> None:
    """An SVG with both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6))
    for form, mark in zip(FORMS, "os^", strict=True):
        axes.plot([r["length"] for r in rows], [r[f"{form} MB"] for r in rows], marker=mark, label=form)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axes.set_xlabel(f"length of queries and keys; {HEADS} heads of {HEAD_DIM}, float32")
    axes.set_ylabel("extra memory, MB")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(output)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention_memory", description=__doc__)
    parser.add_argument("--library", type=Path, help="a file that python -m benchmarks.attention --compile wrote")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="needs matplotlib")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--one", choices=FORMS, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(call(options.one, options.length, str(options.library)))
        return
    with tempfile.TemporaryDirectory() as folder:
        library = options.library
        if library is None:
            from opsgen.compiler.compile import build

            from .attention import ops

            library = Path(folder) / "attention.so"
            build(ops(), library)
        rows = measure(library)
    if options.plot:
        plot(rows, options.plot)
    if not options.no_save:
        print("written to", harness.write("attention-memory", rows, packages=("torch",)))


if __name__ == "__main__":
    main()
