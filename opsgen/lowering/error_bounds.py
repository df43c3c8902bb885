"""How far a right result may be from its value in float64: a running error analysis over an op's graph.

Every node gets its value in float64 (`opsgen.lowering.to_numpy`) and a bound on how far an evaluation in the node's own
compute type may be from it: the rounding of the node itself, and what the bounds of its operands make of it. Where
rounding can decide (a comparison of nearly equal numbers, floor beside an integer, an overflow), the bound is infinite:
such elements are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dsl.dtypes import DType, compute_type, float8
from ..dsl.op import Graph, Op
from ..dsl.tensor import At, Concat, Const, Map, Reduce, Scalar, Scan, Tensor, common_type, walk
from ..dsl.trace import ROWS
from .to_numpy import _MAPS, Evaluator, bind_sizes, check_constraints, numpy_type, trace_for

Array = NDArray[Any]

UNIT = {
    "float64": 2.0**-52, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3,
}  # fmt: skip
"""Half the distance of neighbours, relative; for float64 twice that, as the reference has errors of its own."""
LARGEST = {
    "float64": 1.79e308, "float32": 3.4028e38, "float16": 65504.0, "bfloat16": 3.38e38,
    "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0,
}  # fmt: skip
SMALLEST = {
    "float64": 2.0**-1060, "float32": 2.0**-146, "float16": 2.0**-24, "bfloat16": 2.0**-131,
    "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16,
}  # fmt: skip


@dataclass(frozen=True)
class Freedom:
    """What a target may be off by beyond the roundings of exact arithmetic.

    Attributes:
        float8_sums: of a sum of products of float8, of the sum of their magnitudes.
        half_functions: relative, of results of half types, for functions that stand for others where that is all that
            becomes of their values; two of them, for a product.
        flushed: below which such functions give 0.
    """

    float8_sums: float = 0.0
    half_functions: float = 0.0
    flushed: float = 0.0


NONE = Freedom()
NVIDIA = Freedom(float8_sums=2.0**-10, half_functions=2.0**-16, flushed=2.0**-126)
"""Hopper's tensor cores align the products of float8 of a step and cut off bits (H200, 8192 positive terms, sums of 128
added up in float32: 7.1e-4). Functions for half types are off by 2^-17 (schedules/cuda/half_forms.py)."""


STAND_IN = 1e20
"""Constants beyond this stand in for infinity."""

_EXACT = {"bitcast", "neg", "abs", "max", "min", "round", "floor", "ceil", "where", "cast"}
_MONOTONE = {"exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "floor", "ceil", "round"}
_FUNCTION_UNITS = 16  # 8 units in the last place: more than any function's stated error

_SCAN_ROUNDINGS = 32  # neighbours in a vector, in a thread, in a warp and in a block are added up before the carry is


def _times(a: Array, b: Array) -> Array:
    """a * b, where 0 times anything is 0."""
    return np.where((a == 0) | (b == 0), 0.0, a * b)


def _of_float8(n: Reduce) -> bool:
    """Whether a sum is one of products of float8."""
    product = n.arg
    return isinstance(product, Map) and product.op == "mul" and all(a.dtype in float8.members for a in product.args)


def _roundings(n: Map) -> int:
    """Of an operation. A division by what comes of a sum may be a product with the reciprocal."""
    sums: list[Tensor] = []
    if n.op == "div":
        walk((n.args[1],), lambda m: sums.append(m) if isinstance(m, Reduce) and m.op == "sum" else None)
    return 2 if sums else 1


class _Bounds:
    def __init__(self, run: Evaluator, freedom: Freedom) -> None:
        self.freedom = freedom
        self.run = run
        self.errors: dict[int, Array] = {}

    def node(self, n: Tensor) -> None:
        value = np.asarray(self.run.values[id(n)])
        error = np.broadcast_to(np.asarray(self._error(n, value), np.float64), value.shape).copy()
        error[np.isnan(error)] = np.inf
        kind = compute_type(n.dtype)
        if kind.kind == "float":
            unit, finite = UNIT[kind.name], np.isfinite(value)
            own = 0.0
            if isinstance(n, Map) and n.op not in _EXACT:
                own = unit * (_FUNCTION_UNITS if n.op in _MONOTONE | {"sin", "cos", "pow"} else _roundings(n))
            if isinstance(n, Const):
                # A stand-in for infinity is rounded too, but is only compared, and subtracted from itself.
                own = 0.0 if float(np.float32(n.value)) == float(n.value) or abs(n.value) > STAND_IN else unit
            if isinstance(n, Scalar):  # passed as a float32, which holds whole numbers exactly
                own = 0.0 if np.float32(value) == value else UNIT["float32"]
            if isinstance(n, Map) and n.op == "cast" and n.dtype.kind == "float" and n.dtype.bits < 32:
                own = UNIT[n.dtype.name]
                error[finite] += SMALLEST[n.dtype.name]
            error[finite] += own * np.abs(value[finite]) + (SMALLEST[kind.name] if own else 0)
            limit = LARGEST[n.dtype.name if isinstance(n, Map) and n.op == "cast" else kind.name]
            error[finite & (np.abs(np.where(finite, value, 0)) + error >= limit)] = np.inf
        self.errors[id(n)] = error

    def _error(self, n: Tensor, value: Array) -> Any:
        if isinstance(n, Map):
            x = [self.run.align(np.asarray(self.run.values[id(a)]), a.dims, n.dims) for a in n.args]
            e = [self.run.align(self.errors[id(a)], a.dims, n.dims) for a in n.args]
            return self._map(n, value, x, e)
        if isinstance(n, Reduce):
            return self._reduce(n, value)
        if isinstance(n, Scan):
            return self._scan(n, value)
        if isinstance(n, At):
            shape = [self.run.sizes[d] for d in n.source.dims]
            error = np.array(self.run.read(n, np.broadcast_to(self.errors[id(n.source)], shape)), np.float64)
            for position in n.coords.values():
                unsure = self.run.align(self.errors[id(position)], position.dims, n.dims) > 0
                error[np.broadcast_to(unsure, error.shape)] = np.inf
            return error
        if isinstance(n, Concat):
            parts = []
            for part, dim in zip(n.parts, n.part_dims):
                dims = tuple(n.dim if d == dim else d for d in part.dims)
                full = np.broadcast_to(self.errors[id(part)], [self.run.sizes[d] for d in part.dims])
                parts.append(self.run.align(full, dims, n.dims))
            return np.concatenate(parts, axis=n.dims.index(n.dim))
        return 0.0

    def _map(self, n: Map, value: Array, x: list[Array], e: list[Array]) -> Array:
        op = n.op
        if op == "where":
            picked = np.where(x[0], e[1], e[2])
            return np.where(e[0] > 0, np.inf, picked)
        unsure = np.zeros(value.shape, bool)
        for error in e:
            unsure |= np.isinf(error)
        if op in ("and", "or", "not"):
            certain = {"and": False, "or": True}.get(op)
            known = np.zeros(value.shape, bool)
            for a, b in zip(x, e):
                known |= (a == certain) & (b == 0) if certain is not None else False
            return np.where(unsure & ~known, np.inf, 0.0)
        if op in ("eq", "ne", "lt", "le", "gt", "ge"):
            if x[0].dtype == bool:
                return np.where(unsure, np.inf, 0.0)
            slack = e[0] + e[1]
            common = compute_type(common_type(n.args)[0])
            if common.kind == "float" and any(a.dtype.kind != "float" for a in n.args):  # integers rounded to a float
                slack = slack + UNIT[common.name] * (np.abs(x[0]) + np.abs(x[1])) * (
                    np.maximum(abs(x[0]), abs(x[1])) > 2**24
                )
            return np.where(unsure | ((slack > 0) & (np.abs(x[0].astype(float) - x[1]) <= slack)), np.inf, 0.0)
        if op == "isnan":
            return np.where(unsure, np.inf, 0.0)
        if op == "bitcast":
            return np.where(unsure | (e[0] > 0), np.inf, 0.0)
        if op == "cast" and n.dtype.kind != "float":
            if n.dtype.kind == "bool":
                return np.where(unsure | ((e[0] > 0) & (np.abs(x[0]) <= e[0])), np.inf, 0.0)
            if x[0].dtype.kind != "f":
                return np.where(unsure, np.inf, 0.0)
            wild = ~np.isfinite(x[0]) | (np.abs(x[0]) >= 2.0 ** (n.dtype.bits - 1) - 1)  # unspecified
            moved = np.trunc(x[0] - e[0]) != np.trunc(x[0] + e[0])
            return np.where(unsure | wild | moved, np.inf, 0.0)
        if value.dtype.kind != "f":
            return np.where(unsure, np.inf, 0.0)
        x = [a.astype(np.float64) for a in x]
        found = np.asarray(self._float_map(n, value, x, e), np.float64)
        found = np.where(np.isnan(found) & (sum(e) == 0), 0.0, found)
        return np.where(unsure, np.inf, found)

    def _float_map(self, n: Map, value: Array, x: list[Array], e: list[Array]) -> Any:
        op, unit = n.op, UNIT[compute_type(n.dtype).name]
        if op == "cast":
            return e[0] + (
                unit * np.abs(x[0]) if n.args[0].dtype.kind != "float" or n.args[0].dtype.bits > n.dtype.bits else 0
            )
        if op in ("neg", "abs"):
            return e[0]
        if op in ("sin", "cos"):
            return np.where(np.isfinite(x[0]), e[0] + unit * 16, 0.0)
        if op in _MONOTONE:
            down, up = _MAPS[op](x[0] - e[0]), _MAPS[op](x[0] + e[0])
            both_nan = np.isnan(down) & np.isnan(up)
            same = (down == value) & (up == value)
            spread = np.maximum(np.abs(up - value), np.abs(down - value))
            return np.where(both_nan | same, 0.0, spread)
        finite = np.isfinite(value)
        if op in ("add", "sub"):
            return np.where(finite, e[0] + e[1], np.where(e[0] + e[1] < np.inf, 0.0, np.inf))
        if op == "mul":
            error = _times(np.abs(x[0]), e[1]) + _times(np.abs(x[1]), e[0]) + _times(e[0], e[1])
            sure = (np.abs(x[0]) > e[0]) & (np.abs(x[1]) > e[1]) | np.isnan(x[0]) | np.isnan(x[1]) | (e[0] + e[1] == 0)
            return np.where(finite, error, np.where(sure, 0.0, np.inf))
        if op == "div":
            far = np.abs(x[1]) - e[1]
            error = (e[0] + _times(np.abs(value), e[1])) / np.where(far > 0, far, 1)
            sure = (
                (e[1] == 0) & ((e[0] == 0) | (np.abs(x[0]) > e[0]))
                | np.isnan(x[0])
                | np.isnan(x[1])
                | np.isinf(x[0]) & (far > 0)
            )
            return np.where(finite & (far > 0), np.where(np.isinf(x[1]), 0.0, error), np.where(sure, 0.0, np.inf))
        if op in ("max", "min"):
            return np.maximum(e[0], e[1])
        if op in ("floordiv", "mod"):
            q = x[0] / x[1]
            far = np.abs(x[1]) - e[1]
            slack = (e[0] + np.abs(q) * e[1]) / np.where(far > 0, far, 1) + 2 * unit * np.abs(q)
            exact = (e[0] + e[1] == 0) & (q == np.round(q)) & (np.abs(q) < 2**20)
            sure = np.isfinite(q) & (far > 0) & (exact | (np.floor(q - slack) == np.floor(q + slack)))
            moved = e[0] + np.abs(q) * e[1] + e[1] + unit * (np.abs(q * x[1]) + np.abs(x[1])) * 2
            return np.where(sure, 0.0 if op == "floordiv" else moved, np.inf)
        if op == "pow":
            a, b = x
            with_sign = np.where(np.abs(a) > e[0], 0.0, np.inf)
            low = np.maximum(np.abs(a) - e[0], 0)
            high = np.abs(a) + e[0]
            candidates = [np.abs(np.power(s, b + t)) for s in (low, high) for t in (-e[1], e[1])]
            spread = np.maximum.reduce([np.abs(c - np.abs(value)) for c in candidates])
            never_negative = np.where(
                (b % 1 == 0) & (b >= 0) & (e[1] == 0), np.maximum(spread, 2 * high ** np.abs(b)), np.inf
            )
            return np.where(e[0] + e[1] == 0, 0.0, np.where(with_sign == 0, spread, never_negative))
        raise AssertionError(op)

    def _reduce(self, n: Reduce, value: Array) -> Any:
        x = self.run.full(n.arg)
        e = np.broadcast_to(self.errors[id(n.arg)], x.shape)
        axes = tuple(n.arg.dims.index(d) for d in n.over)
        count = int(np.prod([x.shape[a] for a in axes]))
        if n.op in ("argmax", "argmin"):
            y = x.astype(np.float64) * (1 if n.op == "argmax" else -1)
            if count == 0:
                return 0.0
            has_nan = np.isnan(y).any(axis=axes[0])
            low = np.max(np.where(np.isnan(y), -np.inf, y - e), axis=axes[0], keepdims=True)
            candidates = (y + e >= low).sum(axis=axes[0])
            errors = np.where(y + e >= low, e, 0).max(axis=axes[0])
            unsure = np.isinf(e).any(axis=axes[0]) | (~has_nan & (candidates > 1) & (errors > 0))
            return np.where(unsure, np.inf, 0.0)
        if value.dtype.kind != "f":
            return np.where(np.isinf(e).any(axis=axes), np.inf, 0.0)
        unit = UNIT[compute_type(n.dtype).name]
        unsure = np.isinf(e).any(axis=axes)
        if n.op in ("max", "min"):
            return e.max(axis=axes, initial=0)
        roundings = 8 + 4 * np.sqrt(count)  # partial sums in several lanes, errors of either sign
        if n.op == "sum":
            total = np.abs(x).sum(axis=axes)
            error = e.sum(axis=axes) + roundings * unit * total
            if _of_float8(n):
                error = error + self.freedom.float8_sums * total
            error = np.where(np.isfinite(x).all(axis=axes) & (total >= LARGEST["float32"] / 4), np.inf, error)
        else:
            top = np.abs(x) + e
            high = np.prod(top, axis=axes)
            error = high - np.prod(np.abs(x), axis=axes) + 2 * count * unit * high
            # partial products may leave the range even where the product does not
            partial = np.prod(np.maximum(top, 1), axis=axes)
            tiny = np.prod(np.minimum(np.abs(x), 1), axis=axes)
            wild = (
                (partial >= LARGEST["float32"] / 4)
                | ((tiny < 1e-36) & (np.abs(x) > 0).all(axis=axes))
                | ((tiny < 1e-36) & (partial > 1e3))
            )
            error = np.where(wild & np.isfinite(x).all(axis=axes), np.inf, error)
        plain = np.isfinite(x).all(axis=axes)
        error = np.where(plain, error, 0.0 if n.op == "sum" else np.where(e.sum(axis=axes) > 0, np.inf, 0.0))
        return np.where(unsure, np.inf, error)

    def _scan(self, n: Scan, value: Array) -> Any:
        """As for reductions of every length. A float32 sum is carried along in float64, so that its roundings are those
        of a few elements side by side, however many came before."""
        axis = n.dims.index(n.over)
        x, e = self.run.full(n.arg), np.broadcast_to(self.errors[id(n.arg)], value.shape)
        if n.reverse:
            x, e = np.flip(x, axis), np.flip(e, axis)
        error = self._running(n, x, e, axis)
        if n.exclusive:
            error = np.concatenate([np.zeros_like(np.take(error, [0], axis)), error], axis) if error.size else error
            error = np.take(error, range(x.shape[axis]), axis)
        return np.flip(error, axis) if n.reverse else error

    def _running(self, n: Scan, x: Array, e: Array, axis: int) -> Array:
        def along(function: Any, x: Array) -> Array:
            return np.asarray(function.accumulate(x, axis=axis))

        unsure = along(np.logical_or, np.isinf(e))
        if x.dtype.kind != "f":
            return np.where(unsure, np.inf, 0.0)
        if n.op in ("max", "min"):
            return along(np.maximum, e)
        size, kind = np.abs(x.astype(np.float64)), compute_type(n.dtype).name
        e = np.where(np.isinf(e), 0.0, e)
        unit, plain = UNIT[kind], along(np.logical_and, np.isfinite(x))
        if n.op == "sum":
            total = along(np.add, size)
            roundings = _SCAN_ROUNDINGS + (4 * np.sqrt(x.shape[axis]) if kind == "float64" else 0)
            error = np.where(
                plain & (total >= LARGEST["float32"] / 4), np.inf, along(np.add, e) + roundings * unit * total
            )
            moved: Any = 0.0
        else:
            top, count = size + e, x.shape[axis]
            high = along(np.multiply, top)
            partial, tiny = along(np.multiply, np.maximum(top, 1)), along(np.multiply, np.minimum(size, 1))
            error = high - along(np.multiply, size) + 2 * count * unit * high
            wild = (partial >= LARGEST["float32"] / 4) | ((tiny < 1e-36) & (along(np.minimum, size) > 0))
            error = np.where(wild & plain, np.inf, error)
            moved = np.where(along(np.add, e) > 0, np.inf, 0.0)
        return np.where(unsure, np.inf, np.where(plain, error, moved))


@dataclass(frozen=True)
class Bounded:
    """One result: its value in float64 (or exact, for integers), the bound, and the type in which it is stored."""

    value: Array
    bound: Array
    dtype: DType

    def wrong(self, got: Array) -> Array:
        """Positions at which ``got``, in the result's own type, is further from the value than it may be."""
        if got.shape != self.value.shape:
            raise AssertionError(f"shape {got.shape} where {self.value.shape} is right")
        if str(got.dtype) != self.dtype.name:
            raise AssertionError(f"dtype {got.dtype} where {self.dtype.name} is right")
        return self.off(got.astype(np.float64) if self.value.dtype.kind == "f" else got)

    def off(self, found: Array) -> Array:
        """The same for values of the same shape that were read into float64, or as they are for integers."""
        if self.value.dtype.kind != "f":
            return np.argwhere((found != self.value) & ~np.isinf(self.bound))
        with np.errstate(all="ignore"):
            near = np.abs(found - self.value) <= self.bound
            beyond = np.abs(self.value) + self.bound >= LARGEST[self.dtype.name]
            near |= beyond & np.isinf(found) & (np.sign(found) == np.sign(self.value))
        same = (found == self.value) | (np.isnan(found) & np.isnan(self.value))
        return np.argwhere(~(near | same | np.isinf(self.bound)))

    @property
    def checked(self) -> int:
        """How many elements have a bound that says something."""
        scale = np.where(np.isfinite(self.value.astype(np.float64)), np.abs(self.value.astype(np.float64)), 0) + 1
        return int((self.bound <= 0.05 * scale).sum())


def bounded(op: Op, values: Mapping[str, Any], freedom: Freedom = NONE) -> dict[str, Bounded]:
    """Each result of a call, with what it may be off by. ``values``: the call's arguments by name, all of them."""
    arrays = {p.name: np.asarray(values[p.name]) for p in op.parameters if p.spec and values[p.name] is not None}
    return graph_bounds(trace_for(op, arrays, values), arrays, values, freedom)


def graph_bounds(
    graph: Graph, arrays: Mapping[str, Array], values: Mapping[str, Any], freedom: Freedom = NONE
) -> dict[str, Bounded]:
    """Each result of a call of a graph; ``values``: its scalars."""
    sizes, lead = bind_sizes(graph, arrays)
    leaves: dict[str, Any] = {s.name: values[s.name] for s in graph.scalars}
    for node in graph.inputs:
        x = arrays[node.name]
        flatten = graph.leading and node.dims[:1] == (ROWS,)
        leaves[node.name] = x.reshape((sizes[ROWS], *x.shape[len(lead) :])) if flatten else x
    check_constraints(graph, sizes)
    found = bounds_at(graph, sizes, leaves, freedom=freedom)
    for r in graph.results:
        if graph.leading and ROWS in r.value.dims:
            at, flat = r.value.dims.index(ROWS), found[r.name]
            shape = flat.value.shape[:at] + lead + flat.value.shape[at + 1 :]
            found[r.name] = Bounded(flat.value.reshape(shape), flat.bound.reshape(shape), r.dtype)
    return found


def bounds_at(
    graph: Graph,
    sizes: Mapping[str, int],
    leaves: Mapping[str, Any],
    positions: Mapping[str, Array] | None = None,
    freedom: Freedom = NONE,
) -> dict[str, Bounded]:
    """Each result, its leading dims flattened, at some positions of some dims alone.

    Args:
        sizes: extents of free dims.
        leaves: values of inputs and scalars, with the given positions.
        positions: by dim, those that `opsgen.analysis.samples.choose` gives.
        freedom: what the target may be off by besides.
    """
    run = Evaluator(graph, sizes, leaves, double=True, positions=positions)
    run.run(graph.outputs())
    bounds = _Bounds(run, freedom)
    with np.errstate(all="ignore"):
        walk(graph.outputs(), bounds.node)
    found = {}
    for r in graph.results:
        y = run.full(r.value)
        b = np.broadcast_to(bounds.errors[id(r.value)], y.shape)
        if r.dtype.kind == "float" and y.dtype.kind == "f":
            size = np.where(np.isfinite(y), np.abs(y), 0)
            own = UNIT[r.dtype.name] * size + SMALLEST[r.dtype.name]
            if r.dtype.name in ("float16", "bfloat16"):
                own = own + freedom.half_functions * size + freedom.flushed
            # What stands in for infinity was taken as exact above; as a result it is a number of its type.
            stored = r.dtype != compute_type(r.value.dtype)
            b = b * (1 + UNIT[r.dtype.name]) + own if stored else np.where(size > STAND_IN, b + own, b)
        found[r.name] = Bounded(y if y.dtype.kind == "f" else y.astype(numpy_type(r.dtype)), b, r.dtype)
    return found
