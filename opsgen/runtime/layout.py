"""Which stride patterns a launcher takes as they are (docs/library-format.md, "Calling a launcher")."""

from __future__ import annotations

from itertools import pairwise


def is_direct(shape: tuple[int, ...], strides: tuple[int, ...], leading: int | None) -> bool:
    """Whether a launcher takes this layout without a copy.

    Args:
        shape, strides: of the array, in elements.
        leading: how many of its first dims flatten to one; None for a tensor without ``"..."``.
    """
    if 0 in shape:
        return True
    flat = 0 if leading is None else leading
    rows = [(extent, stride) for extent, stride in zip(shape[:flat], strides[:flat]) if extent > 1]
    if any(outer != extent * stride for (_, outer), (extent, stride) in pairwise(rows)):
        return False
    if len(shape) > flat:
        return shape[-1] <= 1 or strides[-1] == 1
    return not rows or rows[-1][1] == 1


def shares_elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two positions may name one element: a stride of 0, or a stride shorter than what lies inside it.

    An output must not. (A few exotic layouts that never share are refused too; no framework makes them.)
    """
    if 0 in shape:
        return False
    reach = 0
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False
