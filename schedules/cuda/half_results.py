"""Functions for epilogues whose results are rounded to a half type: fewer instructions than CUDA's own.

Each stays within 2^-17 of its value, which a rounding to 11 bits or fewer does not show. Sums of one and a tanh or an
erf, which is what GELU has of them, are computed as one function: unlike the sum, it loses no digit where it is small.

    1 + tanh(u) = 2 / (1 + e^-2u)
    1 + erf(u)  = erfc(-u);  erfc(z) = t (c0 + c1 t + … + c5 t^5) e^-z²,  t = 1 / (1 + p z),  z ≥ 0

The power is what counts: a chip at its limit slows down with every instruction. Linear+GELU with CUDA's erff (26
instructions more than the bias alone) took 243 µs instead of 190 (16384×4096×1024, bfloat16, H200).
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm.script import tirx as T

from opsgen.dsl.tensor import Const, Map, Tensor
from opsgen.lowering.statements import Expr
from opsgen.lowering.vector_math import Bind, Function

from .hopper import device_function

_LOG2_E = 1.4426950408889634

# Fitted for the relative error over 0 ≤ z ≤ 9 (least squares, reweighted until the largest error was least: 3.7e-6).
ERFC_P = 0.435
ERFC = (
    0.24595586125612898, 0.23699752016997966, 0.2748430266520236, 0.010134484165087249, 0.38379934898289786,
    -0.15173389079134475,
)  # fmt: skip

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
    _FAST.format(power=f"u * {-2 * _LOG2_E!r}f", divisor="1.0f + e") + "return r + r;",
)
_ONE_PLUS_ERF = device_function(
    "og_half_one_plus_erf",
    "float",
    "float u",
    _FAST.format(power=f"u * u * {-_LOG2_E!r}f", divisor=f"fmaf(fabsf(u), {ERFC_P!r}f, 1.0f)")
    + f"float y = {_horner(ERFC, 'r')} * (r * e); return u < 0.0f ? y : 2.0f - y;",
)


def _call(name: str, source: str) -> Function:
    return lambda x, bind: T.cuda.func_call(name, x, source_code=source, return_type="float32")


FUNCTIONS: dict[str, Function] = {"sigmoid": _call("og_half_sigmoid", _SIGMOID)}
_SUMS: dict[str, Function] = {
    "tanh": _call("og_half_one_plus_tanh", _ONE_PLUS_TANH),
    "erf": _call("og_half_one_plus_erf", _ONE_PLUS_ERF),
}


COSTLY = frozenset({"exp", "exp2", "log", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "pow"})
"""Maps whose time shows beside that of the products."""


def one_plus(node: Tensor) -> tuple[Tensor, Function] | None:
    """Of a sum of one and a function that has a form of its own with it: the function's argument, and the form."""
    if not isinstance(node, Map) or node.op != "add" or node.dtype.kind != "float" or node.dtype.bytes > 4:
        return None
    for one, other in (node.args, node.args[::-1]):
        if isinstance(one, Const) and one.value == 1 and isinstance(other, Map) and other.op in _SUMS:
            return other.args[0], _SUMS[other.op]
    return None


def compute(form: Function, x: Expr, bind: Bind) -> Expr:
    """The form's value."""
    return bind(form(bind(x), bind))
