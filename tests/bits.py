"""Ops on the bits of integers, and what numpy makes of the same operands, for the tests of all targets."""

from collections.abc import Callable
from typing import Any

import numpy as np

import opsgen as og


@og.op
def bits(x: og.Tensor["n", og.int64], y: og.Tensor["n", og.int64], count: og.Tensor["n", og.int64]) -> og.Tensor:
    """Each operation, with numbers and with tensors, on either side."""
    return og.results(
        both=x & y, either=x | y, one=x ^ y, none=~x, masked=x & 0xFFFFFFFF, flipped=5 ^ x,
        up=x << 3, down=x >> 33, up_by=x << count, down_by=x >> count, of_one=1 << count,
        product=og.wide_product(x, y), scaled=og.wide_product(x, 0xD2511F53),
        upper=og.wide_product(x, y) >> 32 & 0xFFFFFFFF,
    )  # fmt: skip


@og.op
def small_bits(x: og.Tensor["n", og.int8], y: og.Tensor["n", og.uint8], z: og.Tensor["n", og.int32]) -> og.Tensor:
    """Of narrower types: results keep theirs, and what leaves the width is gone."""
    return og.results(
        up=x << 5, down=x >> 2, none=~x, above=y << 3, below=y >> 3, rest=~y, joined=x ^ y,
        word=z << 17, word_down=z >> 9, word_by=z << (z & 63), product=og.wide_product(z, y),
        wide=og.cast(x << 5, og.int32) + 1,
    )  # fmt: skip


@og.op
def truths(x: og.Tensor["n"], y: og.Tensor["n"]) -> og.Tensor:
    """Exclusive or of bools."""
    return og.where((x > 0) ^ (y > 0), x, y)


@og.op
def as_bits(x: og.Tensor["n", og.float32], i: og.Tensor["n", og.int32], d: og.Tensor["n", og.float64]) -> og.Tensor:
    """Bits of one type as those of another; the key by which floats are ordered as integers."""
    b = og.bitcast(x, og.int32)
    return og.results(
        bits=b, key=b ^ (b >> 31 & 0x7FFFFFFF), number=og.bitcast(i, og.float32), wide=og.bitcast(d, og.int64),
        exponent=(og.bitcast(x * 2.0, og.int32) >> 23 & 255) - 127,
        back=og.bitcast(og.bitcast(d, og.int64), og.float64),
    )  # fmt: skip


OPS = [bits, small_bits, truths, as_bits]
_LOW = np.uint64(0xFFFFFFFF)


def _product(x: Any, y: Any) -> Any:
    a, b = (np.asarray(v).astype(np.int64).view(np.uint64) & _LOW for v in (x, y))
    return (a * b).view(np.int64)


def _shifted(x: Any, count: Any, left: bool) -> Any:
    """In Python's integers, which have no width."""
    width = 8 * x.dtype.itemsize
    found = []
    for a, n in zip(x.tolist(), count.tolist()):
        if not 0 <= n < width:
            found.append(-1 if a < 0 and not left else 0)
        else:
            found.append(((a << n) + (1 << (width - 1))) % (1 << width) - (1 << (width - 1)) if left else a >> n)
    return np.array(found, x.dtype).reshape(x.shape)


def check_bits(call: Callable[[og.dsl.Op, dict[str, Any]], Any]) -> None:
    """``call(op, arguments)`` gives results by name."""
    rng = np.random.default_rng(0)
    edges = np.array([0, 1, -1, 2**63 - 1, -(2**63), 2**31, 2**32, 2**32 - 1, -(2**31), 0x123456789ABCDEF])
    for n in (1, 17, 64, 1037):
        x, y = (rng.integers(-(2**63), 2**63 - 1, n) for _ in range(2))
        x[: len(edges)], y[-len(edges) :] = edges[:n], edges[-n:]
        count = rng.integers(-3, 70, n)
        found = call(bits, {"x": x, "y": y, "count": count})
        wanted = {
            "both": x & y, "either": x | y, "one": x ^ y, "none": -1 - x, "masked": x % 2**32, "flipped": x ^ 5,
            "up": x << 3, "down": x >> 33, "up_by": _shifted(x, count, True), "down_by": _shifted(x, count, False),
            "of_one": _shifted(np.ones_like(x), count, True), "product": _product(x, y),
            "scaled": _product(x, 0xD2511F53),
            "upper": np.array([(a % 2**32) * (b % 2**32) >> 32 for a, b in zip(x.tolist(), y.tolist())]),
        }  # fmt: skip
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name}, {n} elements", strict=True)
        x8, y8 = (rng.integers(0, 256, n).astype(np.uint8) for _ in range(2))
        x8, z = x8.view(np.int8), rng.integers(-(2**31), 2**31, n).astype(np.int32)
        found = call(small_bits, {"x": x8, "y": y8, "z": z})
        up = (x8.astype(int) * 32 + 128) % 256 - 128
        wanted = {
            "up": up.astype(np.int8), "down": x8 // 4, "none": -1 - x8, "above": (y8.astype(int) * 8).astype(np.uint8),
            "below": y8 // 8, "rest": 255 - y8, "joined": x8.astype(np.int16) ^ y8, "product": _product(z, y8),
            "word": z << np.int32(17), "word_down": z // 512, "word_by": _shifted(z, z & 63, True),
            "wide": up.astype(np.int32) + 1,
        }  # fmt: skip
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name}, {n} elements", strict=True)
        a, b = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
        np.testing.assert_array_equal(call(truths, {"x": a, "y": b})["out"], np.where((a > 0) != (b > 0), a, b))
        x = rng.standard_normal(n).astype(np.float32)
        x[:6] = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149], np.float32)[:n]
        d = x.astype(np.float64) ** 3
        found = call(as_bits, {"x": x, "i": z, "d": d})
        np.testing.assert_array_equal(found["bits"], x.view(np.int32), strict=True)
        np.testing.assert_array_equal(found["number"].view(np.int32) & 0x7FBFFFFF, z & 0x7FBFFFFF)  # NaN may be quieted
        np.testing.assert_array_equal(found["wide"], d.view(np.int64), strict=True)
        np.testing.assert_array_equal(found["back"], d, strict=True)
        finite = np.isfinite(x) & (np.abs(x) > 1e-30)
        np.testing.assert_array_equal(found["exponent"][finite], np.frexp(x[finite])[1])
        order = np.argsort(x[5 if n > 5 else n :], kind="stable")
        assert (np.diff(found["key"][5 if n > 5 else n :][order]) >= 0).all()
