"""8-bit floats for tests, from their definition: what each code means, and the nearest code of a number."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

FORMATS = {"float8_e4m3fn": (4, 3, 7), "float8_e5m2": (5, 2, 15)}
"""Bits of the exponent and of the mantissa, and the exponent's bias."""


def decoded(name: str) -> NDArray[np.float64]:
    """The number of each code."""
    exponent_bits, mantissa_bits, bias = FORMATS[name]
    found = []
    for code in range(256):
        mantissa, exponent = code % (1 << mantissa_bits), (code & 0x7F) >> mantissa_bits
        fraction = mantissa / (1 << mantissa_bits)
        if name == "float8_e5m2" and exponent == (1 << exponent_bits) - 1:
            value = np.nan if mantissa else np.inf
        elif name == "float8_e4m3fn" and code & 0x7F == 0x7F:
            value = np.nan
        elif exponent == 0:
            value = fraction * 2.0 ** (1 - bias)
        else:
            value = (1 + fraction) * 2.0 ** (exponent - bias)
        found.append(-value if code & 0x80 else value)
    return np.array(found)


def encoded(x: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """The nearest code of each number, ties to the even one: by looking for it among all. NaN is 0x7f or 0xff."""
    values = decoded(name)[:128]
    numbers = values[np.isfinite(values)]
    size = np.abs(np.asarray(x, np.float64))
    # Each code takes what lies between the midpoints around it; the largest number reaches half a step beyond.
    middles = (numbers[:-1] + numbers[1:]) / 2
    end = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    low, high = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
    code = np.where(low == high, low, low + low % 2)
    if name == "float8_e5m2":
        code = np.where(size >= end, 0x7C, code)  # infinite: the code of the largest is odd, so the tie leaves it too
    code = np.where(np.isnan(x), 0x7F, code)
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def numbers() -> NDArray[np.float32]:
    """All float16 values, the midpoints between codes, the float32 numbers on both sides of each, and the extremes."""
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    half = half[~np.isnan(half)]
    middles = []
    for name in FORMATS:
        codes = decoded(name)
        codes = np.unique(codes[np.isfinite(codes)])
        middles.append((codes[:-1] + codes[1:]) / 2)
    x = np.concatenate([half, *middles, [480.0, 512.0, 61440.0, 65536.0]]).astype(np.float32)
    with np.errstate(all="ignore"):
        sides = [np.nextafter(x, np.float32(to)) for to in (np.inf, -np.inf)]
    rest = np.array([1e38, 2.0**-126, 2.0**-149, 0.0, np.inf, np.nan], np.float32)
    return np.concatenate([x, *sides, rest, -rest])


@og.op
def widen(x: og.Tensor["n", og.float8]) -> og.Tensor:
    """The number as float32."""
    return og.cast(x, og.float32)


@og.op
def to_e4m3fn(x: og.Tensor["n", og.float32]) -> og.Tensor:
    """Rounded when stored."""
    return og.cast(x, og.float8_e4m3fn)


@og.op
def to_e5m2(x: og.Tensor["n", og.float32]) -> og.Tensor:
    """Rounded when stored."""
    return og.cast(x, og.float8_e5m2)


@og.op
def through(x: og.Tensor["n", og.float32]) -> og.Results:
    """Rounded there and then, and computed on with."""
    e4m3fn, e5m2 = og.cast(x, og.float8_e4m3fn), og.cast(x, og.float8_e5m2)
    return og.results(e4m3fn=og.cast(e4m3fn, og.float32) * 3.0, e5m2=og.cast(e5m2, og.float32) * 3.0)


OPS = [*(og.variant(widen, dtype={"x": name}) for name in FORMATS), to_e4m3fn, to_e5m2, through]


def _codes(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes as they are, but NaN without its sign, which not all conversions keep."""
    return np.where(x == 0xFF, np.uint8(0x7F), x)


def check_conversions(lib: Any, convert: Any = lambda x: x, back: Any = lambda x: x) -> None:
    """All codes and all kinds of numbers through a library of `OPS`, which is called with what ``convert`` makes of the
    arrays, and whose results ``back`` makes arrays of."""
    import ml_dtypes

    x = numbers()
    three = lib.through(convert(x))
    for name, store in (("float8_e4m3fn", lib.to_e4m3fn), ("float8_e5m2", lib.to_e5m2)):
        kind, meaning = np.dtype(getattr(ml_dtypes, name)), decoded(name)
        for count in (256, 7):  # vectors, and what is left over
            loaded = back(lib.widen(convert(np.arange(count, dtype=np.uint8).view(kind))))
            np.testing.assert_array_equal(loaded, meaning[:count])
            signed = ~np.isnan(loaded)
            np.testing.assert_array_equal(np.signbit(loaded)[signed], np.signbit(meaning[:count])[signed])
        found, wanted = back(store(convert(x))), encoded(x, name)
        assert found.dtype == kind
        np.testing.assert_array_equal(_codes(found.view(np.uint8)), _codes(wanted))
        np.testing.assert_array_equal(_codes(back(store(convert(x[-5:]))).view(np.uint8)), _codes(wanted[-5:]))
        with np.errstate(invalid="ignore"):
            rounded = back(getattr(three, name.removeprefix("float8_")))
            np.testing.assert_array_equal(rounded, meaning[wanted] * 3)
