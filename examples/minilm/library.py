"""The model's op library: compiled once, then loaded. ``python -m examples.minilm.library`` compiles it."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import opsgen as og
from opsgen.runtime.host import host_levels

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


class Built(NamedTuple):
    """A library, and the seconds that making it ready took; ``compiling`` is None if the file was there."""

    library: Any
    path: Path
    compiling: float | None
    loading: float


def compile(weights: str = "float32") -> Any:
    """The library of the calls that `encoder.MiniLM` makes, for this host. Imports TVM.

    ``weights``: how the matrices of the linear layers are stored; everything else is float32.
    """
    from opsgen import ops

    from .ops import bert_embeddings, l2_normalise

    # Bound, the dims of a head let attention's inner loops be unrolled; binding other dims gained nothing.
    head = {"head_dim": 32, "value_dim": 32}
    stored = {"*": "float32", "weight": weights}
    return og.compile(
        [
            bert_embeddings,
            og.variant(ops.linear, absent=["residual"], activation="none", dtype=stored),  # query, key and value in one
            og.variant(ops.linear, absent=["residual"], activation="gelu", dtype=stored),
            og.variant(ops.linear, absent=[], activation="none", dtype=stored),  # with the residual
            og.variant(ops.layer_norm, absent=["residual"]),
            og.variant(ops.masked_attention, dims=head),
            ops.masked_mean_pool,
            l2_normalise,
        ],
        target="x86",
        dtypes=["float32"],
    )


def load() -> Built:
    """The library, compiled first if no file of these sources, tools and CPU is there.

    Compiling runs in a process of its own, so that this one never imports TVM.

    Raises:
        SystemExit: compiling failed; the other process has said why.
        CallError: E4xxx, the file cannot be loaded.
    """
    path = BUILD / f"minilm-{_key()}.so"
    compiling = None
    if not path.exists():
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", __name__, str(path)], cwd=ROOT)
        if done.returncode != 0:
            raise SystemExit(f"compiling the library failed with exit status {done.returncode}")
        compiling = time.perf_counter() - start
    start = time.perf_counter()
    library = og.load(path)
    return Built(library, path, compiling, time.perf_counter() - start)


def _key() -> str:
    """What the file depends on: opsgen's and this example's sources, the compiler's version, and the CPU."""
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    for package in ("apache-tvm", "apache-tvm-ffi"):
        digest.update(f"{package} {_version(package)}".encode())
    digest.update(repr(host_levels()).encode())
    return digest.hexdigest()[:12]


def _sources() -> Iterator[Path]:
    package = Path(og.__file__).resolve().parent
    linked = (package / name for name in ("schedules", "targets", "templates"))  # rglob follows no links
    for folder in (package, *linked):
        yield from sorted(p for p in folder.resolve().rglob("*") if p.suffix in (".py", ".cc", ".c", ".h", ".j2"))
    yield from (Path(__file__), Path(__file__).with_name("ops.py"))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def main(path: str) -> int:
    """Compiles the library to ``path``, unless another process just did, and removes those of older sources."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "minilm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return 0
        try:
            compile().save(target)
        except og.OpsgenError as problem:
            print(problem, file=sys.stderr)
            return 1
        for old in target.parent.glob("minilm-*.so"):
            if old.name != target.name:
                old.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else str(BUILD / f"minilm-{_key()}.so")))
