"""The graph in sympy: what the maps of an expression compute, over one symbol for each leaf.

Leaves are inputs, scalars, positions, sizes, reads at other positions, scans and reductions. All are real numbers:

- conversions that keep the value up to rounding are dropped; proofs are about exact arithmetic;
- a condition that does not depend on the reductions in question is a symbol c that is 0 or 1, and
  ``where(c, a, b)`` is c·a + (1 - c)·b, so that a masked exponential separates; with an infinity in a branch it stays a
  `Choice`, which maps are applied to branch by branch, or one symbol, where nothing in it depends on a reduction;
- what sympy has no form for is an unknown function of its operands;
- constants that are no small fractions are symbols of known sign: sympy's floats round.

sympy is imported with this module: who needs it only sometimes imports it late.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import sympy
from sympy.printing.precedence import PRECEDENCE, precedence
from sympy.printing.str import StrPrinter

from ..analysis.dependence import dependent, inside
from ..analysis.groups import is_transpose
from ..analysis.numbering import Numbering
from ..dsl.tensor import At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor
from ..errors import InternalError

Expr = Any
"""A sympy expression."""

LARGEST_LEAF = 48
"""How many maps of what depends on no reduction are looked into. Larger ones are a leaf: sympy's time grows with them,
and what separates is rarely hidden in them."""


class Choice(NamedTuple):
    """``then`` where the 0/1 symbol is 1, else ``otherwise``; at least one of them is infinite."""

    condition: Expr
    then: Any
    otherwise: Any


Value = Any
"""An expression, or a `Choice` between two values."""


class Symbols:
    """The symbols of an analysis: one for each leaf, under a name of its own.

    ``nodes`` gives the node that a symbol stands for, constants among them; ``bits`` are those that are 0 or 1.
    """

    def __init__(self) -> None:
        self.numbering = Numbering()
        self.nodes: dict[Expr, Tensor] = {}
        self.bits: set[Expr] = set()
        self._names: set[str] = set()
        self._made: dict[object, Expr] = {}

    def place(self, node: Tensor, name: str, **assumptions: bool) -> Expr:
        """A symbol for a node under a name that the caller keeps unique: a reduction of the chain in question."""
        found = self._made.get(self.numbering.of(node))
        return self._make(self.numbering.of(node), node, name, assumptions) if found is None else found

    def leaf(self, node: Tensor) -> Expr:
        """The symbol of a node that is looked no further into."""
        number = self.numbering.of(node)
        if number in self._made:
            return self._made[number]
        assumptions = {"real": True}
        if node.dtype.kind in ("uint", "bool") or isinstance(node, Index):
            assumptions = {"nonnegative": True}
        elif isinstance(node, Size):  # of no positions there is nothing to reduce
            assumptions = {"positive": True}
        found = self._make(number, node, self._free(_name(node)), assumptions)
        if node.dtype.kind == "bool":
            self.bits.add(found)
        return found

    def number(self, node: Const) -> Expr:
        """A constant, exactly: as a number where it prints as one, else as a symbol of its sign."""
        value = node.value
        if isinstance(value, (bool, int)):
            return sympy.Integer(int(value))
        if math.isnan(value):
            return sympy.nan
        if math.isinf(value):
            return sympy.oo if value > 0 else -sympy.oo
        if value.is_integer() and abs(value) < 2**20:
            return sympy.Integer(int(value))
        if (value * 64).is_integer() and abs(value) < 2**10:
            return sympy.Rational(value)
        key = ("number", value)
        found = self._made.get(key)
        return self._make(key, node, repr(value), {_sign(value): True}) if found is None else found

    def _make(self, key: object, node: Tensor, name: str, assumptions: Mapping[str, bool]) -> Expr:
        symbol = sympy.Symbol(name, **assumptions)
        self._names.add(name)
        self._made[key] = symbol
        self.nodes[symbol] = node
        return symbol

    def _free(self, name: str) -> str:
        """``name``, or the first of name_2, name_3, …; r1, r2, … are the chain's own."""
        if re.fullmatch(r"r\d+(_old|_new)?", name):
            name += "_"
        candidate, n = name, 1
        while candidate in self._names:
            n += 1
            candidate = f"{name}_{n}"
        return candidate


def _sign(value: float) -> str:
    return "positive" if value > 0 else "negative"


def _name(node: Tensor) -> str:
    if isinstance(node, (Input, Scalar)):
        return node.name
    if isinstance(node, Index):
        return node.dim
    if isinstance(node, Size):
        return f"n_{node.dim}"
    if isinstance(node, At):
        return _name(node.source) if is_transpose(node) else f"{_name(node.source)}_at"
    if isinstance(node, Reduce):
        return "_".join((node.op, *node.over))
    if isinstance(node, Scan):
        return f"running_{node.op}_{node.over}"
    if isinstance(node, Concat):
        return f"joined_{node.dim}"
    return "c" if node.dtype.kind == "bool" else "t"


_FORMS: dict[str, Callable[..., Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "neg": lambda a: -a,
    "abs": sympy.Abs,
    "exp": sympy.exp,
    "exp2": lambda a: sympy.Integer(2) ** a,
    "log": sympy.log,
    "log1p": lambda a: sympy.log(1 + a),
    "sqrt": sympy.sqrt,
    "rsqrt": lambda a: a ** sympy.Rational(-1, 2),
    "tanh": sympy.tanh,
    "erf": sympy.erf,
    "sigmoid": lambda a: 1 / (1 + sympy.exp(-a)),
    "sin": sympy.sin,
    "cos": sympy.cos,
    "floor": sympy.floor,
    "ceil": sympy.ceiling,
}


_ORDERED: dict[str, Callable[[Expr, Expr], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


class Printer(StrPrinter):
    """sympy's printer with what is added before what is subtracted: r1_old - r1_new."""

    def _print_Add(self, e: Expr, order: str | None = None) -> str:
        terms = sorted(self._as_ordered_terms(e, order=order), key=lambda t: bool(t.could_extract_minus_sign()))
        text = ""
        for t in terms:
            part = self._print(t)
            part = f"({part})" if precedence(t) < PRECEDENCE["Add"] else part
            sign = " - " if part.startswith("-") else " + "
            text += sign + part.removeprefix("-") if text else part
        return text


def text(e: Expr) -> str:
    """An expression for reading."""
    return str(Printer().doprint(e))


def unknown(name: str, *args: Expr) -> Expr:
    """An unknown real function of its operands."""
    return sympy.Function(name, real=True)(*args)


class Lowering:
    """Nodes as expressions. ``moving`` are the reductions in question: what depends on none of them is fixed.

    ``values`` puts expressions in the place of nodes, by their number.
    """

    def __init__(
        self, symbols: Symbols, moving: Collection[Tensor] = (), values: Mapping[int, Expr] | None = None
    ) -> None:
        self.symbols = symbols
        self.moving = moving
        self.values: dict[int, Value] = dict(values or {})

    def value(self, root: Tensor) -> Value:
        """The node's expression, or a choice between several."""
        depends = dependent(root, self.moving)
        order = inside(root)
        large = _large(order)
        number = self.symbols.numbering.of
        wanted: set[int] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if id(node) not in wanted:
                wanted.add(id(node))
                if not self._is_leaf(node, id(node) not in depends, large):
                    stack.extend(node.children())
        for node in order:
            if id(node) in wanted and number(node) not in self.values:
                fixed = id(node) not in depends
                leaf = self._is_leaf(node, fixed, large)
                self.values[number(node)] = self.symbols.leaf(node) if leaf else self._value(node, fixed)
        return self.values[number(root)]

    def _is_leaf(self, node: Tensor, fixed: bool, large: Collection[int]) -> bool:
        if not (isinstance(node, Map) or is_transpose(node)):
            return not isinstance(node, Const)
        return fixed and id(node) in large

    def _value(self, node: Tensor, fixed: bool) -> Value:
        if isinstance(node, Const):
            return self.symbols.number(node)
        if fixed and node.dtype.kind == "bool":
            return self.symbols.leaf(node)
        if isinstance(node, Map):
            args = [self.values[self.symbols.numbering.of(a)] for a in node.args]
            if node.op == "where" and fixed and args[0] in self.symbols.bits and any(map(_infinite, args[1:])):
                return self.symbols.leaf(node)
            return self._apply(node, args)
        raise InternalError(f"no sympy form of {node!r}")  # a transpose has its source's number

    def _apply(self, node: Map, args: list[Value]) -> Value:
        if node.op == "where" and (args[0] in self.symbols.bits or args[0].is_number):
            return choose(*args)
        for i, a in enumerate(args):
            if isinstance(a, Choice):
                then, otherwise = (self._apply(node, [*args[:i], b, *args[i + 1 :]]) for b in (a.then, a.otherwise))
                return choose(a.condition, then, otherwise)
        if node.op == "cast":
            return self._cast(node, args[0])
        if node.op in _ORDERED and all(a.is_extended_real for a in args) and any(a.is_infinite for a in args):
            return sympy.Integer(bool(_ORDERED[node.op](*args)))  # a symbol is finite: m == -inf does not hold
        form = _FORMS.get(node.op)
        return unknown(node.op, *args) if form is None else form(*args)

    def _cast(self, node: Map, value: Expr) -> Expr:
        """Rounding is dropped, but for a value of the reductions alone: exp(x - half(m)) is repaired by half(m) too."""
        (source,) = node.args
        kind = node.dtype
        if kind.kind == "float":
            alone = value.free_symbols and not value.free_symbols.isdisjoint(self._moving())
            if kind.bits < 32 and alone and all(self._is_fixed_or_moving(s) for s in value.free_symbols):
                return unknown(kind.name, value)
            return value
        if source.dtype.kind == "bool" or (kind.kind == source.dtype.kind == "int" and kind.bits >= source.dtype.bits):
            return value
        return unknown(kind.name, value)

    def _moving(self) -> set[Expr]:
        return {self.symbols.leaf(n) for n in self.moving}

    def _is_fixed_or_moving(self, symbol: Expr) -> bool:
        """Whether a symbol's value is the same at all positions that the reductions run over."""
        over = {d for n in self.moving if isinstance(n, Reduce) for d in n.over}
        return over.isdisjoint(self.symbols.nodes[symbol].dims)


def choose(condition: Expr, then: Value, otherwise: Value) -> Value:
    """``then`` where the 0/1 condition is 1: an expression if both are finite."""
    if condition == 1 or then == otherwise:
        return then
    if condition == 0:
        return otherwise
    if _infinite(then) or _infinite(otherwise):
        return Choice(condition, then, otherwise)
    return condition * then + (1 - condition) * otherwise


def _large(order: Collection[Tensor]) -> set[int]:
    """The ids of nodes that have many maps below them, each counted as often as it is used; operands come first."""
    maps: dict[int, int] = {}
    for node in order:
        inner = isinstance(node, Map) or is_transpose(node)
        maps[id(node)] = min(LARGEST_LEAF + 1, 1 + sum(maps[id(c)] for c in node.children())) if inner else 0
    return {i for i, n in maps.items() if n > LARGEST_LEAF}


def _infinite(value: Value) -> bool:
    return isinstance(value, Choice) or value.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan)
