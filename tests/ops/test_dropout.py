"""Random numbers: the published vectors of Philox, the words of a position, the masks that dropout makes of them."""

from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.dsl.random import philox
from opsgen.ops import dropout
from opsgen.ops._philox import philox4x32, random_words
from opsgen.runtime.host import host_levels

# Random123 1.14.0, tests/kat_vectors, philox4x32 with 10 rounds: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> Any:
    return np.array([int(w, 16) for w in text.split()], np.int64)


@og.op
def blocks(
    c0: og.Tensor["n", og.int64],
    c1: og.Tensor["n", og.int64],
    c2: og.Tensor["n", og.int64],
    c3: og.Tensor["n", og.int64],
    k0: og.Tensor["n", og.int64],
    k1: og.Tensor["n", og.int64],
) -> og.Results:
    """Blocks of Philox: the four words of each counter under its key."""
    return og.results(**{f"w{i}": w for i, w in enumerate(philox((c0, c1, c2, c3), (k0, k1)))})


@og.op
def numbers(
    first: og.Tensor[og.int64], seed: og.Tensor[og.int64], offset: og.Tensor[og.int64], x: og.Tensor["...", "n"]
) -> og.Tensor:
    """Bits and numbers at the positions from ``first`` on."""
    at = first + og.index("...") * og.size("n") + og.index("n")
    bits = og.random_bits(at, seed, offset)
    return og.results(bits=bits + og.where(x == x, 0, 0), u=og.random_uniform(at, seed, offset) + 0.0 * x)


def test_the_published_vectors() -> None:
    counters, keys, results = (np.array([words(v[i]) for v in KNOWN]) for i in range(3))
    assert np.array_equal(philox4x32(counters.astype(np.uint32), keys.astype(np.uint32)), results)
    given = [np.ascontiguousarray(column) for column in (*counters.T, *keys.T)]
    assert np.array_equal(np.stack(og.compile(blocks).blocks(*given), axis=-1), results)
    assert np.array_equal(np.stack(list(blocks.evaluate(*given).values()), axis=-1), results)


@pytest.mark.parametrize("arch", ["avx2", "avx512"])
def test_the_numbers_of_a_position(arch: str) -> None:
    if arch not in host_levels():
        pytest.skip(f"this CPU has no {arch}")
    lib = og.compile(numbers, target=f"x86/{arch}")
    x = np.zeros((3, 41), np.float32)
    for first in (0, 5, 2**32 - 60, 2**34 - 50, 2**40 + 1, 2**62):  # past 2^32 positions, and blocks
        for seed, offset in ((0, 0), (-1, 2**63 - 1), (0x123456789ABCDEF, 7 << 32)):
            at = first + np.arange(x.size).reshape(x.shape)
            wanted = random_words(at, seed, offset)
            given = [np.asarray(v, np.int64) for v in (first, seed, offset)]
            for found in (lib.numbers(*given, x)._asdict(), numbers.evaluate(*given, x)):
                assert np.array_equal(found["bits"], wanted.astype(np.int64))
                assert np.array_equal(found["u"], (wanted >> 8).astype(np.float32) * np.float32(2.0**-24))


def kept(y: Any) -> Any:
    return np.asarray(y).astype(np.float32) != 0


def test_one_mask_for_every_dtype_and_shape() -> None:
    lib = og.compile(
        [og.variant(dropout, absent=a) for a in ([], ["residual"])], dtypes=["float32", "float16", "bfloat16"]
    )
    import ml_dtypes

    for shape in ((), (1,), (4099,), (3, 5, 7), (0, 3), (70, 129)):
        for p in (0.0, 0.1, 0.5, 0.9, 1.0):
            wanted = random_words(np.arange(np.prod(shape, dtype=int)).reshape(shape), 42, 3) >> 8
            wanted = wanted.astype(np.float32) * np.float32(2.0**-24) >= np.float32(p)
            for kind in (np.float32, np.float16, ml_dtypes.bfloat16):
                x = np.full(shape, 2, kind)
                y = lib.dropout(x, 42, 3, p=p)
                assert y.dtype == x.dtype
                assert np.array_equal(kept(y), wanted)
                np.testing.assert_allclose(y[wanted].astype(np.float64), 2 / max(1 - p, 1e-9), rtol=2.0**-8)
                again = lib.dropout(x, np.asarray(42), np.asarray(3), np.full(shape, -1, kind), p=p)
                np.testing.assert_array_equal(again.astype(np.float32) == -1, ~wanted)


def test_the_mask_is_random() -> None:
    """Shares and neighbours within five standard deviations; other offsets and seeds are other masks."""
    lib = og.compile(og.variant(dropout, absent=["residual"]))
    n, p = 1 << 20, 0.3
    x = np.ones(n, np.float32)
    masks = [kept(lib.dropout(x, *key, p=p)) for key in ((0, 0), (0, 1), (1, 0), (0, 1 << 32), (1 << 32, 0))]
    for i, mask in enumerate(masks):
        assert abs(mask.mean() - 0.7) < 5 * np.sqrt(0.21 / n)
        for distance in (1, 2, 4, 64):
            both = (mask[distance:] & mask[:-distance]).mean()
            assert abs(both - 0.49) < 5 * np.sqrt(0.49 * 0.51 / n) * 1.5
        for other in masks[:i]:
            assert abs((mask & other).mean() - 0.49) < 5 * np.sqrt(0.49 * 0.51 / n)


def test_what_is_dropped_is_zero_whatever_it_was() -> None:
    lib = og.compile(og.variant(dropout, absent=["residual"]))
    x = np.full(1000, np.nan, np.float32)
    y = lib.dropout(x, 1, 2, p=0.5)
    assert 300 < (y == 0).sum() < 700
    assert np.isnan(y[y != 0]).all()
    assert not lib.dropout(x, 1, 2, p=1.0).any()
    assert np.isnan(lib.dropout(x, 1, 2, p=0.0)).all()


def test_an_integer_for_a_tensor_without_dims(torch: Any) -> None:
    """As numpy and torch give it; one that the type does not hold is refused."""
    lib = og.compile(og.variant(dropout, absent=["residual"]))
    x = np.ones(100, np.float32)
    wanted = lib.dropout(x, np.asarray(7), np.asarray(1 << 40), p=0.5)
    assert np.array_equal(lib.dropout(x, 7, 1 << 40, p=0.5), wanted)
    assert np.array_equal(lib.dropout(x, seed=np.int32(7), offset=np.asarray(1 << 40), p=0.5), wanted)
    assert np.array_equal(lib.dropout(torch.from_numpy(x), 7, torch.tensor(1 << 40), p=0.5).numpy(), wanted)
    with pytest.raises(og.OpsgenError, match=r"E4017.*'seed'.*the number 9223372036854775808.*one from -9223372036854"):
        lib.dropout(x, 1 << 63, 0, p=0.5)
    with pytest.raises(og.OpsgenError, match=r"E4017.*'seed'.*the number 0\.5"):
        lib.dropout(x, 0.5, 0, p=0.5)
