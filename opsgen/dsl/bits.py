"""Functions on the bits of integers. Operators have the rest: ``& | ^ ~ << >>``."""

from __future__ import annotations

from typing import Any

from ..errors import error
from . import dtypes
from .location import user_line
from .tensor import Map, Tensor, as_tensor, elementwise

_WIDTHS = (32, 64)


def wide_product(x: Any, y: Any) -> Tensor:
    """The product of the lower 32 bits of two integers, taken as unsigned numbers: all of its 64 bits, as an int64.

    From 2^63 on it is negative. Its upper half is ``p >> 32 & 0xFFFFFFFF`` and its lower one ``p & 0xFFFFFFFF``.

    Raises:
        DefinitionError: E1003, an operand is no integer.
    """
    return elementwise("wide_product", x, y)


def bitcast(x: Any, dtype: Any) -> Tensor:
    """The bits of a number as one of another type: of float32 and int32, or of float64 and int64. -0.0 as an int32 is
    -2^31, and what is NaN has 2^24 - 2 forms.

    Raises:
        DefinitionError: E1003, an unknown dtype, or not two types of 32 bits or of 64.
    """
    x = as_tensor(x, "bitcast")
    target = dtypes.as_dtype(dtype)
    if target is None:
        found = f"dtype {str(dtype)!r}"
        raise error("E1003", where=user_line(), function="bitcast", found=found, wanted=sorted(dtypes.DTYPES))
    if x.dtype.bits != target.bits or target.bits not in _WIDTHS:
        wanted = "two types of 32 bits, or two of 64"
        found = f"{x.dtype.name} as {target.name}"
        raise error("E1003", where=user_line(), function="bitcast", found=found, wanted=wanted)
    return x if target == x.dtype and not x.weak else Map("bitcast", (x,), x.dims, target)


__all__ = ["bitcast", "wide_product"]
