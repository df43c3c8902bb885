"""Scans: running sums, products and extremes along a dim.

Sums and products of integers give int64, as those over a whole dim do. Half types are computed in float32, as
everywhere, and what is carried along a long dim may be wider still.
"""

from __future__ import annotations

from typing import Any

from ..errors import error
from . import dtypes
from .functions import _over
from .location import user_line
from .tensor import Scan, Tensor, as_tensor


def _scan(function: str, op: str, x: Any, over: Any, exclusive: bool, reverse: bool) -> Tensor:
    x = as_tensor(x, function)
    if x.dtype.kind == "bool":
        raise error("E1003", where=user_line(), function=function, found="bool", wanted="numbers")
    dims = _over(x, over, function)
    if len(dims) != 1:
        raise error(
            "E1010",
            where=user_line(),
            function=function,
            found=f"{len(dims)} dims to run along",
            fix="Merge them first, which says in what order: x.merge('a', 'b', into='ab').",
        )
    for name, flag in (("exclusive", exclusive), ("reverse", reverse)):
        if not isinstance(flag, bool):
            raise error(
                "E1010", where=user_line(), function=function, found=f"{name} is {flag!r}", fix="Pass True or False."
            )
    whole = op in ("sum", "prod") and x.dtype.kind in ("int", "uint")
    return Scan(op, x, dims[0], dtypes.int64 if whole else x.dtype, exclusive, reverse)


def cumsum(x: Any, over: str, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The sum of the elements along a dim up to each position, as torch.cumsum. Integers give int64.

    ``exclusive`` leaves the position's own element out: the first one is 0. ``reverse`` runs from the last element to
    the first.
    """
    return _scan("cumsum", "sum", x, over, exclusive, reverse)


def cumprod(x: Any, over: str, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The product of the elements along a dim up to each position, as torch.cumprod. Integers give int64.

    ``exclusive`` and ``reverse`` are as for `cumsum`; the first exclusive one is 1.
    """
    return _scan("cumprod", "prod", x, over, exclusive, reverse)


def cummax(x: Any, over: str, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The largest element along a dim up to each position. From a NaN on, it is NaN.

    ``exclusive`` and ``reverse`` are as for `cumsum`; the first exclusive one is -inf (of integers the smallest).
    """
    return _scan("cummax", "max", x, over, exclusive, reverse)


def cummin(x: Any, over: str, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The smallest element along a dim up to each position. From a NaN on, it is NaN.

    ``exclusive`` and ``reverse`` are as for `cumsum`; the first exclusive one is inf (of integers the largest).
    """
    return _scan("cummin", "min", x, over, exclusive, reverse)


__all__ = ["cummax", "cummin", "cumprod", "cumsum"]
