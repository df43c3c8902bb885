"""Arrays for tests: random values of any element type, in every memory layout that numpy can make."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from opsgen.bench import inputs
from opsgen.bench.tensors import NumpyTensors
from opsgen.dsl import Op
from opsgen.dsl.dtypes import DTYPES
from opsgen.dsl.trace import ROWS

Array = NDArray[Any]


def numpy_dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def of_spec(spec: Any, otherwise: str) -> str:
    """The element type that arrays for a parameter are drawn in: the one that it declares, or else ``otherwise``."""
    return otherwise if spec.dtype is None else (getattr(spec.dtype, "members", None) or (spec.dtype,))[0].name


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """N(0, 1), integers in [-20, 20], or either bool."""
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in ("uint8",):
        return np.asarray(rng.integers(0, 20, shape)).astype(dtype)
    if "int" in dtype:
        return np.asarray(rng.integers(-20, 21, shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(numpy_dtype(dtype))


def arguments(
    op: Op, absent: frozenset[str], lead: tuple[int, ...], sizes: Mapping[str, int], dtype: str
) -> dict[str, Any]:
    """Random arguments, as `opsgen bench` makes them: N(0, 1), positions in their dim, half of a mask True."""
    graph = op.trace(DTYPES[dtype], absent=absent)
    extents = {**sizes, ROWS: prod(lead)}
    given = inputs.make(inputs.of_graph(graph, extents, lead), NumpyTensors([*lead, *sizes.values()]), repeated=True)
    scalars = {p.name: 0.37 if p.required else p.default for p in op.parameters if p.role == "scalar"}
    return {p.name: {**given, **scalars}[p.name] for p in op.parameters if p.name in given or p.name in scalars}


INTEGERS = {"groups": (1, 4), "ignore_index": (-100, 1)}
"""Values for attributes that are integers, by name."""


def choices(attribute: Any) -> tuple[Any, ...]:
    """Values of an attribute to test: all that it may have, or some of an integer's."""
    return attribute.choices or ((False, True) if attribute.type == "bool" else INTEGERS[attribute.name])


LAYOUTS = ("dense", "transposed", "expanded", "negative", "offset", "misaligned", "sliced", "stepped")


def empty(shape: tuple[int, ...], dtype: Any, layout: str) -> Array:
    """Memory in a layout. ``expanded`` has stride 0 along the first dim of more than one element: not for results."""
    dtype = np.dtype(dtype)
    if layout == "transposed":
        return np.empty(shape[::-1], dtype).T
    if layout == "negative" and shape:
        return np.empty(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)]
    if layout == "offset":
        return np.empty(int(np.prod(shape)) + 1, dtype)[1:].reshape(shape)
    if layout == "misaligned":
        count = int(np.prod(shape)) * dtype.itemsize
        return np.empty(count + 1, np.uint8)[1:].view(dtype).reshape(shape)
    if layout == "sliced" and shape:
        return np.empty((*shape[:-1], shape[-1] + 5), dtype)[..., 3 : 3 + shape[-1]]
    if layout == "stepped" and shape:
        return np.empty((*shape[:-1], shape[-1] * 2), dtype)[..., ::2]
    return np.empty(shape, dtype)


def arranged(x: Array, layout: str) -> Array:
    """The same values in a layout (``expanded`` repeats the first slice)."""
    if layout == "expanded":
        return np.broadcast_to(x[:1], x.shape) if x.ndim and x.shape[0] else x
    y = empty(x.shape, x.dtype, layout)
    y[...] = x
    return y


def any_layout(r: random.Random) -> str:
    return r.choice(LAYOUTS) if r.random() < 0.4 else "dense"
