"""What is to be compiled: an op with everything decided that a kernel is specialised on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ..analysis.groups import factors
from ..dsl.dtypes import DTYPES, DType, compute_type, float8, floating
from ..dsl.op import Graph, Op, variants
from ..dsl.signature import Parameter
from ..dsl.spec import dtype_choices
from ..dsl.tensor import At, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor, walk
from ..errors import error
from .precision import Precision


@dataclass(frozen=True)
class Variant:
    """An op with some choices made; what is not chosen is compiled in every combination.

    ``absent``: exactly the optional tensors that are left out, or None for all combinations. ``attributes``: fixed
    values.
    ``dtype``: the floating type, or types by parameter. ``dims``: dims bound to a number.
    """

    op: Op
    absent: frozenset[str] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | Mapping[str, str] | None = None
    dims: Mapping[str, int] = field(default_factory=dict)


def variant(
    op: Op,
    *,
    absent: Sequence[str] | None = None,
    dtype: str | DType | Mapping[str, str] | None = None,
    dims: Mapping[str, int] | None = None,
    **attributes: Any,
) -> Variant:
    """An op with choices made, for `opsgen.compile`: ``og.variant(linear, absent=["residual"], activation="gelu")``.

    Args:
        absent: the optional tensors that calls leave out (all others are given); without it, every combination is
            compiled.
        dtype: the floating type; or a mapping from parameter names to types, as for `opsgen.compile`.
        dims: dims with a fixed extent.
        attributes: values of specialising attributes; those not named are compiled in all their values.

    Raises:
        CompileError: E3003, an attribute or optional tensor that the op does not have, or a wrong value.
    """
    known = {p.name: p for p in op.parameters}
    for name, value in attributes.items():
        if name not in known or known[name].role != "attribute":
            names = [p.name for p in op.parameters if p.role == "attribute"]
            raise error("E3003", op=op.name, attribute=name, found=repr(value), wanted=f"its attributes are {names}")
        op._attribute(known[name], {name: value})
    for name in absent or ():
        if name not in known or not known[name].optional:
            names = [p.name for p in op.parameters if p.optional]
            raise error("E3003", op=op.name, attribute=name, found="absent", wanted=f"its optional tensors are {names}")
    return Variant(
        op,
        None if absent is None else frozenset(absent),
        attributes,
        dtype.name if isinstance(dtype, DType) else dtype,
        dims or {},
    )


@dataclass(frozen=True)
class Problem:
    """One op for one choice of everything: its graph, and what the choice was."""

    op: Op
    graph: Graph
    bound: Mapping[str, int]
    allowed: Precision = field(default_factory=Precision)

    @property
    def precision(self) -> str:
        """The class of the arithmetic: the widest floating type that it is done in, and what tensor cores may give up
        of it in contractions of this problem ("tf32", "fast float8 sums")."""
        found: list[Tensor] = []
        walk(self.graph.outputs(), found.append)
        wide = any(compute_type(n.dtype).name == "float64" and not n.weak for n in found)
        less = self._given_up(found)
        return ", ".join(["fp64" if wide else "fp32", *less])

    def _given_up(self, nodes: list[Tensor]) -> list[str]:
        pairs = [p for p in map(factors, nodes) if p is not None]
        operands = [{x.dtype.name for x in p} for p in pairs]
        less = []
        if self.allowed.float32_products == "tf32" and {"float32"} in operands:
            less.append("tf32")
        if self.allowed.float8_sums == "fast" and any(o <= {f.name for f in float8.members} for o in operands):
            less.append("fast float8 sums")
        return less

    def hash(self) -> str:
        """Of the graph and everything that is baked in."""
        text = serialize(self.graph)
        if self.allowed != Precision():
            text += repr(self.allowed)
        return hashlib.sha256(text.encode()).hexdigest()


def serialize(graph: Graph) -> str:
    """A graph as text: the same for equal graphs, different for others."""
    numbers: dict[int, int] = {}
    lines: list[Any] = []

    def visit(n: Tensor) -> None:
        numbers[id(n)] = len(numbers)
        own: list[Any] = [type(n).__name__, list(n.dims), n.dtype.name]
        if isinstance(n, (Input, Scalar)):
            own.append(n.name)
        elif isinstance(n, Const):
            own.append(repr(n.value))
        elif isinstance(n, (Index, Size)):
            own.append(n.dim)
        elif isinstance(n, Map):
            own.append(n.op)
        elif isinstance(n, Reduce):
            own += [n.op, list(n.over)]
        elif isinstance(n, Scan):
            own += [n.op, n.over, n.exclusive, n.reverse]
        elif isinstance(n, At):
            own += [sorted(n.coords), n.exact]
        lines.append([*own, [numbers[id(c)] for c in n.children()]])

    walk(graph.outputs(), visit)
    results = [
        [r.name, numbers[id(r.value)], r.dtype.name, None if r.updates is None else r.updates.name]
        for r in graph.results
    ]
    inputs = [[i.name, list(i.dims), i.dtype.name] for i in graph.inputs]
    extents = {d: str(e) for d, e in graph.extents.items()}
    constraints = [[c.expr, c.message] for c in graph.constraints]
    constraints += [[c.kind, c.input, c.dim] for c in graph.checks]
    return json.dumps([graph.op, lines, results, inputs, extents, constraints], sort_keys=True)


def enumerate_problems(
    items: Iterable[Op | Variant],
    dtypes: Sequence[str | DType | Mapping[str, str]],
    dims: Mapping[str, int],
    allowed: Precision | None = None,
) -> list[Problem]:
    """Every problem that the items stand for.

    Raises:
        CompileError: E3001, E3002, E3003, E3008, E3009.
    """
    chosen = [v if isinstance(v, Variant) else Variant(v) for v in items]
    if not chosen:
        raise error("E3009", found="no ops were given", fix="Pass at least one: og.compile([rms_norm], target='x86').")
    _check_dims([v.op for v in chosen], dims)
    found: list[Problem] = []
    for v in chosen:
        _check_dims([v.op], v.dims)
        types: Sequence[Any] = [v.dtype] if v.dtype is not None else dtypes
        for dtype, absent, attributes in product(types, _absent(v), _attributes(v)):
            bound = {d: n for d, n in {**dims, **v.dims}.items() if d in v.op.dims}
            found.append(_problem(v.op, dtype, absent, attributes, bound))
    return found if allowed is None else [replace(p, allowed=allowed) for p in found]


def _check_dims(ops: list[Op], dims: Mapping[str, int]) -> None:
    for name, value in dims.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise error("E3008", dim=name, found=repr(value), wanted="a dim is bound to an int of 0 or more")
        if not any(name in op.dims for op in ops):
            raise error(
                "E3001",
                op=", ".join(op.name for op in ops),
                found=name,
                known=sorted({d for op in ops for d in op.dims}),
            )


def _absent(v: Variant) -> list[frozenset[str]]:
    return variants(v.op) if v.absent is None else [v.absent]


def _attributes(v: Variant) -> list[dict[str, Any]]:
    """Every combination of the attributes' values: all choices, both bools, the default of an int."""
    names, values = [], []
    for p in v.op.parameters:
        if p.role != "attribute":
            continue
        names.append(p.name)
        if p.name in v.attributes:
            values.append([v.op._attribute(p, v.attributes)])
        elif p.choices is not None:
            values.append(list(p.choices))
        elif p.type == "bool":
            values.append([False, True])
        else:
            values.append([v.op._attribute(p, {})])
    return [dict(zip(names, c, strict=True)) for c in product(*values)]


def _problem(
    op: Op,
    dtype: str | DType | Mapping[str, str],
    absent: frozenset[str],
    attributes: Mapping[str, Any],
    bound: Mapping[str, int],
) -> Problem:
    names = dict(dtype) if isinstance(dtype, Mapping) else {}
    main = _floating(op, names.pop("*", "float32") if isinstance(dtype, Mapping) else dtype)
    single: dict[str, DType] = {}
    for name, value in names.items():
        p: Parameter | None = next((p for p in op.parameters if p.name == name and p.spec), None)
        if p is None or p.spec is None:
            continue  # dtypes are given for several ops at once
        choice = DTYPES.get(value)
        allowed = dtype_choices(p.spec)
        if choice not in allowed or choice is None:
            raise error("E3002", op=op.name, parameter=name, found=value, known=[d.name for d in allowed])
        single[name] = choice
    graph = op.trace(main, dtypes_of=single, absent=absent, attributes=attributes, bound=bound)
    return Problem(op, graph, bound)


def _floating(op: Op, dtype: str | DType) -> DType:
    name = dtype.name if isinstance(dtype, DType) else str(dtype)
    found = DTYPES.get(name)
    if found not in floating.members or found is None:
        raise error("E3002", op=op.name, parameter="dtypes", found=name, known=[d.name for d in floating.members])
    return found
