"""Products of a value and one plus a tanh or an erf: what GELU is, however its factors are written."""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.dsl.tensor import Const, Map, Tensor


@dataclass(frozen=True)
class Gate:
    """``factor`` · ``value`` · (1 + ``function``(``argument``)); erf or tanh, of ``scale`` · ``inner``."""

    factor: float
    value: Tensor
    function: str
    argument: Tensor
    scale: float
    inner: Tensor


def one_plus(node: Tensor) -> Map | None:
    """Of a sum of one and a tanh or an erf: the latter."""
    if isinstance(node, Map) and node.op == "add":
        for one, other in (node.args, node.args[::-1]):
            if isinstance(one, Const) and one.value == 1 and isinstance(other, Map) and other.op in ("tanh", "erf"):
                return other
    return None


def gate(node: Tensor) -> Gate | None:
    """What a product is, if it is one of those."""
    if not isinstance(node, Map) or node.op != "mul":
        return None
    factor, factors = _factors(node)
    sums = [one_plus(f) for f in factors]
    if len(factors) != 2 or (sums[0] is None) == (sums[1] is None):
        return None
    value, function = (factors[1], sums[0]) if sums[0] is not None else (factors[0], sums[1])
    assert function is not None
    scale, inner = _factors(function.args[0])
    if len(inner) != 1:
        scale, inner = 1.0, [function.args[0]]
    return Gate(factor, value, function.op, function.args[0], scale, inner[0])


def _factors(node: Tensor) -> tuple[float, list[Tensor]]:
    """A product's constant, and its other factors."""
    if isinstance(node, Const):
        return float(node.value), []
    if not isinstance(node, Map) or node.op != "mul":
        return 1.0, [node]
    (a, left), (b, right) = (_factors(x) for x in node.args)
    return a * b, left + right
