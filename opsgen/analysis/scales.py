"""Scales: what can be taken out of a reduction because it is the same at all positions.

    sum_j f · x_j       = f · sum_j x_j
    max_j (x_j + f)     = max_j x_j + f

Taken out are only operands that depend on reductions still running: the rest of the reduction then runs without them,
and they are applied once, after the loop. What is taken out is an operand as the definition has it. An exponential is
never torn apart for it: exp(x - m) must stay one, or it would overflow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..dsl.tensor import At, Const, Map, Tensor, elementwise
from ..errors import InternalError
from .dependence import varies
from .groups import is_transpose


@dataclass(frozen=True, eq=False)
class Outer:
    """An operand taken out; ``inverse``: it divides (of a sum) or is subtracted (of a maximum or minimum)."""

    node: Tensor
    inverse: bool = False


@dataclass(frozen=True, eq=False)
class Split:
    """``rest`` is what stays in the reduction; None where nothing does, which stands for 1 in a sum and 0 otherwise."""

    rest: Tensor | None
    outer: tuple[Outer, ...] = ()


def split(arg: Tensor, op: str, over: Collection[str], moving: Collection[int]) -> tuple[Tensor, tuple[Outer, ...]]:
    """``arg`` of a reduction ``op`` (sum, max, min) over dims without the operands that can be applied afterwards, and
    these.

    ``moving`` are the ids of the nodes that depend on running reductions. Where nothing is taken out, the first is
    ``arg`` itself, and operands in which nothing changed are the same nodes.
    """
    found = _Splitter(op, over, moving).split(arg)
    if found.rest is None:
        raise InternalError(f"{arg!r} is the same at all positions along {over}")
    return found.rest, found.outer


class _Splitter:
    def __init__(self, op: str, over: Collection[str], moving: Collection[int]) -> None:
        self.product, self.quotient, self.unit = ("mul", "div", 1.0) if op == "sum" else ("add", "sub", 0.0)
        self.absorbing = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}[op]
        self.over = over
        self.moving = moving

    def split(self, node: Tensor) -> Split:
        if id(node) not in self.moving:
            return Split(node)
        if not varies(node, self.over):
            return Split(None, (Outer(node),))
        if is_transpose(node):
            return self.transposed(node)
        if not isinstance(node, Map):
            return Split(node)
        if node.op == self.product:
            return self.joined(node, *(self.split(a) for a in node.args))
        if node.op == self.quotient:
            left, right = (self.split(a) for a in node.args)
            turned = tuple(Outer(o.node, not o.inverse) for o in right.outer)
            return self.joined(node, left, Split(right.rest, turned))
        if node.op in ("cast", "neg"):
            return self.through(node)
        if node.op == "where":
            return self.chosen(node)
        if node.op == "pow" and self.product == "mul":
            return self.power(node)
        return Split(node)

    def joined(self, node: Map, left: Split, right: Split) -> Split:
        outer = left.outer + right.outer
        if not outer:
            return Split(node)
        a, b = left.rest, right.rest
        if b is None:
            return Split(a, outer)
        if a is None:
            if node.op == self.product:
                return Split(b, outer)
            return Split(elementwise("neg", b) if self.product == "add" else elementwise("div", Const(1.0), b), outer)
        return Split(elementwise(node.op, a, b), outer)

    def through(self, node: Map) -> Split:
        """A conversion to a float that is not narrow, and of a product its sign.

        A conversion to a half type keeps the scale below it: that may be what makes the values fit.
        """
        (source,) = node.args
        if node.op == "neg" and self.product == "add":
            return Split(node)  # it makes a minimum of the maximum
        if node.op == "cast" and (node.dtype.kind != "float" or node.dtype.bits < 32 or source.dtype.kind != "float"):
            return Split(node)
        below = self.split(source)
        if not below.outer:
            return Split(node)
        rest = Const(self.unit) if below.rest is None else below.rest
        if node.op == "neg":
            return Split(elementwise("neg", rest), below.outer)
        return Split(Map("cast", (rest,), rest.dims, node.dtype), below.outer)

    def chosen(self, node: Map) -> Split:
        """``where`` with the branch that adds nothing: the other branch's scale is that of the whole."""
        condition, *branches = node.args
        if id(condition) in self.moving:
            return Split(node)
        for i, branch in enumerate(branches):
            if isinstance(branch, Const) and branch.value == self.absorbing:
                below = self.split(branches[1 - i])
                if not below.outer:
                    return Split(node)
                branches[1 - i] = Const(self.unit) if below.rest is None else below.rest
                return Split(elementwise("where", condition, *branches), below.outer)
        return Split(node)

    def power(self, node: Map) -> Split:
        base, exponent = node.args
        if not (isinstance(exponent, Const) and float(exponent.value).is_integer() and exponent.value >= 1):
            return Split(node)
        below = self.split(base)
        if not below.outer:
            return Split(node)
        outer = tuple(Outer(elementwise("pow", o.node, exponent), o.inverse) for o in below.outer)
        return Split(elementwise("pow", Const(1.0) if below.rest is None else below.rest, exponent), outer)

    def transposed(self, node: Tensor) -> Split:
        (source,) = node.children()
        below = self.split(source)
        if not below.outer or below.rest is None:
            return Split(node) if not below.outer else below
        dims = tuple(d for d in node.dims if d in below.rest.dims)
        rest = below.rest
        return Split(rest if rest.dims == dims else At(rest, {}, dims, exact=True), below.outer)


def applied(total: Tensor, op: str, outer: tuple[Outer, ...], dims: tuple[str, ...]) -> Tensor:
    """``total`` with what was taken out, dims in the order of ``dims``: multiplied first, divided last."""
    direct, inverse = ("mul", "div") if op == "sum" else ("add", "sub")
    value = total
    for o in sorted(outer, key=lambda o: o.inverse):
        value = elementwise(inverse if o.inverse else direct, value, o.node)
    return value if value.dims == dims else At(value, {}, dims, exact=True)
