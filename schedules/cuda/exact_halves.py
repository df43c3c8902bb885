"""How a factor becomes elements of a half type that tensor cores multiply: exactly, as a sum of a few.

A parameter of that type is one of them, and so is what is chosen, gathered, cut off or rounded from such values,
wherever it is stored meanwhile. Other expressions are computed in float32, all of which three bfloat16 hold; two hold
any float16.
"""

from __future__ import annotations

import math

from opsgen.dsl.tensor import At, Concat, Const, Input, Map, Tensor

_CHOOSE = frozenset({"neg", "abs", "max", "min"})
_PRECISION = {"float16": (11, 24, 65504.0), "bfloat16": (8, 133, 3.38e38)}
"""Significant bits, minus the exponent of the least number, and the largest number."""


def is_exact(root: Tensor, dtype: str) -> bool:
    """Whether every value of the node is one of the half type."""
    stack, seen = [root], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        below = _below(node, dtype)
        if below is None:
            return False
        stack.extend(below)
    return True


def _below(node: Tensor, dtype: str) -> tuple[Tensor, ...] | None:
    """What has to be exact for the node to be; None if it is not in any case."""
    if isinstance(node, Const):
        return () if _is_half(float(node.value), dtype) else None
    stored = isinstance(node, Input) or (isinstance(node, Map) and node.op == "cast")
    if stored and (node.dtype.name == dtype or node.dtype.bits <= 8):
        return ()
    if isinstance(node, At):
        return (node.source,)
    if isinstance(node, Concat):
        return node.parts
    if isinstance(node, Map) and (node.op in _CHOOSE or node.op == "cast"):
        return node.args
    if isinstance(node, Map) and node.op == "where":
        return node.args[1:]
    return () if node.dtype.kind != "float" and node.dtype.bits <= 8 else None


def _is_half(value: float, dtype: str) -> bool:
    """Whether a number is one of the half type."""
    bits, exponent, largest = _PRECISION[dtype]
    if not math.isfinite(value) or value == 0:
        return True
    power = math.frexp(value)[1]
    step = 2.0 ** max(power - bits, -exponent)
    return abs(value) <= largest and value % step == 0


def terms(factors: tuple[Tensor, Tensor], dtype: str) -> tuple[str, tuple[int, int]]:
    """The type in which both factors are multiplied, and of how many elements each is the sum."""
    if all(is_exact(f, dtype) for f in factors):
        return dtype, (1, 1)

    def count(f: Tensor) -> int:
        if is_exact(f, "bfloat16"):
            return 1
        return 2 if is_exact(f, "float16") else 3

    left, right = factors
    return "bfloat16", (count(left), count(right))
