"""Random numbers that depend on nothing but a position, a seed and an offset: any kernel, on any target and in any
order, gives the same ones.

Philox4x32-10: a counter of four words of 32 bits is encrypted under a key of two, in ten rounds of two products each.
Source: Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011. It is what cuRAND and torch
use on GPUs.

Words are held in int64, of which the lower 32 bits count until the last step: no sum or product here overflows.
"""

from __future__ import annotations

from typing import Any

from ..errors import error
from . import dtypes
from .bits import wide_product
from .functions import cast, where
from .location import user_line
from .tensor import Tensor, as_tensor

ROUNDS = 10
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)  # the golden ratio and the square root of 3, less 1, as fractions of 2^32
_LOW = 0xFFFFFFFF
_UNIFORM_BITS = 24  # as many as float32 has: every step up to the comparison with a float32 is exact

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """The four words of 32 bits, as int64 in [0, 2^32), of a counter and a key, whose lower 32 bits count."""
    c0, c1, c2, c3 = counter
    k0, k1 = (k & _LOW for k in key)
    for turn in range(ROUNDS):
        p0, p1 = wide_product(c0, _FACTORS[0]), wide_product(c2, _FACTORS[1])
        c0, c1 = (p1 >> 32) ^ c1 ^ (k0 + turn * _WEYL[0]), p1
        c2, c3 = (p0 >> 32) ^ c3 ^ (k1 + turn * _WEYL[1]), p0
    return c0 & _LOW, c1 & _LOW, c2 & _LOW, c3 & _LOW


def random_bits(position: Any, seed: Any, offset: Any) -> Tensor:
    """32 random bits for each position, as int64 in [0, 2^32): ``og.random_bits(og.index("n"), seed, offset)``.

    They are word ``position % 4`` of the four that Philox4x32-10 makes of the counter (lower and upper half of
    position // 4, lower and upper half of offset) and the key (lower and upper half of seed): what cuRAND's
    curand4(curand_init(seed, subsequence=offset, offset=position)) begins with for a position that is a multiple of 4.

    Args:
        position, seed, offset: integers of any width; each pair of seed and offset has 2^64 numbers of its own.

    Raises:
        DefinitionError: E1003, an operand is no integer.
    """
    given = {"position": position, "seed": seed, "offset": offset}
    words = {name: _word(name, value) for name, value in given.items()}
    at, seed, offset = words["position"], words["seed"], words["offset"]
    block = at >> 2
    found = philox((block, block >> 32, offset, offset >> 32), (seed, seed >> 32))
    number = at & 3
    return where(number < 2, where(number == 0, found[0], found[1]), where(number == 2, found[2], found[3]))


def random_uniform(position: Any, seed: Any, offset: Any) -> Tensor:
    """A random float32 in [0, 1) for each position: the upper 24 of `random_bits`, times 2^-24, exactly.

    Raises:
        DefinitionError: E1003, an operand is no integer.
    """
    bits = random_bits(position, seed, offset) >> (32 - _UNIFORM_BITS)
    # Through int32: AVX2 makes floats of int64 one by one.
    return cast(cast(bits, dtypes.int32), dtypes.float32) * 2.0**-_UNIFORM_BITS


def _word(name: str, value: Any) -> Tensor:
    x = as_tensor(value, "random_bits")
    if x.dtype.kind not in ("int", "uint"):
        found = f"{x.dtype.name} as {name}"
        raise error("E1003", where=user_line(), function="random_bits", found=found, wanted="integers")
    return cast(x, dtypes.int64)


__all__ = ["random_bits", "random_uniform"]
