"""Valid arguments for a call: N(0, 1), positions that lie in their dim, offsets and lengths as calls have them.

What an integer input means is read off the op's graph, or, as far as it says so, off the library file's manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..analysis.indices import compared_with, index_limits
from ..dsl.dtypes import DTYPES as KINDS
from ..dsl.op import Graph, Op
from ..dsl.trace import ROWS
from ..runtime.expressions import expression
from ..runtime.manifest import Kernel, Signature
from .tensors import Tensors

REQUIRED_SCALAR = 0.125
"""For a scalar without a value: the scale of attention with heads of 64."""
_SMALL = 8  # integers that mean nothing known lie in [0, 8)


@dataclass(frozen=True)
class Input:
    """One tensor of a call, and what its elements have to be.

    Attributes:
        below: positions in [0, below); None: they are none.
        offsets: they start at 0, never fall, and end here.
        lengths: they lie in [0, lengths].
        rising: they never fall.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    below: int | None = None
    offsets: int | None = None
    lengths: int | None = None
    rising: bool = False


def of_graph(graph: Graph, sizes: Mapping[str, int], lead: tuple[int, ...] | None = None) -> list[Input]:
    """The inputs of a graph for extents of its dims; ``lead``: the shape of the leading dims, one dim if not given."""
    indexed = {**compared_with(graph), **index_limits(graph)}
    limits = {n: min(e.evaluate(sizes) for e in found) for n, found in indexed.items()}
    checks = {(c.kind, c.input): graph.extent(c.dim).evaluate(sizes) for c in graph.checks}
    found = []
    for node in graph.inputs:
        shape = tuple(graph.extent(d).evaluate(sizes) for d in node.dims)
        if lead is not None and graph.leading and node.dims[:1] == (ROWS,):
            shape = (*lead, *shape[1:])
        offsets, lengths = (checks.get((kind, node.name)) for kind in ("offsets", "lengths"))
        rising = ("sorted", node.name) in checks
        found.append(Input(node.name, shape, node.dtype.name, limits.get(node.name), offsets, lengths, rising))
    return found


def of_kernel(kernel: Kernel, sizes: Mapping[str, int]) -> list[Input]:
    """The inputs of a kernel of a library file, whose manifest does not name offsets and lengths."""
    found = []
    for spec in kernel.inputs:
        below = None if spec.index_limit is None else expression(spec.index_limit).over(sizes)
        shape = tuple(sizes[d] if isinstance(d, str) else d for d in spec.dims)
        found.append(Input(spec.name, shape, spec.dtype, below))
    return found


def make(wanted: Sequence[Input], tensors: Tensors, repeated: bool = False) -> dict[str, Any]:
    """An array for each input. Sequences that offsets cut are of equal length, and lengths are the longest.

    ``repeated``: positions may come twice; otherwise each comes once where there are enough, as pages of a cache do.
    """
    random = np.random.default_rng(0)
    return {i.name: _one(i, tensors, random, repeated) for i in wanted}


def _one(wanted: Input, tensors: Tensors, random: np.random.Generator, repeated: bool) -> Any:
    shape, count, kind = wanted.shape, prod(wanted.shape), KINDS[wanted.dtype].kind
    if wanted.offsets is not None:
        return tensors.put(np.arange(count) * wanted.offsets // max(count - 1, 1), wanted.dtype)
    if wanted.rising:
        return tensors.put(np.arange(count) * (wanted.below or _SMALL) // max(count, 1), wanted.dtype)
    if wanted.lengths is not None:
        return tensors.put(np.full(shape, wanted.lengths), wanted.dtype)
    if wanted.below is not None and count <= wanted.below and not repeated:
        return tensors.put(random.permutation(wanted.below)[:count].reshape(shape), wanted.dtype)
    if wanted.below is not None:
        return tensors.integers(0, max(wanted.below, 1), shape, wanted.dtype)
    if kind == "bool":
        return tensors.put(random.random(shape) < 0.5, "bool")
    if kind == "float":
        return tensors.normal(shape, wanted.dtype)
    if KINDS[wanted.dtype].bits == 8:  # quantised values: all of the type, and as many below 0 as above it
        least = 0 if kind == "uint" else -127
        return tensors.integers(least, 128 if least else 256, shape, wanted.dtype)
    return tensors.integers(0, _SMALL, shape, wanted.dtype)


def scalars(op: Op | Signature, given: Mapping[str, float]) -> dict[str, float]:
    """A value for each run-time scalar: the one given, its default, or `REQUIRED_SCALAR`."""
    if isinstance(op, Signature):
        defaults = {p.name: p.default for p in op.scalars}
    else:
        defaults = {p.name: None if p.required else p.default for p in op.parameters if p.role == "scalar"}
    known = {n: float(d) for n, d in defaults.items() if isinstance(d, (int, float))}
    return {n: float(given.get(n, known.get(n, REQUIRED_SCALAR))) for n in defaults}
