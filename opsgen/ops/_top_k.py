"""The k largest elements along a dim, in order: what top_k and routers are made of."""

from __future__ import annotations

import opsgen as og
from opsgen.dsl.tensor import Tensor

FEW = 16
"""Up to so many are found one after the other."""

BLOCK = 64
"""Elements of a block, where more are wanted."""


def largest(x: Tensor, over: str, k: int, slots: str) -> Tensor:
    """The positions of the k largest elements of x along ``over``, along a new dim ``slots``.

    Sorted as torch.topk sorts: NaN first, then the largest; -0 and 0 are equal, and of equals the first goes first. The
    dim has k elements at least, which the caller requires.
    """
    if k > FEW:
        return _by_blocks(x, over, k, slots)
    order = _order(x)
    found = _maxima(order, over, k) if order.dtype == og.int32 else _wide_maxima(order, over, k)
    slot = og.compute(lambda nth: nth, nth=k).rename(nth=slots)
    chosen = og.where(slot == k - 1, found[-1], found[-1])  # along the slots, of which there may be one
    for i in range(k - 2, -1, -1):
        chosen = og.where(slot == i, found[i], chosen)
    return chosen


def _order(x: Tensor) -> Tensor:
    """Integers that are ordered as the elements of x are."""
    width = max(x.dtype.bits, 32)
    floating, integer = (og.float64, og.int64) if width == 64 else (og.float32, og.int32)
    bits = og.bitcast(og.cast(og.where(x == 0, 0.0, x), floating), integer)
    largest_integer = 2 ** (width - 1) - 1
    ordered = bits ^ ((bits >> (width - 1)) & largest_integer)  # of negative floats, a larger magnitude is less
    return og.where(og.isnan(x), largest_integer, ordered)


def _maxima(order: Tensor, over: str, k: int) -> list[Tensor]:
    """Where the k largest are: maxima of numbers that are all different, with the position in the lower half."""
    low = 0xFFFFFFFF
    key = (og.cast(order, og.int64) << 32) | (low - og.index(over))
    found = [og.max(key, over=over)]
    for _ in range(k - 1):
        found.append(og.max(og.where(key < found[-1], key, -(2**63)), over=over))
    return [low - (key & low) for key in found]


def _wide_maxima(order: Tensor, over: str, k: int) -> list[Tensor]:
    """Where the k largest are: of those that come after the one before, the largest, and of these the first."""
    found: list[Tensor] = []
    place = og.index(over)
    left: Tensor | None = None
    for _ in range(k):
        largest = og.max(order if left is None else og.where(left, order, -(2**63)), over=over)
        equal = order == largest if left is None else (order == largest) & left
        found.append(og.min(og.where(equal, place, 2**63 - 1), over=over))
        left = (order < largest) | ((order == largest) & (place > found[-1]))
    return found


def _by_blocks(x: Tensor, over: str, k: int, slots: str) -> Tensor:
    """The k largest of the blocks that have the largest elements, of which no more than k can have one of them.

    For an element of another block there are k that go before it, one in each of these: a larger one, or an equal one
    in front of it. Behind the blocks of the row there are empty ones, so that there are always k.
    """
    place = og.compute(lambda blocks, lanes: blocks * BLOCK + lanes, blocks=og.size(over) // BLOCK + k, lanes=BLOCK)
    best = og.max(_order_at(x, over, place), over="lanes")
    block = _first(best, "blocks", k, "chosen")
    number = og.compute(lambda candidates: candidates, candidates=k * BLOCK)
    place = block.at(chosen=number // BLOCK) * BLOCK + number % BLOCK
    # A maximum over one element: what it gives is stored, and not read at computed positions in each pass that follows.
    order = og.max(_order_at(x, over, place + og.compute(lambda once: once, once=1)), over="once")
    found = _first(order, "candidates", k, "found")
    mine = order.at(candidates=found)
    other = mine.rename(found="others")
    before = (other > mine) | ((other == mine) & (og.index("others") < og.index("found")))
    rank = og.sum(og.where(before, 1, 0), over="others")
    return og.scatter_max(place.at(candidates=found), rank, over="found", into=slots, extent=k)


def _order_at(x: Tensor, over: str, place: Tensor) -> Tensor:
    """The order of the element at a position; the least integer, which no element has, behind the end."""
    order = _order(x.at(**{over: place}))
    return og.where(place < og.size(over), order, -(2 ** (order.dtype.bits - 1)))


def _first(order: Tensor, over: str, k: int, into: str) -> Tensor:
    """The positions of the k largest integers, as they lie; of equals the first are taken.

    The k-th largest is found bit by bit, by counting how many reach a number.
    """
    width = order.dtype.bits
    threshold: Tensor = og.cast(-(1 << (width - 1)), order.dtype)
    for shift in range(width - 1, -1, -1):
        higher = threshold ^ (1 << shift if shift < width - 1 else -(1 << shift))
        reached = og.sum(og.where(order >= higher, 1, 0), over=over)
        threshold = og.where(reached >= k, higher, threshold)
    above, level = order > threshold, order == threshold
    room = k - og.sum(og.where(above, 1, 0), over=over)  # for equals of the last one
    before, equals = (og.cumsum(og.where(c, 1, 0), over=over) for c in (above, level))
    slot = og.where(above | (level & (equals <= room)), before + og.min(equals, room) - 1, -1)
    return og.scatter_max(og.index(over), slot, over=over, into=into, extent=k)
