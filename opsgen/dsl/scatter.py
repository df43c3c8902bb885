"""Scatters: elements that go to computed positions, and what meets at one of them.

Each is short for a reduction in which every destination looks at all elements and takes its own; compiled, it costs as
much as there are elements and destinations, and so does that reduction where it is written out.
"""

from __future__ import annotations

from typing import Any

from ..errors import error
from .dtypes import LARGEST, DType, promote
from .functions import _extent, _of, _over, _reduce, at, cast, index, where
from .location import user_line
from .tensor import At, Index, Map, Tensor, as_tensor, broadcast_dims


def _scatter(function: str, x: Any, positions: Any, over: Any, into: str, extent: Any) -> Tensor:
    x, positions = as_tensor(x, function), as_tensor(positions, function)
    trace = _of(x, function)
    if positions.dtype.kind not in ("int", "uint"):
        raise error(
            "E1003",
            where=user_line(),
            function=function,
            found=f"positions of type {positions.dtype.name}",
            wanted="integer positions",
        )
    summed = {d for name in ((over,) if isinstance(over, str) else over) for d in _over(positions, name, function)}
    if extent is not None:
        size = _extent(extent, trace)
        if size is None:
            raise error(
                "E1010",
                where=user_line(),
                function=function,
                found=f"the extent of {into!r} is {extent!r}",
                fix="Give a positive int or og.size('dim').",
            )
        destination = trace.declare(into, size)
    else:
        destination = trace.resolve(into)
    dims = broadcast_dims((x, positions))
    if destination in dims:
        raise error("E1007", where=user_line(), found=into, what=f"{function}, of which it is the destination")
    chosen = where(positions == Index(destination), x, _nothing(function, x.dtype))
    found = _reduce({"scatter_add": "sum", "scatter_max": "max", "scatter_min": "min"}[function], chosen, over)
    first = next(d for d in dims if d in summed)
    order = tuple(destination if d == first else d for d in dims if d == first or d not in summed)
    return found if order == found.dims else At(found, {}, order, exact=True)


def _nothing(function: str, dtype: DType) -> float | int:
    """What a destination holds that nothing comes to."""
    if function == "scatter_add":
        return 0
    sign = -1 if function == "scatter_max" else 1
    if dtype.kind == "float":
        return sign * float("inf")
    largest_value = int(LARGEST[dtype.name])
    return largest_value if sign > 0 else 0 if dtype.kind == "uint" else -largest_value - 1


def scatter_add(x: Any, positions: Any, *, over: Any, into: str, extent: Any = None) -> Tensor:
    """The sums of the elements of x that go to each position of the dim ``into``, as torch.index_add of zeros.

    ``og.scatter_add(grad, ids, over="tokens", into="vocab")`` adds row t of grad to row ids[t] of the result: it is
    ``og.sum(og.where(ids == og.index("vocab"), grad, 0), over="tokens")``. A number goes where all positions are:
    ``og.scatter_add(1, ids, over="tokens", into="vocab")`` counts. ``over`` is a dim of the positions, or
    several; ``into`` is a dim of the op, or a new one with an ``extent`` (an int or og.size), and takes the place of
    ``over`` in the result. Elements whose position lies outside of [0, extent) go nowhere. Positions that nothing comes
    to get 0. Integers give int64. The order of a sum is that of the elements, or depends on the sizes alone.
    """
    return _scatter("scatter_add", x, positions, over, into, extent)


def scatter_max(x: Any, positions: Any, *, over: Any, into: str, extent: Any = None) -> Tensor:
    """The largest element of x that goes to each position of the dim ``into``; see `scatter_add`. NaN wins.

    Positions that nothing comes to get -inf, of integers the smallest.
    """
    return _scatter("scatter_max", x, positions, over, into, extent)


def scatter_min(x: Any, positions: Any, *, over: Any, into: str, extent: Any = None) -> Tensor:
    """The smallest element of x that goes to each position of the dim ``into``; see `scatter_add`. NaN wins.

    Positions that nothing comes to get inf, of integers the largest.
    """
    return _scatter("scatter_min", x, positions, over, into, extent)


def _as_stored(x: Tensor, kind: DType) -> Tensor:
    """x rounded to the type of the tensor that it goes into."""
    if promote(x.dtype, kind) != kind and not (x.dtype.kind == kind.kind and (x.weak or kind.kind == "float")):
        raise error(
            "E1003",
            where=user_line(),
            function="scatter_set",
            found=f"{x.dtype.name} that goes into {kind.name}",
            wanted="elements of a type that the tensor's holds; cast them",
        )
    if x.dtype == kind and not (kind.bits < 32 and x.children()):  # halves are computed in float32
        return x
    return cast(x, kind) if x.dtype != kind else Map("cast", (x,), x.dims, kind)


def scatter_set(tensor: Any, x: Any, positions: Any, *, over: str, into: str) -> Tensor:
    """``tensor`` with the elements of x at their positions along its dim ``into``, as torch.index_copy and JAX's
    ``.at[].set`` have it.

    ``og.scatter_set(cache, new, slots, over="tokens", into="entries")`` is cache with row t of new in the place of row
    slots[t]. ``over`` is a dim of the positions; the other dims of x and of the positions are those of the tensor. A
    number goes to all of them. Of elements with the same position the last one along ``over`` stays (torch and JAX
    leave open which); those whose position lies outside of [0, extent) go nowhere, negative ones too. x is rounded to
    the tensor's type. A call in which x has no element along ``over`` gets E4010.

    It is ``og.where(last < 0, tensor, x.at(over=last))`` with ``last = og.scatter_max(og.index(over), positions, …)``.
    As the new value of the Mut parameter that ``tensor`` is, it writes the elements of x and touches no others.

    Raises:
        DefinitionError: E1003, types do not go together; E1007 and E1010, dims do not.
    """
    tensor, x, positions = (as_tensor(t, "scatter_set") for t in (tensor, x, positions))
    trace = _of(tensor, "scatter_set")
    summed = _over(positions, over, "scatter_set")
    source, destination = summed[0], trace.resolve(into)
    own = {d for t in (x, positions) for d in t.dims if d != source}
    kept = set(tensor.dims) - {destination}
    if len(summed) > 1 or destination not in tensor.dims or source in tensor.dims or own - kept:
        raise error(
            "E1010",
            where=user_line(),
            function="scatter_set",
            found=f"x has dims {list(x.dims)}, the positions {list(positions.dims)}, the tensor {list(tensor.dims)}",
            fix=f"One dim, over={over!r}, takes the place of {into!r}; all others must be the tensor's.",
        )
    x = _as_stored(x, tensor.dtype)
    last = _scatter("scatter_max", index(over), positions, over, into, None)
    return where(last < 0, tensor, at(x, **{over: last}) if source in x.dims else x)


__all__ = ["scatter_add", "scatter_max", "scatter_min", "scatter_set"]
