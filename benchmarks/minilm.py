"""MiniLM on an opsgen library beside transformers' BertModel in eager torch. ``python -m benchmarks.minilm``

From token ids to unit vectors: both start from the same ids and mask, unpadded, and use the same number of threads.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

import opsgen
from opsgen.bench import report, timing

from . import harness

CASES = ((32, 128), (1, 12), (8, 256))
NEARBY = ((31, 125), (1, 14), (9, 250))
"""Nobody chose these: a figure that holds for the cases alone would be a special case."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minilm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, help="default: what torch takes")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--library", type=Path, help="a compiled library (python -m examples.minilm.library FILE)")
    parser.add_argument("--weights", choices=("float32", "float16"), default="float32", help="of the linear layers")
    parser.add_argument("--random", action="store_true", help="random weights, where the model's package is missing")
    options = parser.parse_args()
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before torch and its OpenMP runtime, which we share

    import torch

    from examples.minilm import library, weights
    from examples.minilm.encoder import MiniLM
    from examples.minilm.reference import TorchMiniLM
    from examples.minilm.tokenizer import Tokenizer

    if options.library:
        kernels = opsgen.load(options.library)
    else:
        kernels = library.load().library if options.weights == "float32" else library.compile(options.weights)
    theirs = TorchMiniLM(random=options.random)
    packed = weights.pack(theirs.weights() if options.random else weights.load(), kernels, options.weights)
    ours = MiniLM(kernels, packed, None if options.random else Tokenizer())
    generator = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for batch, length in (*CASES, *NEARBY):
        ids = generator.integers(0, ours.weights.words.shape[0], (batch, length))
        mask = np.ones((batch, length), np.bool_)
        inputs = torch.from_numpy(ids), torch.from_numpy(mask)
        error = float(np.abs(ours.forward(ids, mask) - theirs.forward(*inputs).numpy()).max())
        if error > (1e-5 if options.weights == "float32" else 1e-3):
            raise SystemExit(f"{batch} x {length}: the two models differ by {error:.1e}; nothing was measured")
        samples = timing.interleaved(
            {"opsgen": lambda: ours.forward(ids, mask), "torch": lambda: theirs.forward(*inputs)},  # noqa: B023
            options.rounds,
        )
        rows.append(_row(ours, batch, length, samples))
    print(
        report.table(
            ("batch x length", "opsgen p20/50/80 ms", "torch p20/50/80 ms", "GFLOP/s", "tokens/s", "torch / opsgen"),
            [_cells(row) for row in rows],
        )
    )
    settings = {"threads": torch.get_num_threads(), "rounds": options.rounds, "dtype": "float32", "peer": "eager, sdpa"}
    settings["storage of weights"] = options.weights
    settings["weights"] = "random" if options.random else "the model's"
    print(", ".join(f"{name} {value}" for name, value in settings.items()))
    half = "" if options.weights == "float32" else "-float16-weights"
    if not options.no_save:
        print(
            harness.write(
                f"minilm-{settings['threads']}-threads{half}", rows, packages=("torch", "transformers"), **settings
            )
        )


def flops(weights: Any, batch: int, length: int) -> int:
    """Of the linear maps and of attention; the rest is about a hundredth."""
    hidden, inner, layers = weights.hidden, weights.layers[0].up.bias.size, len(weights.layers)
    linear = 2 * batch * length * (4 * hidden * hidden + 2 * hidden * inner)
    attention = 4 * batch * length * length * hidden
    return layers * (linear + attention)


def _row(ours: Any, batch: int, length: int, samples: timing.Samples) -> dict[str, Any]:
    median = samples.quantiles("opsgen").p50
    return {
        "batch": batch,
        "length": length,
        "listed": (batch, length) in CASES,
        "ms": {name: timing.milliseconds(samples.quantiles(name)) for name in samples.seconds},
        "gflops": round(flops(ours.weights, batch, length) / median / 1e9, 1),
        "tokens_per_s": round(batch * length / median),
        "torch_over_opsgen": round(samples.ratio("opsgen", "torch"), 3),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = ["/".join(f"{value:.2f}" for value in row["ms"][name].values()) for name in ("opsgen", "torch")]
    label = f"{row['batch']} x {row['length']}" + ("" if row["listed"] else " (nearby)")
    return (label, *times, f"{row['gflops']:.0f}", f"{row['tokens_per_s']:,}", f"{row['torch_over_opsgen']:.2f}")


if __name__ == "__main__":
    main()
