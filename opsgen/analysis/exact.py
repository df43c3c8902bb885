"""Which values a half type holds exactly: those that were rounded to it, and what only chooses among such."""

from __future__ import annotations

import math

import numpy as np

from ..dsl.dtypes import DType, compute_type
from ..dsl.tensor import At, Concat, Const, Input, Map, Tensor

_CHOICES = frozenset({"max", "min", "neg", "abs"})
"""Maps whose result is an operand, or one with its sign changed."""


def stored_type(node: Tensor) -> DType:
    """The type in which a value is kept between groups: its half type where that holds it as it is computed, else the
    type that it is computed in.
    """
    return node.dtype if is_half(node.dtype) and holds_exactly(node) else compute_type(node.dtype)


def is_half(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.bits == 16


def holds_exactly(node: Tensor) -> bool:
    """Whether the half type of the node holds its value, as computed in float32, without rounding."""
    stack: list[tuple[Tensor, DType]] = [(node, node.dtype)]
    seen: set[int] = set()
    while stack:
        found, dtype = stack.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, Const):
            if not _holds(dtype, float(found.value)):
                return False
        elif found.dtype != dtype:
            return False
        elif isinstance(found, Input) or (isinstance(found, Map) and found.op == "cast"):
            continue
        elif isinstance(found, At):
            stack.append((found.source, dtype))
        elif isinstance(found, Concat):
            stack.extend((part, dtype) for part in found.parts)
        elif isinstance(found, Map) and found.op == "where":
            stack.extend((value, dtype) for value in found.args[1:])
        elif isinstance(found, Map) and found.op in _CHOICES:
            stack.extend((value, dtype) for value in found.args)
        else:
            return False
    return True


def _holds(dtype: DType, value: float) -> bool:
    if dtype.name == "float16":
        with np.errstate(over="ignore"):
            return math.isnan(value) or float(np.float16(value)) == value
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(single) == value and int(single.view(np.uint32)) & 0xFFFF == 0
