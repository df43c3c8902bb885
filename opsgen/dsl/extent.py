"""Extents of dims: integer expressions over the names of dims, known when a call is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Extent:
    """``op`` is ``"dim"`` (args: name), ``"const"`` (args: int) or ``"add"``, ``"mul"``, ``"floordiv"`` (args:
    extents).
    """

    op: str
    args: tuple[object, ...]

    @staticmethod
    def dim(name: str) -> Extent:
        """The extent of a dim, known when a call is made."""
        return Extent("dim", (name,))

    @staticmethod
    def const(value: int) -> Extent:
        """A number, known when the op is defined."""
        return Extent("const", (int(value),))

    @property
    def value(self) -> int | None:
        """The number, if the extent is a constant."""
        return int(self.args[0]) if self.op == "const" else None  # type: ignore[call-overload]

    def _binary(self, op: str, other: Extent | int) -> Extent:
        right = other if isinstance(other, Extent) else Extent.const(other)
        a, b = self.value, right.value
        if a is not None and b is not None and not (op == "floordiv" and b == 0):
            return Extent.const({"add": a + b, "mul": a * b, "floordiv": a // b if b else 0}[op])
        if op == "add" and a == 0:
            return right
        if op == "mul" and a == 1:
            return right
        if (op == "add" and b == 0) or (op in ("mul", "floordiv") and b == 1):
            return self
        return Extent(op, (self, right))

    def __add__(self, other: Extent | int) -> Extent:
        return self._binary("add", other)

    def __mul__(self, other: Extent | int) -> Extent:
        return self._binary("mul", other)

    def __floordiv__(self, other: Extent | int) -> Extent:
        return self._binary("floordiv", other)

    def names(self) -> set[str]:
        """The dims that the extent is made of."""
        if self.op == "dim":
            return {str(self.args[0])}
        if self.op == "const":
            return set()
        return set().union(*(a.names() for a in self.args if isinstance(a, Extent)))

    def substitute(self, values: Mapping[str, Extent]) -> Extent:
        """The extent with dims replaced."""
        if self.op == "dim":
            return values.get(str(self.args[0]), self)
        if self.op == "const":
            return self
        left, right = (a.substitute(values) for a in self.args if isinstance(a, Extent))
        return left._binary(self.op, right)

    def fold(
        self,
        leaf: Callable[[str], Value],
        const: Callable[[int], Value],
        binary: Callable[[str, Value, Value], Value],
    ) -> Value:
        """The extent in another representation: ``leaf(name)``, ``const(int)``, ``binary(op, a, b)``."""
        if self.op == "dim":
            return leaf(str(self.args[0]))
        if self.op == "const":
            return const(int(self.args[0]))  # type: ignore[call-overload]
        a, b = (x.fold(leaf, const, binary) for x in self.args if isinstance(x, Extent))
        return binary(self.op, a, b)

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """The number for given dims."""
        ops: dict[str, Callable[[int, int], int]] = {
            "add": lambda a, b: a + b,
            "mul": lambda a, b: a * b,
            "floordiv": lambda a, b: a // b if b else 0,
        }
        return self.fold(lambda n: dims[n], lambda v: v, lambda op, a, b: ops[op](a, b))

    def _factors(self) -> tuple[int, list[Extent]]:
        """As a product: the number in it, and the rest."""
        if self.value is not None:
            return self.value, []
        if self.op != "mul":
            return 1, [self]
        (a, left), (b, right) = (x._factors() for x in self.args if isinstance(x, Extent))
        return a * b, left + right

    def _without(self, divisor: Extent) -> Extent | None:
        """The other factors of a product that has ``divisor`` as a factor; None for one that has not."""
        number, rest = self._factors()
        by, gone = divisor._factors()
        for factor in gone:
            if factor not in rest:
                return None
            rest.remove(factor)
        if by == 0 or number % by:
            return None
        return _product(number // by, rest)

    def divided(self, divisor: Extent) -> Extent:
        """``self // divisor``, for a divisor that is positive and divides: (heads * head_dim) // head_dim is heads."""
        rest = self._without(divisor)
        return self // divisor if rest is None else rest

    def times(self, other: Extent) -> Extent:
        """``self * other``, where quotients come from divisions without a rest: (hidden // 64) * 64 is hidden."""
        product = self * other
        number, factors = product._factors()
        for i, factor in enumerate(factors):
            if factor.op != "floordiv":
                continue
            total, divisor = (a for a in factor.args if isinstance(a, Extent))
            rest = _product(number, factors[:i] + factors[i + 1 :])._without(divisor)
            if rest is not None:
                return total.times(rest)
        return product

    def __str__(self) -> str:
        symbols = {"add": "+", "mul": "*", "floordiv": "//"}
        text = self.fold(lambda n: n, str, lambda op, a, b: f"({a} {symbols[op]} {b})")
        return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _product(number: int, factors: list[Extent]) -> Extent:
    product = factors[0] if factors else Extent.const(1)
    for factor in factors[1:]:
        product = product * factor
    return product * number
