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


def _sizes(names: str, *sizes: tuple[int, ...]) -> list[dict[str, int]]:
    return [dict(zip(names.split(), s, strict=True)) for s in sizes]


_ROPE = ((1, 2, 1), (3, 10, 5), (2, 33, 16), (3, 5, 1), (0, 6, 3))
_QUANTIZED = ((1, 1), (15, 3), (258, 2), (0, 3), (64, 1))
SIZES_OF = {
    "rope": _sizes("heads head_dim pairs entries", *((*s, n) for s, n in zip(_ROPE, (1, 7, 5, 2, 3)))),
    "rope_from_frequencies": _sizes("heads head_dim pairs", *_ROPE),
    "kv_cache_append": _sizes(
        "entries heads head_dim sources", (1, 1, 1, 1), (19, 3, 5, 7), (65, 2, 33, 40), (9, 2, 0, 3), (9, 0, 3, 2)
    ),
    "qkv_projection": _sizes(
        "hidden heads key_heads head_dim value_dim",
        *((1, 1, 1, 1, 1), (13, 6, 3, 5, 5), (129, 3, 1, 33, 17), (0, 2, 2, 3, 3), (4, 2, 1, 0, 3)),
    ),
    "quantize_int8_channels": _sizes("channels", (1,), (13,), (257,), (0,), (16,)),
    "dequantize_int8_channels": _sizes("channels", (1,), (13,), (257,), (0,), (16,)),
    "quantize_int8_groups": _sizes("columns groups", *_QUANTIZED),
    "dequantize_int8_groups": _sizes("columns groups", *_QUANTIZED),
    "cls_pool": _sizes("batch length hidden", (1, 1, 1), (3, 5, 17), (2, 4, 257), (0, 3, 5), (2, 3, 0)),
    "last_token_pool": _sizes("batch length hidden", (1, 1, 1), (3, 5, 17), (2, 4, 257), (0, 3, 5), (2, 3, 0)),
    "position_embedding": _sizes(
        "batch length vocab entries hidden",
        *((1, 1, 1, 1, 1), (3, 7, 11, 7, 17), (2, 5, 3, 9, 257), (2, 0, 5, 3, 4), (2, 3, 4, 3, 0)),
    ),
    "bert_embedding": _sizes(
        "batch length vocab entries kinds hidden",
        *((1, 1, 1, 1, 1, 1), (3, 7, 11, 7, 2, 17), (2, 5, 3, 9, 3, 257), (2, 0, 5, 3, 2, 4), (2, 3, 4, 3, 2, 0)),
    ),
    "patch_embedding": _sizes(
        "batch channels height width hidden patch_height patch_width",
        *((1, 1, 1, 1, 1, 1, 1), (2, 3, 6, 10, 7, 3, 2), (1, 3, 16, 48, 33, 16, 16), (2, 0, 4, 4, 5, 2, 2)),
        (0, 3, 0, 4, 5, 2, 2),
    ),
    "avg_pool_2d": _sizes(
        "batch channels height width",
        *((1, 1, 168, 168), (2, 3, 168, 168), (1, 2, 168, 336), (1, 2, 0, 168), (0, 2, 168, 168)),
    ),
    "top_k": _sizes("columns", (20,), (65,), (21,), (257,), (33,)),
    "moe_capacity_router": _sizes("tokens experts", (1, 2), (17, 3), (70, 65), (0, 8), (33, 16)),
    "packed_qkv_projection": _sizes(
        "parts heads head_dim hidden", (3, 1, 1, 1), (3, 3, 5, 13), (3, 2, 33, 257), (3, 2, 4, 0), (3, 0, 4, 5)
    ),
    "abs_percentile": _sizes("length columns", (1, 1), (7, 5), (33, 129), (0, 3), (3, 0)),
    "moe_router": _sizes("experts", (2,), (8,), (65,), (3,), (16,)),
    "moe_combine": _sizes(
        "sources tokens slots hidden", (1, 1, 1, 1), (7, 5, 2, 17), (33, 16, 3, 257), (3, 2, 0, 5), (3, 0, 2, 4)
    ),
}
"""Sizes for ops whose dims must fit together, or that are many: 1, primes, past tiles, no reduction, no result."""


def numpy_dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


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
    """Random arguments, as `opsgen bench` makes them: N(0, 1), positions in their dim, half of a mask True.

    A variance is not negative.
    """
    graph = op.trace(DTYPES[dtype], absent=absent)
    extents = {**sizes, ROWS: prod(lead)}
    given = inputs.make(inputs.of_graph(graph, extents, lead), NumpyTensors([*lead, *sizes.values()]), repeated=True)
    if "variance" in given:
        given["variance"] = np.abs(given["variance"])
    scalars = {p.name: 0.37 if p.required else p.default for p in op.parameters if p.role == "scalar"}
    return {p.name: {**given, **scalars}[p.name] for p in op.parameters if p.name in given or p.name in scalars}


INTEGERS = {"groups": (1, 4), "k": (1, 3), "top": (1, 2), "bins": (37, 2048), "ignore_index": (-100, 1)}
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
