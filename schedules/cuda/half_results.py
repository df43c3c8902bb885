"""Functions for epilogues whose results are rounded to a half type: fewer instructions than CUDA's own.

Each stays within 2^-17 of its value, or says less for bfloat16, which has 8 bits: a rounding does not show that. Sums
of one and a tanh or an erf are computed as one function: unlike the sum, it loses no digit where it is small. So is
such a sum times its argument, which is what GELU is.

    1 + tanh(u) = 2 / (1 + e^-2u), u a polynomial of the argument where it is one
    1 + erf(u)  = erfc(-u);  erfc(z) = t (c0 + c1 t + … + c5 t^5) e^-z²,  t = 1 / (1 + p z),  z ≥ 0
    y (1 + erf(y / √2)) / 2 = max(y, 0) - z Φ(-z),  z = |y|;  Φ(-z) = 2^(a0 + a1 z + …)

The power is what counts: a chip at its limit slows down with every instruction. Linear+GELU with CUDA's erff (26
instructions more than the bias alone) took 243 µs instead of 190 (16384×4096×1024, bfloat16, H200).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest

from tvm.script import tirx as T

from opsgen.dsl.tensor import Const, Map, Tensor
from opsgen.lowering.statements import Expr
from opsgen.lowering.to_tir import Held, Scope
from opsgen.lowering.vector_math import Function

from .gates import gate, one_plus
from .hopper import device_function

_LOG2_E = 1.4426950408889634

# Fitted for the relative error over 0 ≤ z ≤ 9 (least squares, reweighted until the largest error was least: 3.7e-6).
ERFC_P = 0.435
ERFC = (
    0.24595586125612898, 0.23699752016997966, 0.2748430266520236, 0.010134484165087249, 0.38379934898289786,
    -0.15173389079134475,
)  # fmt: skip


@dataclass(frozen=True)
class LogNormal:
    """log2 Φ(-z) as a polynomial in z for 0 ≤ z ≤ ``most``, fitted as above."""

    most: float
    coefficients: tuple[float, ...]


LOG_NORMAL = {
    # 3.3e-6. From 6 on what GELU subtracts is less than half of the smallest number of float16.
    "float16": LogNormal(6.0, (
        -0.9999952946347694, -1.1512510442569195, -0.4584643950432936, -0.053960067476543194, 0.008507890122465339,
        -0.0009305246495184242, 6.1598269303863e-05, -1.8348102533845413e-06,
    )),
    # 3.2e-4 up to 6, 1.1e-3 at 10, where GELU is 8e-23, and 2.6e-3 at 13, where it is 1e-37: half a bit of bfloat16 is
    # 2e-3 at least. With a term more, for 6.7e-5, and the bias read for each patch, linear+GELU took 1.5 % more time.
    "bfloat16": LogNormal(13.0, (
        -1.0004554411530688, -1.145979148959475, -0.46842063027310193, -0.046863850108518984,
        0.006076953273386839, -0.0004974925799070347, 2.272270753901252e-05, -4.374819857800386e-07,
    )),
}  # fmt: skip

_FAST = """
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"({power}));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"({divisor}));
"""


def _horner(coefficients: Iterable[float], x: str) -> str:
    found = ""
    for c in reversed(tuple(coefficients)):
        found = f"fmaf({found}, {x}, {c!r}f)" if found else f"{c!r}f"
    return found


_SIGMOID = device_function(
    "og_half_sigmoid", "float", "float x", _FAST.format(power=f"x * {-_LOG2_E!r}f", divisor="1.0f + e") + "return r;"
)
_ONE_PLUS_TANH = device_function(
    "og_half_one_plus_tanh",
    "float",
    "float u",
    _FAST.format(power=f"u * {-2 * _LOG2_E!r}f", divisor="fmaf(e, 0.5f, 0.5f)") + "return r;",
)
_ONE_PLUS_ERF = device_function(
    "og_half_one_plus_erf",
    "float",
    "float u",
    _FAST.format(power=f"u * u * {-_LOG2_E!r}f", divisor=f"fmaf(fabsf(u), {ERFC_P!r}f, 1.0f)")
    + f"float y = {_horner(ERFC, 'r')} * (r * e); return u < 0.0f ? y : 2.0f - y;",
)


def _number(*values: float) -> str:
    """Numbers as part of a name."""
    return "_".join(struct.pack(">f", v).hex() for v in values)


def _times_one_plus_erf(k: float, c: float, dtype: str) -> str:
    """k y (1 + erf(c y)) of y, for positive k and c."""
    fit, scale = LOG_NORMAL[dtype], c * math.sqrt(2)
    coefficients = [a * scale**i for i, a in enumerate(fit.coefficients)]
    coefficients[0] += math.log2(2 * k)
    # Of the maximum of a NaN and 0 the NaN is wanted. Past the end z stays: infinity times 0 would be NaN.
    body = f"""
  float z = fminf(fabsf(y), {fit.most / scale!r}f), e, large;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"({_horner(coefficients, "z")}));
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(large) : "f"(y), "f"(0.0f));
  return fmaf(-z, e, large{"" if k == 0.5 else f" * {2 * k!r}f"});
"""
    return device_function(f"og_half_gated_erf_{dtype}_{_number(k, c)}", "float", "float y", body)


def _times_one_plus_tanh(k: float, c: float) -> str:
    """k y (1 + tanh(c u)) of y and u."""
    body = _FAST.format(power=f"u * {-2 * _LOG2_E * c!r}f", divisor="1.0f + e") + _times_r(k)
    return device_function(f"og_half_gated_tanh_{_number(k, c)}", "float", "float y, float u", body)


def _times_one_plus_tanh_of(k: float, odd: tuple[float, ...]) -> str:
    """k y (1 + tanh(y (c0 + c1 y² + …))) of y."""
    power = f"y * ({_horner([-2 * _LOG2_E * c for c in odd], 'y * y')})"
    body = _FAST.format(power=power, divisor="1.0f + e") + _times_r(k)
    return device_function(f"og_half_gated_tanh_of_{_number(k, *odd)}", "float", "float y", body)


def _times_r(k: float) -> str:
    return "return y * r" + ("" if k == 0.5 else f" * {2 * k!r}f") + ";"


Form = Callable[..., Expr]
"""What is computed of the values of some operands."""


def _call(source: str) -> Form:
    name = source.partition("(")[0].split()[-1]
    return lambda *values: T.cuda.func_call(name, *values, source_code=source, return_type="float32")


FUNCTIONS: dict[str, Function] = {"sigmoid": lambda x, bind: _call(_SIGMOID)(x)}


@dataclass(frozen=True)
class Fused:
    """A node of a graph that is computed as one function of ``operands``."""

    node: Tensor
    operands: tuple[Tensor, ...]
    form: Form

    def held(self, scope: Scope) -> Held:
        """The value, for a scope that holds it."""
        return lambda _: scope.bind(self.form(*[scope.bind(scope.value(x)) for x in self.operands]))


def fused(node: Tensor, dtype: str) -> Fused | None:
    """The function that a node is, if it is one. ``dtype``: of the results."""
    if not isinstance(node, Map) or node.dtype.kind != "float" or node.dtype.bytes > 4:
        return None
    if node.op == "mul":
        return _gated(node, dtype)
    found = one_plus(node)
    return (
        None
        if found is None
        else Fused(node, found.args, _call({"tanh": _ONE_PLUS_TANH, "erf": _ONE_PLUS_ERF}[found.op]))
    )


def _gated(node: Map, dtype: str) -> Fused | None:
    """k y (1 + f(u)), f erf or tanh."""
    found = gate(node)
    if found is None:
        return None
    k, y, c = found.factor, found.value, found.scale
    if found.function == "erf":
        whole = found.inner is y and c > 0 and k > 0
        return Fused(node, (y,), _call(_times_one_plus_erf(k, c, dtype))) if whole else None
    terms = polynomial(found.argument, y)
    if terms is not None and not any(terms[::2]) and any(terms):
        return Fused(node, (y,), _call(_times_one_plus_tanh_of(k, terms[1::2])))
    return Fused(node, (y, found.inner), _call(_times_one_plus_tanh(k, c)))


_DEGREE = 5


def polynomial(node: Tensor, y: Tensor) -> tuple[float, ...] | None:
    """The coefficients, from that of 1 on, of a node that is a polynomial of another, of no high degree."""
    if node is y:
        return 0.0, 1.0
    if isinstance(node, Const):
        return (float(node.value),)
    if not isinstance(node, Map) or node.op not in ("add", "mul"):
        return None
    a, b = (polynomial(x, y) for x in node.args)
    if a is None or b is None:
        return None
    if node.op == "add":
        return tuple(sum(pair) for pair in zip_longest(a, b, fillvalue=0.0))
    if len(a) + len(b) - 2 > _DEGREE:
        return None
    return tuple(sum(a[i] * b[n - i] for i in range(len(a)) if 0 <= n - i < len(b)) for n in range(len(a) + len(b) - 1))
