"""What a form of the tensor-core contraction costs a call: cycles of a multiprocessor, estimated from the sizes.

A step brings 128 bytes of the sum for each row and column of a tile, and multiplies them. It takes as long as the
tensor cores need, or the second cache: that gives a multiprocessor 0.6 lines of 128 bytes a cycle when all ask. A row
is one line where rows begin at multiples of 128 bytes, and two where they do not (8000×8200×7992, bfloat16, H200, ratio
to cuBLAS: 0.56 with tiles of 128×128, 0.74 to 0.82 with 128×256, 0.99 to 1.01 where two blocks share the 256 columns).
"""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.dsl.extent import Extent

from .tiles import BOX, Form

_LINES = 0.6
_START = 3000
"""Cycles before the first product: barriers, tensor maps, the first copy from memory."""
_STORE = 8
"""Instructions to pack and store a sum."""
_PACKED = 1
"""Instructions to pack a sum whose tile is stored under the next one's products."""
_REMOTE = 14
"""Bytes a cycle that a block gets from another's shared memory."""
_EXCHANGE = 5000
"""Cycles of a cluster that shares a tile, beside that: its barriers, and partial sums to shared memory and back."""
_OWN = 104
"""Percent of the time of a shared tile's step that one of a consumer's own takes (0.98 to 1.04 at 8192³, ratios to
cuBLAS)."""
_ALONE = 270
"""Cycles of a step at least where one warpgroup multiplies: it waits for each step."""
_ALONE_BYTES = 345
"""The same for 8-bit operands (float8 with fast sums, 64×128, at 8192³)."""
_APART = 100
"""Cycles of a step for sums that are apart: to wait for those of a step, and to add them. Where one warpgroup
multiplies, nothing runs meanwhile (630 cycles at 8192³)."""
CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 8: 15}
"""How many clusters of so many blocks fit on an H200 or H100 at once: the parts that share a cluster's multiprocessors
have 16 or 18."""


@dataclass(frozen=True)
class Sizes:
    """Of a call: rows, columns, elements of the sum, products beside each other; whether the operands are contiguous
    along rows and columns; the instructions of the epilogue for each sum; and whether results are such that a shared
    tile's can be stored under the next one's products.
    """

    m: Extent
    n: Extent
    k: Extent
    layers: Extent
    left_across: bool
    right_across: bool
    epilogue: int
    deferred: bool

    def clusters(self, form: Form) -> Extent:
        """How many tiles there are for blocks, or for clusters that have their tiles side by side."""
        down = (self.m + (form.rows * form.cluster - 1)) // (form.rows * form.cluster)
        return down * ((self.n + (form.columns - 1)) // form.columns) * self.layers


def estimate(form: Form, sizes: Sizes, split: int) -> Extent:
    """Cycles of a call. ``split``: blocks of a cluster that share a tile."""
    steps = (sizes.k + (form.depth * split - 1)) // (form.depth * split)
    products = steps * _step(form, sizes)
    # Of one of a multiprocessor's four schedulers, which issues an instruction for 32 threads in a cycle.
    sums = form.rows * form.columns // 128
    stored = sums * (sizes.epilogue + _STORE)
    fit = CLUSTERS[form.cluster * split]
    waves = (sizes.clusters(form) + (fit - 1)) // fit
    if form.split:
        exchange = form.partial_bytes * (split - 1) // split // _REMOTE
        return waves * (products + (stored // split + exchange + _EXCHANGE)) + _START
    if form.own:
        return waves * products + (_START + stored)
    if sizes.deferred:
        return waves * (products + sums * (sizes.epilogue + _PACKED)) + (_START + sums * _STORE)
    return waves * (products + stored) + _START


def _step(form: Form, sizes: Sizes) -> Extent:
    """Cycles of a step, which depend on where rows of the operands begin."""
    odd = [
        _odd(sizes.m if sizes.left_across else sizes.k, form.size),
        _odd(sizes.n if sizes.right_across else sizes.k, form.size),
    ]
    # Narrow columns are not shared out where they are contiguous.
    shared = form.cluster if not sizes.right_across or form.columns // form.cluster % BOX == 0 else 1
    lines = (form.rows, form.columns // shared)
    cores = form.rows * form.columns // 32
    if form.promoted:
        cores = cores * (2 if form.consumers == 1 else 1) + _APART
    elif form.consumers == 1:
        cores = max(cores, _ALONE_BYTES if form.size == 1 else _ALONE)

    def cycles(left: int, right: int) -> int:
        return int(max(cores, (lines[0] * (1 + left) + lines[1] * (1 + right)) / _LINES)) * (_OWN if form.own else 100)

    both = cycles(1, 1) - cycles(1, 0) - cycles(0, 1) + cycles(0, 0)
    hundredfold = (
        odd[0] * (cycles(1, 0) - cycles(0, 0))
        + odd[1] * (cycles(0, 1) - cycles(0, 0))
        + odd[0] * odd[1] * both
        + cycles(0, 0)
    )
    return hundredfold // 100


def _odd(extent: Extent, size: int) -> Extent:
    """1 if so many elements are no multiple of 128 bytes, else 0."""
    line = 128 // size
    return (extent + (line - 1)) // line + extent // line * -1
