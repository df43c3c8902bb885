"""Extents of dims: integer expressions over the names of dims, known when a call is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Extent:
    """``op`` is ``"dim"`` (args: name), ``"const"`` (args: int) or ``"add"``, ``"mul"``, ``"floordiv"`` (args: extents)."""

    op: str
    args: tuple[object, ...]

    @staticmethod
    def dim(name: str) -> Extent:
        return Extent("dim", (name,))

    @staticmethod
    def const(value: int) -> Extent:
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

    def __str__(self) -> str:
        symbols = {"add": "+", "mul": "*", "floordiv": "//"}
        text = self.fold(lambda n: n, str, lambda op, a, b: f"({a} {symbols[op]} {b})")
        return text[1:-1] if text.startswith("(") and text.endswith(")") else text
