"""Conditions of launches."""

from __future__ import annotations

from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Comparison


def undecided(*when: Comparison) -> tuple[Comparison, ...] | None:
    """The conditions that only a call decides; None if one of the others, whose dims are bound, does not hold."""
    left: list[Comparison] = []
    for extent, comparison, limit in when:
        if extent.value is None:
            left.append((extent, comparison, limit))
        elif not (extent.value <= limit if comparison == "<=" else extent.value > limit):
            return None
    return tuple(left)


def waves(tiles: Extent, multiprocessors: int, tenths_idle: int) -> Comparison:
    """That the last wave of tiles, one for each multiprocessor, leaves no more than so many tenths of all idle."""
    whole = (tiles + (multiprocessors - 1)) // multiprocessors * (10 * multiprocessors)
    return whole + tiles * -(10 + tenths_idle), "<=", 0


def rest_of(length: Extent, width: int) -> Extent:
    """What is left of a length that is divided by a width."""
    return length + (length // width) * -width
