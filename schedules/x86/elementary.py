"""float32 elementary functions in AVX-512's own instructions, where they beat the portable forms of `vector_math`.

    function  largest error found (ulp)  bound that the tests hold it to
    exp       0.885                      0.9
    exp2      0.946                      1.0
    tanh      3.704                      3.8
    erf       2.280                      2.4
    sigmoid   2.699                      2.8

How found: against float64 (torch), every 244th of all 2^32 patterns of bits and every 7th float32 with
2^-12 <= |x| < 2^8; tests/x86/test_elementary.py repeats it on a coarser grid and near every threshold.

vscalefps multiplies by a power of two with one rounding, for exponents of any size: no clamping of the exponent, no
second factor for denormals. vpermps looks coefficients up in a register. vrcp14ps and a step of Newton's method take
the place of a division where the divisor is known to be neither tiny nor huge.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

from opsgen.lowering import instructions
from opsgen.lowering.statements import Expr
from opsgen.lowering.vector_math import (
    EXP,
    EXP2,
    EXPM1_2R,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    ROUND,
    SIGN_BIT,
    Bind,
    Function,
    at_least,
    at_most,
    clamp,
    f32,
    from_bits,
    horner,
    i32,
    magnitude_of,
    to_bits,
    with_sign_of,
)
from opsgen.targets.x86.instructions import ERF_STEP


def table(arch: str) -> Mapping[str, Function]:
    """The functions that an arch has better forms of."""
    return AVX512 if arch == "avx512" else {}


def _scale(x: Expr, n: Expr) -> Expr:
    return instructions.call("scale_by_power", "float32", x, n)


def _rounded(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """The integer n nearest to x as float32, and bits whose low ones hold n; |x| < 2^21.

    Through the bits, lest TVM take (x + c) - c for x.
    """
    bits = bind(to_bits(x + f32(ROUND)))
    return bind(from_bits(bits) - f32(ROUND)), bits


def _divide(a: Expr, b: Expr, bind: Bind) -> Expr:
    """a / b for 2^-126 <= |b| <= 2^126, about one ulp from it."""
    estimate = bind(instructions.call("reciprocal_estimate", "float32", b))
    error = f32(1.0) - b * estimate
    return a * bind(estimate * error + estimate)


def _exp_clamped(x: Expr, bind: Bind) -> Expr:
    n, _ = _rounded(x * f32(LOG2_E), bind)
    r = bind(n * f32(-LN2_LOW) + (n * f32(-LN2_HIGH) + x))
    return _scale(horner(r, (1.0, 1.0, *EXP)), n)


def exp(x: Expr, bind: Bind) -> Expr:
    """e^x: as in `vector_math`, but for the last step."""
    return _exp_clamped(clamp(x, -104.0, 89.0, bind), bind)


def exp2(x: Expr, bind: Bind) -> Expr:
    """2^x."""
    x = clamp(x, -151.0, 129.0, bind)
    n, _ = _rounded(x, bind)
    return _scale(horner(bind(x - n), (1.0, *EXP2)), n)


def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1 / (1 + e^-x) as e^min(x, 0) / (1 + e^-|x|), whose divisor is between 1 and 2."""
    e = bind(_exp_clamped(bind(at_least(-104.0, bind(from_bits(to_bits(x) | i32(SIGN_BIT))))), bind))
    return _divide(bind(tirx.Select(x < f32(0.0), e, f32(1.0))), bind(e + f32(1.0)), bind)


def tanh(x: Expr, bind: Bind) -> Expr:
    """t / (t + 2), t = e^2|x| - 1 = 2^n (e^2r - 1) + (2^n - 1), n and r of 2|x| / ln 2."""
    magnitude = bind(at_most(10.0, bind(magnitude_of(x))))
    n, _ = _rounded(magnitude * f32(2.0 * LOG2_E), bind)
    r = bind(n * f32(-(LN2_HIGH + LN2_LOW) / 2) + magnitude)
    power = bind(_scale(f32(1.0), n))
    t = bind(power * (r * horner(r, (2.0, *EXPM1_2R))) + (power - f32(1.0)))
    quotient = bind(_divide(t, bind(t + f32(2.0)), bind))
    return with_sign_of(x, at_most(1.0, quotient))


def erf(x: Expr, bind: Bind) -> Expr:
    """A polynomial in each of 16 intervals of |x|, the coefficients looked up."""
    magnitude = bind(at_most(15.4999 * ERF_STEP, bind(magnitude_of(x))))
    n, bits = _rounded(magnitude * f32(1.0 / ERF_STEP), bind)
    f = bind(n * f32(-ERF_STEP) + magnitude)
    coefficients = [instructions.call(f"erf_coefficient{k}", "float32", bits) for k in range(6)]
    value = bind(coefficients[5])
    for c in reversed(coefficients[:5]):
        value = bind(value * f + bind(c))
    return with_sign_of(x, value)


AVX512: dict[str, Function] = {"exp": exp, "exp2": exp2, "sigmoid": sigmoid, "tanh": tanh, "erf": erf}
