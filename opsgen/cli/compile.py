"""`opsgen compile`: ops to one library file."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ..compiler.compile import build
from ..compiler.precision import Precision
from ..compiler.problem import Variant, variant
from ..runtime.library_file import read_manifest
from . import choices
from .output import OK, Block, Table, print_json, readable, show
from .progress import Progress


def run(arguments: argparse.Namespace) -> int:
    """The command. With --json nothing but the document is printed."""
    start = time.perf_counter()
    chosen = choices.read(arguments)
    items = [_variant(op, chosen) for op in chosen.ops]
    output = Path(arguments.output)
    progress = Progress(quiet=arguments.json)
    try:
        allowed = Precision(arguments.float32_products, arguments.float8_sums)
        build(
            items, output, arguments.target, chosen.dtypes, {}, progress=progress, cache=not arguments.no_cache,
            allowed=allowed,
        )  # fmt: skip
    finally:
        progress.end()
    seconds = time.perf_counter() - start
    manifest = read_manifest(output)
    size = output.stat().st_size
    if arguments.json:
        kernels = [
            {
                "symbol": k.symbol, "op": k.op, "arch": k.arch, "absent": list(k.absent),
                "attributes": dict(k.attributes), "dtypes": {t.name: t.dtype for t in (*k.inputs, *k.outputs)},
            }
            for k in manifest.kernels
        ]  # fmt: skip
        print_json(
            {
                "file": str(output), "bytes": size, "seconds": round(seconds, 3), "kind": manifest.kind,
                "archs": list(manifest.archs), "ops": list(manifest.ops), "kernels": kernels,
            }
        )  # fmt: skip
        return OK
    rows = []
    for op in manifest.ops:
        counts = Counter(k.arch for k in manifest.kernels if k.op == op)
        rows.append((op, ", ".join(f"{_kernels(n)} for {manifest.kind}/{a}" for a, n in counts.items())))
    total = f"{output}: {_kernels(len(manifest.kernels))}, {readable(size)}, {seconds:.1f} s"
    blocks: list[Block] = [Table(rows), total]
    show(blocks)
    return OK


def _variant(op: Any, chosen: choices.Choices) -> Variant:
    """Every combination of optional tensors, unless --absent names some of this op's."""
    absent = chosen.absent_of(op)
    return variant(op, absent=absent or None, dims=chosen.dims_of(op), **chosen.attributes_of(op))


def _kernels(count: int) -> str:
    return f"{count} kernel{'s' * (count != 1)}"
