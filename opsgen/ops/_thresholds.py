"""The largest threshold at which enough of a row is left, without sorting it: a search over its elements' bits."""

from collections.abc import Callable

import opsgen as og

_EACH = 1
"""Bits that are found in one pass over a row, by 2^_EACH - 1 sums."""

_SIGNIFICANT = {"bfloat16": 16, "float16": 19, "float32": 32, "float64": 64}
"""Upper bits of a float32 (float64) that numbers of a type differ in: exponent, sign, and its own mantissa."""


def ordered_bits(x: og.Tensor) -> tuple[og.Tensor, int]:
    """Integers that are ordered as the floats ``x`` are, of which equal ones are equal; and in how many bits they are.

    NaN lie beyond the infinities, on either side.
    """
    bits = _SIGNIFICANT[x.dtype.name]
    wide, kind = (og.float64, og.int64) if bits == 64 else (og.float32, og.int32)
    number = og.cast(og.where(x == 0, 0.0, x), wide)  # -0.0 is 0.0
    raw = og.bitcast(number, kind)
    key = raw ^ (raw >> (wide.bits - 1) & (2 ** (wide.bits - 1) - 1))
    return key >> (wide.bits - bits) if bits < wide.bits else key, bits


def largest_threshold(enough: Callable[[og.Tensor], og.Tensor], bits: int) -> og.Tensor:
    """The largest t of ``bits`` bits, of those with ``enough(t)``, which holds up to some t and not beyond it, and is
    taken to hold for the smallest.

    Each pass finds the next bits, from the sign on.
    """
    top = bits - 1
    t = og.where(enough(og.cast(0, og.int64 if bits == 64 else og.int32)), 0, lowest(bits))
    while top > 0:
        taken = min(_EACH, top)
        top -= taken
        found = t
        for digit in range(1, 2**taken):  # they hold up to the right one
            candidate = t + digit * 2**top
            found = og.where(enough(candidate), candidate, found)
        t = found
    return t


def lowest(bits: int) -> int:
    """The least key of so many bits."""
    return -(2 ** (bits - 1))


def first_where(condition: og.Tensor) -> og.Tensor:
    """The first position of a row of at most 2^24 at which a condition holds, as a float32; its length if at none."""
    at = og.cast(og.cast(og.index("vocab"), og.int32), og.float32)
    length = og.cast(og.size("vocab"), og.float32)
    return og.min(og.where(condition, at, length), over="vocab")


def first_beyond(weight: og.Tensor, u: og.Tensor, otherwise: og.Tensor) -> og.Tensor:
    """The first position with weight up to which more than the share u of the weight lies, as a float32; ``otherwise``
    where rounding leaves none."""
    sums = og.cumsum(weight, over="vocab")
    share = og.max(sums, over="vocab") * u
    found = first_where(og.where(sums > share, weight, 0.0) > 0.0)
    return og.where(found < og.cast(og.size("vocab"), og.float32), found, otherwise)
