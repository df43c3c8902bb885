"""The graph in numpy: the reference evaluator. Slow and plain; in float64 on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dsl.dtypes import LARGEST, DType, compute_type
from ..dsl.op import Graph, Op
from ..dsl.tensor import At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor, walk
from ..dsl.trace import ROWS
from ..errors import InternalError, error

Array = NDArray[Any]


def _erf(x: Array) -> Array:
    """Elementwise by math.erf: numpy has none, and a reference must not depend on ours."""
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype) if x.size else x


def _wide_product(x: Array, y: Array) -> Array:
    low = np.int64(0xFFFFFFFF)
    return ((x & low).astype(np.uint64) * (y & low).astype(np.uint64)).astype(np.int64)


_MAPS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "pow": np.power,
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "max": np.maximum,
    "min": np.minimum,
    "where": np.where,
    "isnan": np.isnan,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.invert,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "wide_product": _wide_product,
}


_OF_ML_DTYPES = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})


def numpy_type(dtype: DType) -> Any:
    """The numpy type of an element type; bfloat16 and float8 need the package ml_dtypes."""
    if dtype.name in _OF_ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype.name))
    return np.dtype(dtype.name)


def round_to(x: Array, dtype: DType) -> Array:
    """``x`` in the numpy type of an element type. ml_dtypes makes NaN of what float8_e4m3fn saturates."""
    if dtype.name == "float8_e4m3fn":
        x = np.where(np.isnan(x), x, np.clip(x, -LARGEST[dtype.name], LARGEST[dtype.name]))
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(numpy_type(dtype))


class Evaluator:
    """Evaluates nodes for given inputs, each node once. Arrays are aligned to a node's dims, in its order.

    ``positions``: dims that are evaluated at some positions alone, those that `analysis.samples` finds; ``leaves`` have
    these positions of theirs.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        leaves: Mapping[str, Any],
        double: bool,
        positions: Mapping[str, Array] | None = None,
    ) -> None:
        self.graph = graph
        self.extents = {d: e.evaluate(sizes) for d, e in ((d, graph.extent(d)) for d in graph.extents)}
        self.positions = positions or {}
        self.sizes = {**self.extents, **{d: len(p) for d, p in self.positions.items()}}
        self.leaves = leaves
        self.double = double
        self.values: dict[int, Array] = {}

    def type_of(self, dtype: DType) -> Any:
        if dtype.kind == "float" and self.double:
            return np.dtype(np.float64)
        return numpy_type(compute_type(dtype))

    def align(self, x: Array, dims: tuple[str, ...], to: tuple[str, ...]) -> Array:
        """x with its dims in the order of ``to`` and length 1 where it has none."""
        kept = [d for d in to if d in dims]
        x = np.transpose(x, [dims.index(d) for d in kept])
        return x.reshape([x.shape[kept.index(d)] if d in kept else 1 for d in to])

    def full(self, node: Tensor) -> Array:
        """The node's value with every dim at its full extent."""
        return np.broadcast_to(self.values[id(node)], [self.sizes[d] for d in node.dims])

    def run(self, roots: tuple[Tensor, ...]) -> None:
        with np.errstate(all="ignore"):
            walk(roots, lambda n: self.values.__setitem__(id(n), self._node(n)))

    def _node(self, n: Tensor) -> Array:
        if isinstance(n, Input):
            return np.asarray(self.leaves[n.name]).astype(self.type_of(n.dtype))
        if isinstance(n, (Const, Scalar)):
            # In double until it meets a tensor: beside float64 inputs 0.1 is not the float32 nearest to it.
            kind = np.float64 if n.weak and n.dtype.kind == "float" else self.type_of(n.dtype)
            return np.asarray(n.value if isinstance(n, Const) else self.leaves[n.name], kind)
        if isinstance(n, Index):
            return np.asarray(self.positions.get(n.dim, np.arange(self.sizes[n.dim])), np.int64)
        if isinstance(n, Size):
            return np.asarray(self.extents[n.dim], np.int64)
        if isinstance(n, Map):
            return self._map(n)
        if isinstance(n, Reduce):
            return self._reduce(n)
        if isinstance(n, Scan):
            return self._scan(n)
        if isinstance(n, At):
            return self.read(n, self.full(n.source))
        if isinstance(n, Concat):
            parts = []
            for part, dim in zip(n.parts, n.part_dims, strict=True):
                dims = tuple(n.dim if d == dim else d for d in part.dims)
                parts.append(self.align(self.full(part), dims, n.dims).astype(self.type_of(n.dtype)))
            return np.concatenate(parts, axis=n.dims.index(n.dim))
        raise InternalError(f"no numpy form of {n!r}")

    def _map(self, n: Map) -> Array:
        args = [self.align(self.values[id(a)], a.dims, n.dims) for a in n.args]
        if n.op == "cast":
            if n.dtype.kind == "float" and not self.double:  # rounds to the half type, then computes on in float32
                return round_to(args[0], n.dtype).astype(self.type_of(n.dtype))
            return args[0].astype(self.type_of(n.dtype))
        if n.op == "bitcast":  # as the types are, in double too
            bits = np.ascontiguousarray(args[0].astype(numpy_type(n.args[0].dtype))).view(numpy_type(n.dtype))
            return bits.reshape(args[0].shape).astype(self.type_of(n.dtype))
        if n.op not in ("where", "and", "or", "not", "isnan"):
            kind = [a.dtype for a in n.args if not a.weak] or [a.dtype for a in n.args]
            common = n.dtype
            if n.dtype.kind == "bool":  # comparisons work in the operands' common type
                from ..dsl.tensor import common_type

                common = common_type(n.args)[0]
            args = [a if a.dtype == bool else a.astype(self.type_of(common)) for a in args] if kind else args
        value = _MAPS[n.op](*args)
        return np.asarray(value).astype(self.type_of(n.dtype))

    def _reduce(self, n: Reduce) -> Array:
        x = self.full(n.arg)
        axes = tuple(n.arg.dims.index(d) for d in n.over)
        kind = self.type_of(n.dtype)
        if n.op in ("argmax", "argmin"):
            if x.shape[axes[0]] == 0:
                return np.zeros([s for i, s in enumerate(x.shape) if i not in axes], np.int64)
            return getattr(np, n.op)(x, axis=axes[0])
        if n.op == "sum":
            return np.sum(x, axis=axes, dtype=kind)
        if n.op == "prod":
            return np.prod(x, axis=axes, dtype=kind)
        function: Any = np.max if n.op == "max" else np.min
        return np.asarray(function(x, axis=axes, initial=_neutral(n.op, kind))).astype(kind)

    def _scan(self, n: Scan) -> Array:
        kind, axis = self.type_of(n.dtype), n.dims.index(n.over)
        x = self.full(n.arg).astype(kind)
        x = np.flip(x, axis) if n.reverse else x
        function: Any = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[n.op]
        found = function.accumulate(x, axis=axis, dtype=kind)
        if n.exclusive:
            edge = np.full([1 if i == axis else s for i, s in enumerate(x.shape)], _neutral(n.op, kind), kind)
            kept = [slice(x.shape[axis]) if i == axis else slice(None) for i in range(x.ndim)]
            found = np.concatenate([edge, found], axis)[tuple(kept)]
        return np.flip(found, axis) if n.reverse else found

    def read(self, n: At, source: Array) -> Array:
        """What ``n`` reads of an array that has the source's dims."""
        grids = []
        for d in n.source.dims:
            if d in n.coords:
                position = n.coords[d]
                grid = self.align(self.values[id(position)], position.dims, n.dims)
                limit = self.sizes[d]
                grids.append(np.clip(grid, 0, max(limit - 1, 0)))
            else:
                grids.append(self.align(np.arange(self.sizes[d]), (d,), n.dims))
        if not grids:
            return source
        shape = [self.sizes[d] for d in n.dims]
        if 0 in source.shape and 0 not in shape:
            return np.zeros(shape, source.dtype)
        return (
            source[tuple(np.broadcast_to(g, shape) for g in grids)] if 0 not in shape else np.empty(shape, source.dtype)
        )


def _neutral(op: str, kind: Any) -> Any:
    """What ``op`` gives over nothing."""
    if op in ("sum", "prod"):
        return 0 if op == "sum" else 1
    if kind.kind == "f":
        return -np.inf if op == "max" else np.inf
    return np.iinfo(kind).min if op == "max" else np.iinfo(kind).max


def bind_sizes(graph: Graph, arrays: Mapping[str, Array]) -> tuple[dict[str, int], tuple[int, ...]]:
    """The extents of free dims, from the arrays' shapes, and the shape of the leading dims.

    Raises:
        CallError: E4004, E4005 for shapes that do not fit.
    """
    sizes: dict[str, int] = {}
    lead: tuple[int, ...] | None = None
    for node in graph.inputs:
        shape = np.shape(arrays[node.name])
        named = node.dims
        if named[:1] == (ROWS,) and graph.leading:
            named = named[1:]
            head = shape[: len(shape) - len(named)]
            if len(shape) < len(named):
                raise error(
                    "E4004", op=graph.op, argument=node.name, found=len(shape), shape=shape, wanted=["...", *named]
                )
            if lead is not None and head != lead:
                raise error(
                    "E4005",
                    op=graph.op,
                    argument=node.name,
                    dim="...",
                    found=head,
                    shape=shape,
                    wanted=lead,
                    why="the leading dims of all arguments are the same",
                    fix="Reshape one of them.",
                )
            lead = head
            sizes[ROWS] = int(np.prod(head, dtype=np.int64))
            shape = shape[len(head) :]
        elif len(shape) != len(named):
            raise error("E4004", op=graph.op, argument=node.name, found=len(shape), shape=shape, wanted=list(named))
        for d, s in zip(named, shape, strict=True):
            fixed = graph.extents[d].value
            wanted = sizes.setdefault(d, s if fixed is None else fixed)
            if wanted != s:
                raise error(
                    "E4005",
                    op=graph.op,
                    argument=node.name,
                    dim=d,
                    found=s,
                    shape=shape,
                    wanted=wanted,
                    why="as another argument has it",
                    fix="Reshape one of them.",
                )
    return sizes, lead or ()


def check_constraints(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raises CallError E4010 where a condition on dims does not hold."""
    for c in graph.constraints:
        try:
            holds = eval(c.expr, {"__builtins__": {}, "min": min, "max": max}, dict(sizes))
        except ZeroDivisionError:
            holds = False
        if not holds:
            raise error(
                "E4010",
                op=graph.op,
                found=f"the dims are {dict(sizes)}",
                wanted=f"{c.message} ({c.expr})",
                fix="Pass arrays of other shapes.",
            )


def evaluate(op: Op, values: Mapping[str, Any], dtype: str | None = None) -> Any:
    """An op's results for numpy arrays; see `opsgen.dsl.op.Op.evaluate`."""
    arrays = {p.name: np.asarray(values[p.name]) for p in op.parameters if p.spec and values[p.name] is not None}
    graph = trace_for(op, arrays, values)
    sizes, lead = bind_sizes(graph, arrays)
    check_constraints(graph, sizes)
    leaves: dict[str, Any] = {s.name: values[s.name] for s in graph.scalars}
    for node in graph.inputs:
        x = arrays[node.name]
        flatten = graph.leading and node.dims[:1] == (ROWS,)
        leaves[node.name] = x.reshape((sizes[ROWS], *x.shape[len(lead) :])) if flatten else x
    run = Evaluator(graph, sizes, leaves, double=dtype == "float64")
    run.run(graph.outputs())
    found = {}
    for r in graph.results:
        y = run.full(r.value)
        if graph.leading and ROWS in r.value.dims:
            at = r.value.dims.index(ROWS)
            y = y.reshape(y.shape[:at] + lead + y.shape[at + 1 :])
        keep_double = dtype == "float64" and r.dtype.kind == "float"
        found[r.name] = y if keep_double else np.array(round_to(y, r.dtype))
    return found if len(found) > 1 or "out" not in found else found["out"]


def trace_for(op: Op, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> Graph:
    """The op's graph for the element types of given arrays.

    Raises:
        CompileError: E3002, a parameter does not take its array's type.
    """
    from ..dsl.dtypes import DTYPES

    kinds = {}
    for name, x in arrays.items():
        if str(x.dtype) not in DTYPES:
            raise error("E3002", op=op.name, parameter=name, found=str(x.dtype), known=list(DTYPES))
        kinds[name] = DTYPES[str(x.dtype)]
    return op.trace(
        dtypes_of=kinds,
        absent=frozenset(p.name for p in op.parameters if p.spec and values[p.name] is None),
        attributes={p.name: values[p.name] for p in op.parameters if p.role == "attribute"},
    )
