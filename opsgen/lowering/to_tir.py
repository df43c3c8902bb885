"""The graph as TIR expressions: one emitter for loop nests, reductions and register epilogues alike.

A `Scope` is a place in a kernel where some dims have a position. ``scope.value(node)`` gives the node's value there,
computing what
is not at hand. Values that do not depend on a loop's position are computed outside of it, in the parent scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from ..dsl.dtypes import DType, compute_type
from ..dsl.tensor import BITS, At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor, common_type
from ..errors import InternalError
from . import instructions, vector_math
from .bits import bits, wide_product
from .narrow_floats import NARROW, Narrow
from .statements import Code, Expr, add, constant, i64, is_constant, known, mul

_INFINITY = {"float32": ("int32", 0x7FFFFFFF, 0x7F800000), "float64": ("int64", (1 << 63) - 1, 0x7FF << 52)}


def compute_name(dtype: DType) -> str:
    """The TIR type in which arithmetic on ``dtype`` is done."""
    return compute_type(dtype).name


def storage_name(dtype: DType) -> str:
    """The TIR type of ``dtype`` in memory. bfloat16 and float8 are moved as their bits: TVM widens internal bfloat16
    buffers silently, and has no float8 on x86.
    """
    if dtype.name in NARROW:
        return NARROW[dtype.name].storage
    return "uint8" if dtype.name == "bool" else dtype.name


def is_nan(x: Expr) -> Expr:
    """Whether a float is NaN, by its bits: TVM's simplifier takes ``x != x`` for false."""
    bits, magnitude, infinity = _INFINITY[x.ty.dtype]
    return (tirx.reinterpret(bits, x) & tirx.IntImm(bits, magnitude)) > tirx.IntImm(bits, infinity)


def extreme(op: str, a: Expr, b: Expr) -> Expr:
    """max or min of two numbers; a float NaN on either side wins."""
    dtype = a.ty.dtype
    if dtype.startswith("float"):
        return instructions.call({"max": "maximum", "min": "minimum"}[op], dtype, a, b)
    return tirx.Select(a >= b if op == "max" else a <= b, a, b)


@dataclass(eq=False)
class Memory:
    """Where a tensor lies: a buffer over its pointer, and an element stride for each of its dims.

    ``narrow``: how floats that are held as bits are converted.
    """

    name: str
    dims: tuple[str, ...]
    dtype: DType
    buffer: Any
    strides: Mapping[str, Expr]
    narrow: Mapping[str, Narrow] = field(default_factory=lambda: NARROW, kw_only=True)

    def offset(self, coords: Mapping[str, Expr]) -> Expr:
        total = i64(0)
        for d in self.dims:
            total = add(total, mul(coords[d], self.strides[d]))
        return total

    def load(self, coords: Mapping[str, Expr]) -> Expr:
        """The element at a position, in its compute type."""
        raw = tirx.BufferLoad(self.buffer, [self.offset(coords)])
        if self.dtype.name == "bool":
            return tirx.NE(raw, tirx.IntImm("uint8", 0))
        if self.dtype.name in self.narrow:
            return self.narrow[self.dtype.name].load(raw)
        name = compute_name(self.dtype)
        return raw if raw.ty.dtype == name else tirx.Cast(name, raw)

    def store(self, code: Code, coords: Mapping[str, Expr], value: Expr) -> None:
        """Stores a value of the compute type, rounding it to the type in memory."""
        if self.dtype.name == "bool":
            value = tirx.Select(value, tirx.IntImm("uint8", 1), tirx.IntImm("uint8", 0))
        elif self.dtype.name in self.narrow:
            value = self.narrow[self.dtype.name].round(_to(value, "float32"), code.bind)
        elif value.ty.dtype != self.dtype.name:
            value = tirx.Cast(self.dtype.name, value)
        code.store(self.buffer, value, self.offset(coords))


class Environment:
    """What a kernel has at hand: memory of inputs and stored nodes, scalars, extents, and values held in registers."""

    def __init__(
        self,
        elementary: Mapping[str, vector_math.Function] | None = None,
        wide: Mapping[str, vector_math.Function] | None = None,
    ) -> None:
        self.elementary = {**vector_math.FLOAT32, **(elementary or {})}
        """float32 functions: a target may have instructions for some."""
        self.wide = {**vector_math.FLOAT64, **(wide or {})}
        """float64 functions, likewise."""
        self.narrow: Mapping[str, Narrow] = NARROW
        """How floats that are held as bits are converted, likewise."""
        self.forms: dict[int, tuple[Tensor, vector_math.Function]] = {}
        """Of maps by id: a function, and the node that it is applied to, which give the map's value in another way."""
        self.strips: dict[int, tuple[Expr, Expr, Expr, int]] = {}
        """Of variables of positions by id: the variable, a start and an offset in [0, width) that it is the sum of, and
        the width, of which the start is a multiple."""
        self.choices: dict[int, int] = {}
        """Of maps by id: how many steps with a `Select` lie behind their variables, one after the other."""

    def extreme(self, op: str, a: Expr, b: Expr) -> Expr:
        """max or min of two numbers."""
        return extreme(op, a, b)

    def rounded(self, op: str, x: Expr) -> Expr:
        """floor, ceil or round (half to even)."""
        return {"floor": tirx.floor, "ceil": tirx.ceil, "round": tirx.round}[op](x)

    def power(self, a: Expr, b: Expr) -> Expr:
        """a^b of floats."""
        return tirx.pow(a, b)

    def wide_product(self, a: Expr, b: Expr) -> Expr:
        """All bits of the product of the lower halves of two int64, which are unsigned."""
        return wide_product(a, b)

    def extent(self, dim: str) -> Expr:
        raise NotImplementedError

    def scalar(self, node: Scalar) -> Expr:
        raise NotImplementedError

    def memory(self, node: Tensor) -> Memory | None:
        """Where the node lies in memory, if this kernel reads it from there."""
        raise NotImplementedError


_NO_CHOICE = BITS | {
    "bitcast",
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "cast",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "rsqrt",
    "pow",
}
_MOST_CHOICES = 3
_CHOICE = frozenset(
    {"where", "max", "min"}
)  # TVM 0.27 takes a product with one of these for one of integers, and fails

Held = Callable[[Mapping[str, Expr]], Expr | None]
"""A value in registers: the expression for it at a position, or None where it is not held for that."""


class Scope:
    """A place in a kernel where dims have positions; see the module."""

    def __init__(
        self,
        env: Environment,
        code: Code,
        coords: Mapping[str, Expr],
        parent: Scope | None = None,
        held: Mapping[int, Held] | None = None,
    ) -> None:
        self.env = env
        self.code = code
        self.coords: dict[str, Expr] = {**(parent.coords if parent else {}), **coords}
        self.parent = parent
        self.held: dict[int, Held] = dict(held or {})
        self.memo: dict[tuple[Any, ...], Expr] = {}

    def inner(self, code: Code, coords: Mapping[str, Expr], held: Mapping[int, Held] | None = None) -> Scope:
        """The scope of a loop inside this one."""
        return Scope(self.env, code, coords, self, held)

    def bind(self, value: Expr, name: str = "t") -> Expr:
        return self.code.bind(value, name)

    def value(self, node: Tensor, coords: Mapping[str, Expr] | None = None) -> Expr:
        """The node's value at the scope's position, or at other ``coords`` (all of its dims)."""
        if coords is None:
            coords = self.coords
        home = self._home(node, coords)
        if home is not self:
            return home.value(node, coords)
        key = (id(node), *(id(coords[d]) for d in node.dims))
        found = self.memo.get(key)
        if found is None:
            for operand in self._pending(node, coords):
                self.value(operand, coords)
            found = self._compute(node, coords)
            if not isinstance(node, (Const, Scalar, Index, Size)):
                found = self._bind_value(node, found)
            self.memo[key] = found
            self.memo[(*key, "keep")] = tuple(coords[d] for d in node.dims)  # ids stay taken
        return found

    def _pending(self, node: Tensor, coords: Mapping[str, Expr]) -> list[Tensor]:
        """The maps below a node that are still to be computed, operands first: a long chain of them would exhaust
        Python's stack if each asked for the one before."""
        order: list[Tensor] = []
        seen: set[int] = set()
        stack: list[tuple[Tensor, bool]] = [(node, False)]
        while stack:
            n, done = stack.pop()
            if done:
                order.append(n)
            elif isinstance(n, Map) and id(n) not in seen:
                seen.add(id(n))
                if not self._at_hand(n, coords):
                    stack.append((n, True))
                    form = self.env.forms.get(id(n))
                    stack.extend((a, False) for a in (reversed(n.args) if form is None else form[:1]))
        return order[:-1]

    def _at_hand(self, node: Tensor, coords: Mapping[str, Expr]) -> bool:
        """Whether the node's value needs no computing: it was computed, is held in registers or lies in memory."""
        if self._held(node) is not None or self.env.memory(node) is not None:
            return True
        return (id(node), *(id(coords[d]) for d in node.dims)) in self._home(node, coords).memo

    def value_in(self, node: Tensor, dtype: DType) -> Expr:
        """The node's value in the compute type of ``dtype``."""
        return _to(self.value(node), compute_name(dtype))

    def _bind_value(self, node: Tensor, value: Expr) -> Expr:
        """A variable with the value; for a choice, or a few steps that hold one, TVM cannot look through it."""
        if not isinstance(node, Map):
            return self.bind(value, node.name if isinstance(node, Input) else "t")
        choices = max((self.env.choices.get(id(a), 0) for a in node.args), default=0)
        choices += node.op not in _NO_CHOICE
        # Of divisions in a row, TVM copies each into every step of the next.
        apart = node.op in _CHOICE or node.op in ("floordiv", "mod") or choices >= _MOST_CHOICES or _is_hard(node)
        self.env.choices[id(node)] = 0 if apart else choices
        if not apart:
            return self.bind(value)
        if value.ty.dtype != "bool" or is_constant(value):
            return self.code.bind_apart(value)
        zero, one = constant(0, "uint8"), constant(1, "uint8")
        return tirx.NE(self.code.bind_apart(tirx.Select(value, one, zero)), zero)

    def _home(self, node: Tensor, coords: Mapping[str, Expr]) -> Scope:
        """The outermost scope in which all dims of the node have this position."""
        scope = self
        while scope.parent is not None and id(node) not in scope.held:
            outer = scope.parent
            if any(d not in outer.coords or outer.coords[d] is not coords[d] for d in node.dims):
                break
            scope = outer
        return scope

    def _held(self, node: Tensor) -> Held | None:
        scope: Scope | None = self
        while scope is not None:
            if id(node) in scope.held:
                return scope.held[id(node)]
            scope = scope.parent
        return None

    def _compute(self, node: Tensor, coords: Mapping[str, Expr]) -> Expr:
        held = self._held(node)
        found = None if held is None else held(coords)
        if found is not None:
            return found
        memory = self.env.memory(node)
        if memory is not None:
            return memory.load(coords)
        if isinstance(node, Const):
            return constant(node.value, compute_name(node.dtype))
        if isinstance(node, Scalar):
            return self.env.scalar(node)
        if isinstance(node, Index):
            return coords[node.dim]
        if isinstance(node, Size):
            return self.env.extent(node.dim)
        if isinstance(node, Map):
            return self._map(node, coords)
        if isinstance(node, At):
            return self.value(node.source, self._positions(node, coords))
        if isinstance(node, Concat):
            return self._concat(node, coords)
        if isinstance(node, (Reduce, Scan)):
            raise InternalError(f"{node!r} is neither stored nor held where it is used")
        raise InternalError(f"no TIR form of {node!r}")

    def _positions(self, node: At, coords: Mapping[str, Expr]) -> dict[str, Expr]:
        """Where a read of the source lands."""
        found = {d: coords[d] for d in node.source.dims if d not in node.coords}
        for dim, position in node.coords.items():
            at = self._position(position, coords) if node.exact else tirx.Cast("int64", self.value(position, coords))
            if not node.exact:
                last = self.env.extent(dim) - i64(1)
                at = tirx.Max(tirx.Min(at, last), i64(0))
            found[dim] = self.bind(at, "at")
        return found

    def _position(self, node: Tensor, coords: Mapping[str, Expr]) -> Expr:
        """A view's position, simplified; it is not negative, so division truncates."""
        if isinstance(node, Index):
            return coords[node.dim]
        if isinstance(node, Size):
            return self.env.extent(node.dim)
        if isinstance(node, Const):
            return i64(int(node.value))
        if isinstance(node, Map):
            a, b = (self._position(x, coords) for x in node.args)
            if node.op in ("floordiv", "mod") and known(b) == 1:
                return a if node.op == "floordiv" else i64(0)
            forms: dict[str, Callable[[Expr, Expr], Expr]] = {
                "add": add, "mul": mul, "floordiv": tirx.truncdiv, "mod": tirx.truncmod,
            }  # fmt: skip
            return forms[node.op](a, b)
        raise InternalError(f"{node!r} in the position of a view")

    def _concat(self, node: Concat, coords: Mapping[str, Expr]) -> Expr:
        """Each part is computed in a branch of its own: outside of its range its memory may not exist."""
        at = coords[node.dim]
        name = compute_name(node.dtype)
        slot = self.code.local("uint8" if name == "bool" else name, 1, "joined")
        joined = Memory("joined", (), node.dtype if name == "bool" else compute_type(node.dtype), slot, {})

        def take(scope: Scope, part: Tensor, dim: str, start: Expr) -> None:
            inside = {d: coords[d] for d in part.dims if d != dim}
            position = scope.bind(at if known(start) == 0 else at - start, dim)
            joined.store(scope.code, {}, _to(scope.value(part, {**inside, dim: position}), name))

        def choose(scope: Scope, parts: list[tuple[Tensor, str]], start: Expr) -> None:
            (part, dim), *others = parts
            if not others:
                take(scope, part, dim, start)
                return
            end = scope.bind(add(start, self.env.extent(dim)), "end")
            with scope.code.either(at < end) as (here, beyond):
                take(scope.inner(here, {}), part, dim, start)
                choose(scope.inner(beyond, {}), others, end)

        choose(self, list(zip(node.parts, node.part_dims, strict=True)), i64(0))
        return joined.load({})

    def _map(self, node: Map, coords: Mapping[str, Expr]) -> Expr:
        if id(node) in self.env.forms:
            argument, form = self.env.forms[id(node)]
            return form(self.bind(self.value(argument, {d: coords[d] for d in argument.dims})), self.bind)
        args = [self.value(a, {d: coords[d] for d in a.dims}) for a in node.args]
        op = node.op
        name = compute_name(node.dtype)
        if op == "cast":
            return self._cast(node.args[0], args[0], node.dtype)
        if op == "bitcast":
            x = _to(args[0], node.args[0].dtype.name)
            return x if x.ty.dtype == name else tirx.reinterpret(name, self.bind(x))
        if op == "where":
            return tirx.Select(args[0], _to(args[1], name), _to(args[2], name))
        if op in ("and", "or", "not"):
            return {"and": tirx.And, "or": tirx.Or, "not": tirx.Not}[op](*args)
        if op == "isnan":
            return is_nan(args[0]) if args[0].ty.dtype.startswith("float") else constant(False, "bool")
        if op in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self._compare(node, args)
        args = [_to(a, name) for a in args]
        if op in ("shift_right", "bit_and"):
            found = self._of_strip(node, coords)
            if found is not None:
                return found
        if op == "wide_product":
            return self.env.wide_product(*args)
        if op in BITS:
            return bits(op, args, self.code.bind_apart)
        if len(args) == 1:
            return self._unary(op, args[0], name)
        a, b = args
        if op in ("max", "min"):
            return self.env.extreme(op, a, b)
        if op == "div" and name == "float32":
            factors = self._inverse(node.args[1], coords)
            if factors is not None:
                return tirx.Mul(self.bind(tirx.Mul(a, factors[0])), factors[1])
        if op == "pow":
            return self._power(node, a, b, name)
        if op in ("floordiv", "mod"):
            return self._floor(op, a, b, name)
        # The node classes themselves: operators would fold x * 0 and x + 0, which are not the same for NaN and -0.
        return {"add": tirx.Add, "sub": tirx.Sub, "mul": tirx.Mul, "div": tirx.Div}[op](a, b)

    def _of_strip(self, node: Map, coords: Mapping[str, Expr]) -> Expr | None:
        """The upper or the lower bits of a position, from those of its start and its offset in a strip: compilers then
        see that the upper bits are the same for all of the strip, and compute once what is made of them."""
        position, number = node.args
        if not isinstance(position, Index) or not isinstance(number, Const) or number.value <= 0:
            return None
        _, start, offset, width = self.env.strips.get(id(coords[position.dim]), (None, None, None, 0))
        count = int(number.value)
        if node.op == "shift_right" and width and width % (1 << min(count, 30)) == 0:
            return tirx.Add(tirx.shift_right(start, i64(count)), tirx.shift_right(offset, i64(count)))
        if node.op == "bit_and" and width and count & (count + 1) == 0 and width % (count + 1) == 0:
            return tirx.bitwise_and(offset, i64(count))
        return None

    def _inverse(self, node: Tensor, coords: Mapping[str, Expr]) -> tuple[Expr, Expr] | None:
        """Two factors that divide by a value of an outer scope, if that value comes of a sum.

        A division takes ten to sixteen cycles a vector, and a sum's rounding hides that of the reciprocal (half an
        ulp). The first factor is a power of two that brings the divisor near 1, so that 0, infinity and NaN divide as
        they should, and the first product, which is nearly the quotient, overflows or loses digits only where that
        does: divisors below 1 are brought just below it, and a small product grows; others to 1 or above, and a large
        product shrinks.
        """
        home = self._home(node, coords)
        if home is self or not _comes_of_sum(node):
            return None
        key = (id(node), "inverse")
        if key not in home.memo:
            value = home.value(node, coords)
            if not value.ty.dtype.startswith("float32"):
                return None
            i32 = lambda v: constant(v, "int32")  # noqa: E731
            exponent = home.bind(tirx.reinterpret("int32", value) & i32(0x7F800000))
            below, above = i32(0x7E800000) - exponent, tirx.Max(i32(0x7F000000) - exponent, i32(0x00800000))
            scale = home.bind(tirx.reinterpret("float32", tirx.Select(exponent < i32(0x3F800000), below, above)))
            inverse = home.code.bind_apart(tirx.Div(constant(1, "float32"), tirx.Mul(value, scale)), "inverse")
            home.memo[key] = (scale, inverse)
        return home.memo[key]

    def _cast(self, source: Tensor, x: Expr, dtype: DType) -> Expr:
        name = compute_name(dtype)
        if dtype.name == "bool":
            return x if x.ty.dtype == "bool" else tirx.NE(x, constant(0, x.ty.dtype))
        if dtype.name == "float16":
            return tirx.Cast("float32", tirx.Cast("float16", _to(x, "float32")))
        if dtype.name in self.env.narrow:
            form = self.env.narrow[dtype.name]
            return form.load(self.bind(form.round(_to(x, "float32"), self.bind)))
        return _to(x, name)

    def _compare(self, node: Map, args: list[Expr]) -> Expr:
        common = common_type(node.args)[0]
        name = compute_name(common)
        if node.args[0] is node.args[1] and name.startswith("float") and node.op in ("eq", "ne"):
            nan = is_nan(_to(args[0], name))
            return nan if node.op == "ne" else tirx.Not(nan)
        if name == "bool":  # as numbers: TVM 0.27 compares bools by an instruction for floats, which LLVM refuses
            name = "int32"
        a, b = (_to(x, name) for x in args)
        if node.op == "ne" and name.startswith("float"):
            return tirx.Not(tirx.EQ(a, b))  # TVM's NE of floats is false for NaN
        forms = {"eq": tirx.EQ, "ne": tirx.NE, "lt": tirx.LT, "le": tirx.LE, "gt": tirx.GT, "ge": tirx.GE}
        return forms[node.op](a, b)

    def _unary(self, op: str, x: Expr, name: str) -> Expr:
        floating = name.startswith("float")
        if op == "neg":
            return tirx.Mul(x, constant(-1, name)) if floating else tirx.Sub(constant(0, name), x)
        if op == "abs":
            if floating:
                bits, magnitude, _ = _INFINITY[name]
                return tirx.reinterpret(name, tirx.reinterpret(bits, x) & tirx.IntImm(bits, magnitude))
            zero = constant(0, name)
            return x if name.startswith("uint") else tirx.Select(x < zero, tirx.Sub(zero, x), x)
        if op in ("floor", "ceil", "round"):
            return self.env.rounded(op, x)
        table = self.env.wide if name == "float64" else self.env.elementary
        return table[op](self.bind(x), self.bind)

    def _power(self, node: Map, a: Expr, b: Expr, name: str) -> Expr:
        exponent = node.args[1]
        floating = name.startswith("float")
        if isinstance(exponent, Const) and float(exponent.value).is_integer():
            n = abs(int(exponent.value))
            if n <= 8 or not floating:
                power: Expr = constant(1, name)
                while n:  # by squaring
                    if n % 2:
                        power = a if is_constant(power) else self.bind(tirx.Mul(power, a))
                    n //= 2
                    a = self.bind(tirx.Mul(a, a)) if n else a
                return power if exponent.value >= 0 else tirx.Div(constant(1, name), power)
        if not floating:
            raise InternalError("the DSL lets integers have constant powers only")
        return self.env.power(a, b)

    def _floor(self, op: str, a: Expr, b: Expr, name: str) -> Expr:
        if name.startswith("float"):
            a, b = self.bind(a), self.bind(b)
            quotient = self.bind(self.env.rounded("floor", tirx.Div(a, b)))
            found = quotient if op == "floordiv" else tirx.Sub(a, tirx.Mul(quotient, b))
            return self._floor_of_infinity(op, a, b, found)
        return self._floor_of_integers(op, a, b, name)

    def _floor_of_infinity(self, op: str, a: Expr, b: Expr, found: Expr) -> Expr:
        """``found`` with Python's answers for infinities: 3 % inf is 3, -3 % inf is inf, and inf // 3 is NaN."""
        name = a.ty.dtype
        bits, magnitude, infinity = _INFINITY[name]
        zero, limit = constant(0, name), tirx.IntImm(bits, infinity)
        size_a, size_b = (tirx.reinterpret(bits, x) & tirx.IntImm(bits, magnitude) for x in (a, b))
        if op == "floordiv":
            endless = tirx.And(tirx.EQ(size_a, limit), size_b > tirx.IntImm(bits, 0))
            found = tirx.Select(endless, constant(math.nan, name), found)
        if is_constant(b):
            return found
        meets = tirx.And(size_a < limit, tirx.EQ(size_b, limit))
        apart = tirx.Or(tirx.And(a < zero, b > zero), tirx.And(a > zero, b < zero))
        if op == "floordiv":
            return tirx.Select(meets, tirx.Select(apart, constant(-1, name), zero), found)
        return tirx.Select(meets, tirx.Select(apart, b, a), found)

    def _floor_of_integers(self, op: str, a: Expr, b: Expr, name: str) -> Expr:
        """Division rounded down. By 0 it gives 0, as in numpy; the CPU's would trap there, and for -2^63 // -1.

        Made of truncating division: TVM's floor division cannot be lowered where the same divisor is met in two ranges.
        """
        signed = not name.startswith("uint")
        zero, one, minus = constant(0, name), constant(1, name), constant(-1 if signed else 1, name)
        if known(b) not in (None, 0, -1):
            divisor: Expr = b
        else:
            b = self.bind(b)
            divisor = self.bind(tirx.Select(tirx.Or(b == zero, b == minus), one, b))
        a = self.bind(a)
        quotient = self.bind(tirx.truncdiv(a, divisor))
        rest = self.bind(tirx.Sub(a, tirx.Mul(quotient, divisor)))
        if not signed:
            found = quotient if op == "floordiv" else rest
        else:
            below = tirx.And(rest != zero, (rest ^ divisor) < zero)
            if op == "floordiv":
                found = tirx.Select(below, tirx.Sub(quotient, one), quotient)
            else:
                found = tirx.Select(below, tirx.Add(rest, divisor), rest)
        if divisor is b:
            return found
        if op == "mod":
            return tirx.Select(divisor == b, found, zero)
        by_minus_one = tirx.Sub(zero, a) if signed else found
        return tirx.Select(b == zero, zero, tirx.Select(b == minus, by_minus_one, found))


def _comes_of_sum(node: Tensor) -> bool:
    """Whether a sum is among what the value is computed from in the same group or before."""
    stack, seen = [node], set[int]()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if isinstance(n, Reduce):
            if n.op == "sum" and n.dtype.kind == "float":
                return True
        elif isinstance(n, Map):
            stack.extend(n.args)
    return False


def _is_hard(node: Map) -> bool:
    """Whether TVM's analysis of the value takes long or fails, so that what uses it must not see through it.

    Elementary functions hold several choices. And TVM 0.27 makes an interval of a float product with a converted
    integer, which ends in "IntImm supports only int or uint or bool type".
    """
    if node.op in vector_math.FLOAT32:
        return True
    return node.dtype.kind == "float" and any(a.dtype.kind in ("int", "uint") for a in node.args)


def _to(x: Expr, name: str) -> Expr:
    have = x.ty.dtype
    if have == name:
        return x
    if is_constant(x):
        return constant(x.value, name)
    if have == "bool":
        return tirx.Select(x, constant(1, name), constant(0, name))
    return tirx.Cast(name, x)
