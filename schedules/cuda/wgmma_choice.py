"""What a form of the tensor-core contraction costs a call: cycles of a multiprocessor, estimated from the sizes.

A step brings 128 bytes of the sum for each row and column of a tile, and multiplies them. It takes as long as the
tensor cores need, or what brings the bytes: a multiprocessor takes 64 of them a cycle, those that another block of its
cluster asked for too; and the second cache gives one 0.6 lines of 128 bytes a cycle when all ask. A row is one line
where rows begin at multiples of 256 bytes, and two where they do not begin at those of 128 (8000×8200×7992, bfloat16,
H200, ratio to cuBLAS: 0.56 with tiles of 128×128, 0.74 to 0.82 with 128×256, 0.99 to 1.01 where two blocks share the
256 columns); between them it costs as much as 1.4 (4000×4104×4160: 0.87 with tiles of 128×128, 0.98 where two blocks
share the columns; at 4096×4096×4096 0.99 both).
"""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.dsl.extent import Extent

from .tiles import BOX, Form

_LINES = 0.6
_BEGIN = ((256, 1.0), (128, 1.4), (1, 2.0))
"""Multiples of bytes at which rows begin, and how many lines a row's 128 bytes cost then."""
_TAKEN = 64
"""Bytes a cycle that a multiprocessor takes (bfloat16, ratio to cuBLAS at 4000×4104×4160: 0.77 with tiles of 64×256,
which need 80 for what the tensor cores multiply in a cycle, 0.98 with 128×128, which need 64)."""
_MEMORY = 2300
"""Bytes a cycle from device memory."""
_ALL = 132
"""Multiprocessors."""
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
_JOINED = 500
"""Cycles that a launch with clusters takes longer."""
CLUSTERS = {1: _ALL, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 8: 15}
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
    # Of one of a multiprocessor's four schedulers, which issues an instruction for 32 threads in a cycle.
    sums = form.rows * form.columns // 128
    stored = sums * (sizes.epilogue + _STORE)
    clusters, fit = sizes.clusters(form), CLUSTERS[form.cluster * split]
    waves = (clusters + (fit - 1)) // fit
    products = waves * steps * _step(form, sizes, _least(clusters * (form.cluster * split), Extent.const(_ALL)))
    memory = (sizes.m + sizes.n) * sizes.k * sizes.layers * form.size // _MEMORY
    products = _most(products, memory) + (_JOINED if form.cluster * split > 1 else 0)
    if form.split:
        exchange = form.partial_bytes * (split - 1) // split // _REMOTE
        return products + waves * (stored // split + exchange + _EXCHANGE) + _START
    if form.own:
        return products + (_START + stored)
    if sizes.deferred:
        return products + waves * (sums * (sizes.epilogue + _PACKED)) + (_START + sums * _STORE)
    return products + waves * stored + _START


def _step(form: Form, sizes: Sizes, blocks: Extent) -> Extent:
    """Cycles of a step, which depend on where rows of the operands begin, and on how many blocks there are."""
    # Narrow columns are not shared out where they are contiguous.
    shared = form.cluster if not sizes.right_across or form.columns // form.cluster % BOX == 0 else 1
    lines = (form.rows, form.columns // shared)
    cores = form.rows * form.columns // 32
    if form.promoted:
        cores = cores * (2 if form.consumers == 1 else 1) + _APART
    elif form.consumers == 1:
        cores = max(cores, _ALONE_BYTES if form.size == 1 else _ALONE)
    least = max(cores, form.stage_bytes // _TAKEN)

    def cycles(left: int, right: int) -> Extent:
        """Of rows that begin as those numbers of `_BEGIN` say."""
        brought = int((lines[0] * _BEGIN[left][1] + lines[1] * _BEGIN[right][1]) / _LINES)
        if brought <= least:
            return Extent.const(least)
        return _most(Extent.const(least), blocks * brought // _ALL)

    left, right = (sizes.m if sizes.left_across else sizes.k), (sizes.n if sizes.right_across else sizes.k)
    its = [_begin(left, form.size), _begin(right, form.size)]
    same = left == right
    found = Extent.const(0)
    for i in range(len(_BEGIN)):
        for j in [i] if same else range(len(_BEGIN)):
            found = found + (its[0][i] if same else its[0][i] * its[1][j]) * cycles(i, j)
    return found * _OWN // 100 if form.own else found


def _begin(extent: Extent, size: int) -> list[Extent]:
    """1 for how rows of so many elements begin, 0 for all other of `_BEGIN`."""
    found, before = [], Extent.const(0)
    for multiple, _ in _BEGIN:
        count = max(multiple // size, 1)
        whole = extent // count + (extent + (count - 1)) // count * -1 + 1
        found.append(whole + before * -1)
        before = whole
    return found


def _most(a: Extent, b: Extent) -> Extent:
    """The larger of two that are at least 0."""
    smaller = Extent.const(1) // (b // (a + 1) + 1)  # whether b is at most a
    return a * smaller + b * (smaller * -1 + 1)


def _least(a: Extent, b: Extent) -> Extent:
    """The smaller of two that are at least 0."""
    return a + b + _most(a, b) * -1
