"""Philox4x32-10 in numpy, for references: the algorithm of Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As
Easy as 1, 2, 3 (SC 2011), written from the paper in unsigned words. numpy's own Philox has words of 64 bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]


def philox4x32(counter: Words, key: Words, rounds: int = 10) -> Words:
    """The block [..., 4] of a counter [..., 4] under a key [..., 2]; both broadcast."""
    counter, key = np.asarray(counter, np.uint32), np.asarray(key, np.uint32)
    shape = np.broadcast_shapes(counter.shape[:-1], key.shape[:-1])
    x = np.broadcast_to(counter, (*shape, 4)).copy()
    k = np.broadcast_to(key, (*shape, 2)).copy()
    for _ in range(rounds):
        left = x[..., 0].astype(np.uint64) * np.uint64(0xD2511F53)
        right = x[..., 2].astype(np.uint64) * np.uint64(0xCD9E8D57)
        high_left, high_right = ((p >> np.uint64(32)).astype(np.uint32) for p in (left, right))
        x = np.stack(
            [
                high_right ^ x[..., 1] ^ k[..., 0],
                right.astype(np.uint32),
                high_left ^ x[..., 3] ^ k[..., 1],
                left.astype(np.uint32),
            ],
            axis=-1,
        )
        k += np.array([0x9E3779B9, 0xBB67AE85], np.uint32)  # modulo 2^32
    return x


def _halves(x: Any) -> list[NDArray[np.uint32]]:
    words = np.asarray(x, np.int64).view(np.uint64)
    return [words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)]


def random_words(positions: NDArray[np.int64], seed: Any, offset: Any) -> NDArray[np.uint32]:
    """The 32 bits of each position, in the shape of ``positions``: word position % 4 of block position // 4."""
    positions = np.asarray(positions, np.int64)
    low, high = _halves(positions // 4)
    offsets = [np.broadcast_to(h, positions.shape) for h in _halves(offset)]
    blocks = philox4x32(np.stack([low, high, *offsets], axis=-1), np.stack(_halves(seed), axis=-1))
    return np.take_along_axis(blocks, (positions % 4)[..., None], axis=-1)[..., 0]


def uniform(positions: NDArray[np.int64], seed: Any, offset: Any) -> NDArray[np.float64]:
    """A number in [0, 1) for each position: the upper 24 bits of its word, as a fraction of 2^24."""
    return (random_words(positions, seed, offset) >> np.uint32(8)) / 2.0**24


def torch_uniform(positions: Any, seed: Any, offset: Any) -> Any:
    """The same as `uniform`, of torch tensors of int64, on their device; for peers."""
    low = 0xFFFFFFFF
    block = positions >> 2
    x = [block & low, (block >> 32) & low, (offset & low).expand_as(block), ((offset >> 32) & low).expand_as(block)]
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        left, right = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57  # modulo 2^64
        x = [(right >> 32 & low) ^ x[1] ^ k0, right & low, (left >> 32 & low) ^ x[3] ^ k1, left & low]
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    word = positions & 3
    bits = x[3]
    for i in (2, 1, 0):
        bits = bits.where(word != i, x[i])
    return (bits >> 8).float() * 2.0**-24
