"""Floats that TIR computes with as bits: how each is read as float32, and how float32 rounds to it.

bfloat16 is float32's upper half. float8_e4m3fn has 4 bits of exponent (bias 7), 3 of mantissa, no infinity, and NaN as
S.1111.111; its largest number is 448. float8_e5m2 (bias 15) is float16's upper byte; its largest number is 57344.
Source: P. Micikevicius et al., FP8 Formats for Deep Learning (2022).

All round to nearest even. float8_e4m3fn saturates: what is beyond 448, infinities too, becomes 448, and only NaN is NaN
(as in torch 2.13 and in NVIDIA's instructions; torch before and ml_dtypes make NaN of it). The others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import tirx

from .statements import Expr

Bind = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Narrow:
    """``storage``: the integer type that holds the bits. ``load`` gives float32; ``round`` takes float32 and what makes
    a variable of an expression."""

    storage: str
    load: Callable[[Expr], Expr]
    round: Callable[[Expr, Bind], Expr]


def _u32(value: int) -> Expr:
    return tirx.IntImm("uint32", value)


def _float(bits: Expr) -> Expr:
    return tirx.reinterpret("float32", bits)


def _load_bfloat16(bits: Expr) -> Expr:
    return _float(tirx.Cast("uint32", bits) << _u32(16))


def _round_bfloat16(x: Expr, bind: Bind) -> Expr:
    x = bind(x)
    bits = bind(tirx.reinterpret("uint32", x))
    rounded = (bits + _u32(0x7FFF) + ((bits >> _u32(16)) & _u32(1))) >> _u32(16)
    quiet = (bits >> _u32(16)) | _u32(0x40)
    nan = (tirx.reinterpret("int32", x) & tirx.IntImm("int32", 0x7FFFFFFF)) > tirx.IntImm("int32", 0x7F800000)
    return tirx.Cast("uint16", tirx.Select(nan, quiet, rounded))


def _load_e4m3fn(bits: Expr) -> Expr:
    wide = tirx.Cast("uint32", bits)
    size = wide & _u32(0x7F)
    normal = (size << _u32(20)) + _u32(120 << 23)
    # Below 2^-6, as 2^-6 · (1 + mantissa) - 2^-6: a float32 denormal may be flushed.
    lifted = _float((size << _u32(20)) + _u32(121 << 23))
    small = tirx.reinterpret("uint32", tirx.Sub(lifted, tirx.FloatImm("float32", 2.0**-6)))
    value = tirx.Select(size < _u32(8), small, tirx.Select(size < _u32(0x7F), normal, _u32(0x7FC00000)))
    return _float(value | ((wide & _u32(0x80)) << _u32(24)))


def _load_e5m2(bits: Expr) -> Expr:
    return tirx.Cast("float32", tirx.reinterpret("float16", tirx.Cast("uint16", bits) << tirx.IntImm("uint16", 8)))


def _rounded(size: Expr, bind: Bind, exponent: int, mantissa: int) -> Expr:
    """The code of a magnitude (float32 bits) in a type whose least normal number is 2^exponent, without a limit."""
    dropped = 23 - mantissa
    half = _u32((1 << (dropped - 1)) - 1)
    normal = ((size + half + ((size >> _u32(dropped)) & _u32(1))) >> _u32(dropped)) - _u32((exponent + 126) << mantissa)
    # Beside this number, float32's step is the type's least one: the addition rounds.
    large = 127 + exponent - mantissa + 23
    moved = tirx.Add(_float(size), tirx.FloatImm("float32", 2.0 ** (large - 127)))
    small = tirx.reinterpret("uint32", moved) - _u32(large << 23)
    return bind(tirx.Select(size < _u32((127 + exponent) << 23), small, normal))


def _parts(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """The magnitude's bits, and the sign where a byte has it."""
    bits = bind(tirx.reinterpret("uint32", bind(x)))
    return bind(bits & _u32(0x7FFFFFFF)), (bits >> _u32(24)) & _u32(0x80)


def _round_e4m3fn(x: Expr, bind: Bind) -> Expr:
    size, sign = _parts(x, bind)
    return _limited(_rounded(size, bind, -6, 3), 0x7E, size, sign)


def _round_e5m2(x: Expr, bind: Bind) -> Expr:
    size, sign = _parts(x, bind)
    return _limited(_rounded(size, bind, -14, 2), 0x7C, size, sign)


def _limited(code: Expr, largest: int, size: Expr, sign: Expr) -> Expr:
    """No code above ``largest`` but NaN's."""
    limited = tirx.Select(code > _u32(largest), _u32(largest), code)
    return tirx.Cast("uint8", tirx.Select(size > _u32(0x7F800000), _u32(0x7F), limited) | sign)


NARROW: Mapping[str, Narrow] = {
    "bfloat16": Narrow("uint16", _load_bfloat16, _round_bfloat16),
    "float8_e4m3fn": Narrow("uint8", _load_e4m3fn, _round_e4m3fn),
    "float8_e5m2": Narrow("uint8", _load_e5m2, _round_e5m2),
}
"""By the type's name."""
