"""sympy expressions as nodes of the graph: what a derivation found, for the emitters to lower like all else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import sympy

from ..dsl import dtypes
from ..dsl.tensor import BITS, Const, Map, Tensor, elementwise

_FUNCTIONS = {
    sympy.exp: "exp", sympy.log: "log", sympy.tanh: "tanh", sympy.erf: "erf", sympy.sin: "sin", sympy.cos: "cos",
    sympy.Abs: "abs", sympy.floor: "floor", sympy.ceiling: "ceil",
}  # fmt: skip
_UNKNOWN = BITS | {"max", "min", "round", "floordiv", "mod"}


class NoForm(Exception):
    """An expression that the language has no words for."""


def tensor(expression: Any, nodes: Mapping[Any, Tensor]) -> Tensor:
    """The expression over the nodes that its symbols stand for. A part that occurs twice is one node.

    Raises:
        NoForm: a function in it has no counterpart.
    """
    return _Builder(nodes).build(expression)


class _Builder:
    def __init__(self, nodes: Mapping[Any, Tensor]) -> None:
        self.nodes = nodes
        self.made: dict[Any, Tensor] = {}

    def build(self, e: Any) -> Tensor:
        if e not in self.made:
            self.made[e] = self._build(e)
        return self.made[e]

    def _build(self, e: Any) -> Tensor:
        if e in self.nodes:
            return self.nodes[e]
        if e.is_number:
            return self._number(e)
        if isinstance(e, sympy.Add):
            return self._sum(e)
        if isinstance(e, sympy.Mul):
            return self._product(e)
        if isinstance(e, sympy.Pow):
            return self._power(e.base, e.exp)
        name = _FUNCTIONS.get(e.func)
        if name is None and isinstance(e, sympy.core.function.AppliedUndef):
            return self._unknown(e)
        if name is None:
            raise NoForm(str(e))
        return elementwise(name, *(self.build(a) for a in e.args))

    def _number(self, e: Any) -> Tensor:
        if e.is_Integer:
            return Const(float(e))
        if not e.is_real:
            raise NoForm(str(e))
        return Const(float(e))

    def _sum(self, e: Any) -> Tensor:
        """What is added before what is subtracted, so that no minus of its own is needed."""
        negative = [a for a in e.args if a.could_extract_minus_sign()]
        positive = [a for a in e.args if a not in negative]
        if not positive:
            return elementwise("neg", self.build(-e))
        value = reduce(lambda x, y: elementwise("add", x, y), (self.build(a) for a in positive))
        for a in negative:
            value = elementwise("sub", value, self.build(-a))
        return value

    def _product(self, e: Any) -> Tensor:
        above, below = [], []
        for a in e.args:
            if isinstance(a, sympy.Pow) and a.exp.is_Rational and a.exp.is_negative:
                below.append(1 / a)
            elif a.is_Rational and not a.is_Integer and abs(a.p) == 1:
                below.append(sympy.Integer(a.q))
                above += [sympy.Integer(-1)] if a.p < 0 else []
            else:
                above.append(a)
        minus = sympy.Integer(-1) in above
        above = [a for a in above if a != -1]
        value = reduce(lambda x, y: elementwise("mul", x, y), (self.build(a) for a in above or [sympy.Integer(1)]))
        if below:
            value = elementwise("div", value, reduce(lambda x, y: elementwise("mul", x, y), map(self.build, below)))
        return elementwise("neg", value) if minus else value

    def _power(self, base: Any, exponent: Any) -> Tensor:
        if base == 2 and not exponent.is_number:
            return elementwise("exp2", self.build(exponent))
        if exponent == sympy.Rational(1, 2):
            return elementwise("sqrt", self.build(base))
        if exponent == sympy.Rational(-1, 2):
            return elementwise("rsqrt", self.build(base))
        if exponent.is_Rational and exponent.is_negative:
            return elementwise("div", Const(1.0), self.build(base**-exponent))
        if exponent == 2:
            return elementwise("mul", self.build(base), self.build(base))
        return elementwise("pow", self.build(base), self.build(exponent))

    def _unknown(self, e: Any) -> Tensor:
        """What `to_sympy` left as an unknown function of its operands: an operation of the language, or a rounding."""
        name, args = e.func.__name__, [self.build(a) for a in e.args]
        if name in _UNKNOWN:
            return elementwise(name, *args)
        target = dtypes.as_dtype(name)
        if target is None or target.kind != "float":
            raise NoForm(str(e))
        return Map("cast", (args[0],), args[0].dims, target)
