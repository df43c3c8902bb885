"""Functions on the bits of integers. Operators have the rest: ``& | ^ ~ << >>``."""

from __future__ import annotations

from typing import Any

from .tensor import Tensor, elementwise


def wide_product(x: Any, y: Any) -> Tensor:
    """The product of the lower 32 bits of two integers, taken as unsigned numbers: all of its 64 bits, as an int64.

    From 2^63 on it is negative. Its upper half is ``p >> 32 & 0xFFFFFFFF`` and its lower one ``p & 0xFFFFFFFF``.

    Raises:
        DefinitionError: E1003, an operand is no integer.
    """
    return elementwise("wide_product", x, y)


__all__ = ["wide_product"]
