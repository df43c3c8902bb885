"""Elementary functions as TIR expressions that stay vector code in a `ForKind.VECTORIZED` loop.

`tirx.exp`, `tirx.erf` and their like become one libm call per lane. The float32 functions below are made of arithmetic,
`Select`, `round`, `sqrt` and integer operations on the bits, which LLVM keeps in ymm or zmm registers.

    function  largest error found (ulp)  bound that the tests hold it to
    exp       0.894                      0.9
    exp2      0.952                      1.0
    log       1.162                      1.2
    log1p     1.792                      1.8
    tanh      3.328                      3.4
    erf       3.462                      3.5
    sigmoid   2.402                      2.5
    sqrt      0.500                      0.5
    rsqrt     1.490                      1.5
    sin       1.535                      1.6
    cos       1.516                      1.6

How found: against float64 (torch), in units of the last place of the float32 result, with FMA: every 61st of all 2^32
patterns of bits, and for all but sin and cos every float32 with 2^-12 <= |x| < 2^8 (for tanh and erf only x > 0).
x86-64-v3 and v4 give the same bits; without FMA (x86-64-v2) exp and exp2 were seen to reach 1.03 and 1.13.
tests/lowering/test_vector_math.py repeats it on a coarser grid and near every threshold. NaN gives NaN; infinities,
signed zeros, denormal arguments and denormal results are right; tanh, erf, sin and cos never leave [-1, 1], nor
sigmoid [0, 1].

Each function takes `(x, bind)`. `bind(expr)` must emit a `tirx.Bind` of a fresh variable before the statement that uses
the result, and return that variable.

Three properties of TVM 0.27 shaped the code:

* a * b + c is lowered to llvm.fmuladd, and LLVM's code generator fuses what is left (c - a * b, also through a `Bind`):
  every target that has FMA uses it, with no option. So never rely on a product being rounded.
* Its simplifier computes with real numbers: (x + c) - c becomes x, x - x and x * 0 become 0, x != x becomes false, and
  under `Select(x >= 0, ...)` it takes "not x >= 0" for "x < 0", which drops NaN. Hence `reinterpret` in the middle of
  `_round_to_exponent`, and comparisons of bit patterns wherever NaN may come.
* It scalarises a statement that holds an extern call by a loop around that statement alone, and a `Bind` goes out of
  scope ("variables are used, but are not passed in"). `NEEDS_SERIAL_LOOP` names the float64 functions that meet this.
"""

import math
from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr

Bind = Callable[[Expr], Expr]
Function = Callable[[Expr, Bind], Expr]

# Added and subtracted, this rounds a float32 below 2^21 to an integer, which then stands in the low mantissa bits.
ROUND = 1.5 * 2.0**23
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693145751953125  # 15 bits: its product with any n that occurs is exact, with FMA or without
LN2_LOW = math.log(2.0) - LN2_HIGH

_INFINITY_BITS = 0x7F800000
_MAGNITUDE_BITS = 0x7FFFFFFF
SIGN_BIT = -(2**31)
_EXPONENT_BITS = -(2**23)  # and the sign: what an arithmetic shift by 23 keeps
_SQRT_HALF_BITS = 0x3F3504F3

# Minimax coefficients (Remez exchange in 40 digits, relative error), lowest power first.
# e^r = 1 + r + r^2 q(r), |r| <= ln(2)/2: 3.1e-9
EXP = (0.499999934485, 0.166665206296, 0.0416683878554, 0.00836871708124, 0.00138146101453)
# 2^f = 1 + f q(f), |f| <= 1/2: 2.0e-9
EXP2 = (0.693147202855, 0.240226479137, 0.0555033247115, 0.00961843735335, 0.00133988744252, 0.000153533627087)
# log(1 + f) = f - f^2/2 + f^3 q(f), sqrt(1/2) <= 1 + f <= sqrt(2): 3.2e-8
_LOG = (
    0.333339106737, -0.250013371528, 0.199630669044, -0.165775822619, 0.149147311311, -0.142674989868, 0.087005611496,
)  # fmt: skip
# e^2r - 1 = r (2 + r q(r)), |r| <= ln(2)/4: 1.3e-8
EXPM1_2R = (1.99999992616, 1.33332348969, 0.666675197525, 0.26772865844, 0.0888481429377)
# 2^f - 1 = f q(f), |f| <= 1/2, relative to 2^f - 1 (EXP2 is relative to 2^f): 1.1e-8
_EXP2M1 = (0.693147187936, 0.240226497939, 0.0555035739092, 0.00961823758398, 0.00133907583601, 0.000154035115562)
# -log2(1 - erf(t)) = t p(t), 0 <= t <= 3.95, relative error of the erf that comes of it: 3.6e-8
_ERF = (
    1.627907086244, 0.9184434625569, 0.1483298444749, -0.02787535972556,
    0.0002968121643118, 0.001805866501266, -0.0005496588516337, 5.872776613724e-5,
)  # fmt: skip
# sin(r) = r + r^3 p(r^2), cos(r) = 1 - r^2/2 + r^4 q(r^2), |r| <= pi/4: 3.8e-9 and 1.2e-10
_SIN = (-0.166666546023, 0.00833216029207, -0.000195152181403)
_COS = (0.0416666456701, -0.00138873156162, 2.44330826478e-5)
# 1/(2 pi) in pieces of 28 bits: a float32 times a piece is exact in float64.
_TURNS = (0x28BE60D, 0xB939105, 0x4A7F09D, 0x5F47D4D, 0x377036D, 0x8A5664F, 0x10E4107)


def f32(value: float) -> Expr:
    return tirx.FloatImm("float32", value)


def _f64(value: float) -> Expr:
    return tirx.FloatImm("float64", value)


def i32(value: int) -> Expr:
    return tirx.IntImm("int32", value)


def to_bits(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x)


def from_bits(bits: Expr) -> Expr:
    return tirx.reinterpret("float32", bits)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Polynomial in `x`, lowest power first, as a chain of FMAs."""
    result = f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + f32(coefficient)
    return result


def at_least(bound: float, x: Expr) -> Expr:
    """max(bound, x) that keeps NaN: LLVM makes one vmaxps of it, with the operands in the order that does so."""
    return tirx.Select(x < f32(bound), f32(bound), x)


def at_most(bound: float, x: Expr) -> Expr:
    """min(bound, x) that keeps NaN."""
    return tirx.Select(f32(bound) < x, f32(bound), x)


def clamp(x: Expr, low: float, high: float, bind: Bind) -> Expr:
    return bind(at_most(high, bind(at_least(low, x))))


def magnitude_of(x: Expr) -> Expr:
    return from_bits(to_bits(x) & i32(_MAGNITUDE_BITS))


def with_sign_of(x: Expr, magnitude: Expr) -> Expr:
    return from_bits(to_bits(magnitude) | (to_bits(x) & i32(SIGN_BIT)))


def _round_to_exponent(x: Expr, bias: int, bind: Bind) -> tuple[Expr, Expr]:
    """The integer n nearest to x as float32, and as bits whose low nine hold n + bias; |x| < 2^21."""
    bits = bind(to_bits(x + f32(ROUND + bias)))
    return bind(from_bits(bits) - f32(ROUND + bias)), bits


def _exponent_to_float(bits: Expr) -> Expr:
    """2^(b - 127), b in the low nine bits, 0 < b < 255."""
    return from_bits(bits << i32(23))


def _scale(p: Expr, bits: Expr, bind: Bind) -> Expr:
    """p * 2^n for bits of n + 254: two factors, so that denormals, zero and infinity come by one rounding."""
    half = bind(bits >> i32(1))
    return p * _exponent_to_float(half) * _exponent_to_float(bits - half)


def _exp_clamped(x: Expr, bind: Bind) -> Expr:
    """e^x for x in [-104, 89] or NaN."""
    n, bits = _round_to_exponent(x * f32(LOG2_E), 254, bind)
    r = bind(n * f32(-LN2_LOW) + (n * f32(-LN2_HIGH) + x))
    return _scale(horner(r, (1.0, 1.0, *EXP)), bits, bind)


def exp(x: Expr, bind: Bind) -> Expr:
    """e^x: Cody-Waite reduction by ln 2 (Cody and Waite, Software Manual for the Elementary Functions, 1980)."""
    # e^-104 rounds to 0 and e^89 to infinity: the clamp decides no result.
    return _exp_clamped(clamp(x, -104.0, 89.0, bind), bind)


def exp2(x: Expr, bind: Bind) -> Expr:
    """2^x, the fraction by a polynomial."""
    x = clamp(x, -151.0, 129.0, bind)
    n, bits = _round_to_exponent(x, 254, bind)
    return _scale(horner(bind(x - n), (1.0, *EXP2)), bits, bind)


def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1 / (1 + e^-x) as e^min(x, 0) / (1 + e^-|x|), which keeps its relative accuracy down to denormal results."""
    e = bind(_exp_clamped(bind(at_least(-104.0, bind(from_bits(to_bits(x) | i32(SIGN_BIT))))), bind))
    return tirx.Select(x < f32(0.0), e, f32(1.0)) / (e + f32(1.0))


def tanh(x: Expr, bind: Bind) -> Expr:
    """t / (t + 2), t = e^2|x| - 1 = 2^n (e^2r - 1) + (2^n - 1): no cancellation near 0, and never above 1."""
    magnitude = bind(at_most(10.0, bind(magnitude_of(x))))
    n, bits = _round_to_exponent(magnitude * f32(2.0 * LOG2_E), 127, bind)
    r = bind(n * f32(-math.log(2.0) / 2) + magnitude)
    power = bind(_exponent_to_float(bits))
    t = bind(power * (r * horner(r, (2.0, *EXPM1_2R))) + (power - f32(1.0)))
    return with_sign_of(x, t / (t + f32(2.0)))


def erf(x: Expr, bind: Bind) -> Expr:
    """1 - 2^g(|x|), g = log2(1 - erf) by a polynomial; as -(2^g - 1), so no cancellation near 0, and never above 1.

    Fitting the logarithm of erfc is what N. Juffa's erff does for large x; relative to erf it serves for all x.
    """
    magnitude = bind(at_most(3.95, bind(magnitude_of(x))))
    g = bind(magnitude * horner(magnitude, [-c for c in _ERF]))
    n, bits = _round_to_exponent(g, 127, bind)
    f = bind(g - n)
    power = bind(_exponent_to_float(bits))
    return with_sign_of(x, (f32(1.0) - power) - power * (f * horner(f, _EXP2M1)))


def _log_of_parts(exponent: Expr, f: Expr, bind: Bind) -> Expr:
    """exponent * ln 2 + log(1 + f), sqrt(1/2) <= 1 + f <= sqrt(2)."""
    # One float32 for ln 2 is enough: where exponent is not 0 the sum is at least 0.34, its error then 0.2 ulp.
    tail = bind(f * f) * horner(f, (-0.5, *_LOG)) + f
    return exponent * f32(math.log(2.0)) + tail


def log(x: Expr, bind: Bind) -> Expr:
    """Natural logarithm: x = 2^e (1 + f), a polynomial in f (fdlibm's reduction)."""
    bits = bind(to_bits(x))
    small = bits < i32(0x00800000)
    scaled = bind(tirx.Select(small, to_bits(x * f32(2.0**23)), bits))
    shifted = bind(scaled - i32(_SQRT_HALF_BITS))
    exponent = tirx.Cast("float32", shifted >> i32(23)) + tirx.Select(small, f32(-23.0), f32(0.0))
    f = bind(from_bits(scaled - (shifted & i32(_EXPONENT_BITS))) - f32(1.0))
    result = bind(_log_of_parts(exponent, f, bind))
    no_log = tirx.Select((bits & i32(_MAGNITUDE_BITS)) == i32(0), f32(-math.inf), f32(math.nan))
    return tirx.Select(bits <= i32(0), no_log, tirx.Select(bits >= i32(_INFINITY_BITS), x, result))


def log1p(x: Expr, bind: Bind) -> Expr:
    """log(1 + x): the exponent of 1 + x, then f = x 2^-e + (2^-e - 1), which an FMA rounds once."""
    sum_bits = bind(to_bits(x + f32(1.0)))
    shifted = bind(sum_bits - i32(_SQRT_HALF_BITS))
    exponent_bits = bind(shifted & i32(_EXPONENT_BITS))
    inverse = bind(from_bits(i32(0x3F800000) - exponent_bits))
    # 2^-128 is no normal number; from 2^30 on 1 + x is x anyway.
    f = bind(
        tirx.Select(
            exponent_bits > i32(30 << 23),
            from_bits(sum_bits - exponent_bits) - f32(1.0),
            x * inverse + (inverse - f32(1.0)),
        )
    )
    result = bind(_log_of_parts(tirx.Cast("float32", shifted >> i32(23)), f, bind))
    bits = bind(to_bits(x))
    no_log = tirx.Select(sum_bits == i32(0), f32(-math.inf), f32(math.nan))
    result = tirx.Select(sum_bits <= i32(0), no_log, tirx.Select(sum_bits >= i32(_INFINITY_BITS), x, result))
    # Keeps the sign of zero.
    return tirx.Select((bits & i32(_MAGNITUDE_BITS)) < i32(0x33000000), x, result)


def sqrt(x: Expr, bind: Bind) -> Expr:
    """Square root: one vector instruction."""
    return tirx.sqrt(x)


def rsqrt(x: Expr, bind: Bind) -> Expr:
    """1 / sqrt(x), two roundings."""
    return tirx.FloatImm(x.ty.dtype, 1.0) / tirx.sqrt(x)


def _quarter_turns(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """(n as int32, r) with x = n pi/2 + r modulo 2 pi and |r| <= pi/4, for every finite float32.

    Payne and Hanek's idea (Radian Reduction for Trigonometric Functions, SIGNUM 1983) in float64: x times each piece of
    1/(2 pi) is exact, and only the fractions are summed, so no table look-up by exponent is needed.
    """
    wide = bind(tirx.Cast("float64", x))
    turns = None
    for index, piece in enumerate(_TURNS):
        product = bind(wide * _f64(piece * 2.0 ** (-28 * (index + 1))))
        fraction = product - tirx.round(product)
        turns = fraction if turns is None else turns + fraction
    turns = bind(turns)
    quarters = bind((turns - tirx.round(turns)) * _f64(4.0))
    n = bind(tirx.round(quarters))
    return bind(tirx.Cast("int32", n)), bind(tirx.Cast("float32", (quarters - n) * _f64(math.pi / 2)))


def _sin_of_quarters(n: Expr, r: Expr, bind: Bind) -> Expr:
    t = bind(r * r)
    sine = bind(r * t) * horner(t, _SIN) + r
    cosine = horner(t, (1.0, -0.5, *_COS))
    value = tirx.Select((n & i32(1)) == i32(0), sine, cosine)
    return from_bits(to_bits(value) ^ ((n & i32(2)) << i32(30)))


def sin(x: Expr, bind: Bind) -> Expr:
    """Sine, arguments reduced exactly over the whole range."""
    n, r = _quarter_turns(x, bind)
    result = bind(_sin_of_quarters(n, r, bind))
    # Below 2^-12 the sine rounds to x; keeps the sign of zero.
    return tirx.Select((to_bits(x) & i32(_MAGNITUDE_BITS)) < i32(0x39800000), x, result)


def cos(x: Expr, bind: Bind) -> Expr:
    """Cosine, arguments reduced exactly over the whole range."""
    n, r = _quarter_turns(x, bind)
    return _sin_of_quarters(bind(n + i32(1)), r, bind)


def _intrinsic(function: Callable[[Expr], Expr]) -> Function:
    return lambda x, bind: function(x)


FLOAT32: dict[str, Function] = {
    "exp": exp,
    "exp2": exp2,
    "log": log,
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "sin": sin,
    "cos": cos,
}


def _sigmoid_float64(x: Expr, bind: Bind) -> Expr:
    e = bind(tirx.exp(-tirx.abs(x)))
    return tirx.Select(x < _f64(0.0), e, _f64(1.0)) / (e + _f64(1.0))


def _tanh_float64(x: Expr, bind: Bind) -> Expr:
    # Not tirx.tanh (TVM 0.27): lowered to (1 - e^-2x) / (1 + e^-2x), it loses digits near 0 and the sign of zero.
    return tirx.call_llvm_pure_intrin("float64", "llvm.tanh", x)


# libm, one call per lane.
FLOAT64: dict[str, Function] = {
    "exp": _intrinsic(tirx.exp),
    "exp2": _intrinsic(tirx.exp2),
    "log": _intrinsic(tirx.log),
    "log1p": _intrinsic(tirx.log1p),
    "tanh": _tanh_float64,
    "erf": _intrinsic(tirx.erf),
    "sigmoid": _sigmoid_float64,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "sin": _intrinsic(tirx.sin),
    "cos": _intrinsic(tirx.cos),
}

# Of FLOAT64: extern calls, which together with `Bind` need `ForKind.SERIAL` (see above).
NEEDS_SERIAL_LOOP = frozenset({"log1p", "erf"})
