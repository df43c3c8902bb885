"""The graph in TVM TE: one `te.compute` for each value that is reduced or used twice, everything else inside of them.

A second path beside the schedules' own, for looking at an op and for testing what its graph means. Halves compute in
float32, as everywhere, and are rounded when a result is stored; float8 are tensors of their bits (uint8). A result that
updates a Mut parameter is a tensor of its own here: TE has no updates in place. Elementary functions are TVM's, one
libm call an element.

Traps of TVM 0.27 that are worked around: a reduction of length 0 never runs its initialisation, so reduced extents are
at least 1 and the extra element is the neutral one; te.max drops NaN, so the reducers are our own; see also `_not`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..analysis.groups import Group, Partition
from ..dsl.dtypes import LARGEST, DType, compute_type, float8
from ..dsl.op import Graph
from ..dsl.tensor import BITS, At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor, common_type
from ..errors import InternalError, error
from .bits import bits
from .narrow_floats import NARROW
from .statements import Expr, constant, i64
from .to_tir import compute_name, is_nan

_DEPTH = 32
"""Maps nested deeper get a `te.compute` between them: TVM's passes are recursive."""

_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "exp": tirx.exp, "exp2": tirx.exp2, "log": tirx.log, "log1p": tirx.log1p, "sqrt": tirx.sqrt, "rsqrt": tirx.rsqrt,
    "tanh": tirx.tanh, "erf": tirx.erf, "sigmoid": tirx.sigmoid, "sin": tirx.sin, "cos": tirx.cos, "floor": tirx.floor,
    "ceil": tirx.ceil, "round": tirx.nearbyint, "abs": tirx.abs, "neg": lambda x: tirx.Mul(x, constant(-1, x.ty.dtype)),
}  # fmt: skip
_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": tirx.Add, "sub": tirx.Sub, "mul": tirx.Mul, "div": tirx.Div, "eq": tirx.EQ, "ne": tirx.NE, "lt": tirx.LT,
    "le": tirx.LE, "gt": tirx.GT, "ge": tirx.GE, "and": tirx.And, "or": tirx.Or,
    "max": lambda a, b: _extreme("max", a, b), "min": lambda a, b: _extreme("min", a, b),
}  # fmt: skip
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass(frozen=True)
class Computed:
    """One `te.compute`: the tensor, and its body as text."""

    tensor: Any
    body: Callable[[], str]

    def text(self) -> str:
        op = self.tensor.op
        at = ", ".join(str(a.var.name) for a in op.axis)
        return f"{op.name} = te.compute({_shape(self.tensor)}, lambda {at}: {self.body()})"


@dataclass(frozen=True)
class Lowered:
    """A graph, or one group of it, as TE tensors.

    ``inputs`` are placeholders, ``scalars`` and ``dims`` variables (dims: extents that no shape gives), ``outputs``
    what is wanted, ``computed`` every `te.compute` in order, outputs among them. Keys are names.
    """

    name: str
    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    dims: Mapping[str, Any]
    outputs: Mapping[str, Any]
    computed: tuple[Computed, ...]

    def prim_func(self) -> Any:
        """The unscheduled TensorIR function of (*inputs, *scalars, *dims, *outputs)."""
        groups = (self.inputs, self.scalars, self.dims, self.outputs)
        arguments = [value for group in groups for value in group.values()]
        return te.create_prim_func(arguments).with_attr("global_symbol", self.name)

    def text(self) -> str:
        """The tensors, as one would write them with TVM's `te`."""
        lines = [f'{n} = te.placeholder({_shape(t)}, "{t.dtype}")' for n, t in self.inputs.items()]
        lines += [f'{n} = te.var("{n}", "{v.ty.dtype}")' for n, v in (self.scalars | self.dims).items()]  # type: ignore[operator]
        return "\n".join([*lines, *(c.text() for c in self.computed)])


def lower(graph: Graph) -> Lowered:
    """A whole op.

    Raises:
        CompileError: E3012, TE has no form of something in it.
    """
    lowering = _Lowering(graph, {})
    for r in graph.results:
        dims = r.value.dims if r.updates is None else r.updates.dims
        lowering.want(r.name, r.value, r.dtype, dims)
    return lowering.run(graph.op, tuple(graph.inputs))


def lower_group(partition: Partition, group: Group) -> Lowered:
    """One group of an op: what other groups store is an input, and what it stores is an output, in its compute type.

    Raises:
        CompileError: E3012, TE has no form of something in it.
    """
    given = {
        id(s): (f"group{g.index}_{i}", s) for g in partition.groups if g is not group for i, s in enumerate(g.stored)
    }
    lowering = _Lowering(partition.graph, given)
    for i, node in enumerate(group.stored):
        lowering.want(f"group{group.index}_{i}", node, compute_type(node.dtype), node.dims)
    return lowering.run(f"{partition.graph.op}_group{group.index}", ())


class _Lowering:
    """``given``: nodes that are placeholders, by id, with their names."""

    def __init__(self, graph: Graph, given: Mapping[int, tuple[str, Tensor]]) -> None:
        self.graph = graph
        self.given = given
        self.wanted: list[tuple[str, Tensor, DType, tuple[str, ...]]] = []
        self.tensors: dict[int, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.scalars: dict[str, Any] = {}
        self.dims: dict[str, Any] = {}
        self.computed: list[Computed] = []
        self.showing: dict[str, Any] | None = None  # while text is made: buffers that stand for tensors, by name
        self.names: set[str] = {*graph.extents, *(s.name for s in graph.scalars), *(i.name for i in graph.inputs)}
        floats = [n.dtype for n in (*graph.inputs, *graph.outputs()) if not n.weak]
        self.scalar_type = "float64" if any(d.name == "float64" for d in floats) else "float32"

    def want(self, name: str, node: Tensor, dtype: DType, dims: tuple[str, ...]) -> None:
        self.wanted.append((name, node, dtype, dims))

    def run(self, name: str, inputs: Sequence[Input]) -> Lowered:
        for parameter in inputs:
            self.placeholder(parameter.name, parameter, _storage(parameter.dtype))
        order = self.order()
        uses: dict[int, int] = {}
        for node in order:
            for child in node.children() if id(node) not in self.given else ():
                uses[id(child)] = uses.get(id(child), 0) + 1
        labels: dict[int, str] = {}  # results that need no copy: the value's own te.compute
        for label, node, dtype, dims in self.wanted:
            same = compute_type(dtype) == dtype == compute_type(node.dtype) and dims == node.dims
            if same and node.children() and not _is_position(node):
                labels.setdefault(id(node), label)
        depths: dict[int, int] = {}
        for node in order:
            if id(node) in self.given or not node.children() or _is_position(node):
                continue
            depth = 1 + max((depths.get(id(c), 0) for c in node.children()), default=0)
            if isinstance(node, (Reduce, Scan)) or uses.get(id(node), 0) > 1 or id(node) in labels or depth >= _DEPTH:
                self.tensors[id(node)] = self.compute(node, labels.get(id(node)))
                depth = 0
            depths[id(node)] = depth
        outputs: dict[str, Any] = {}
        for label, node, dtype, dims in self.wanted:
            if labels.get(id(node)) == label:
                outputs[label] = self.tensors[id(node)]
            else:
                outputs[label] = self.copy(label, node, dtype, dims)
        shaped = {d for i in self.graph.inputs if i.name in self.inputs for d in i.dims}
        shaped |= {d for label, s in self.given.values() if label in self.inputs for d in s.dims}
        shaped |= {d for _, _, _, dims in self.wanted for d in dims}
        free = {d: v for d, v in self.dims.items() if d not in shaped}
        return Lowered(name, self.inputs, self.scalars, free, outputs, tuple(self.computed))

    def order(self) -> list[Tensor]:
        """Every node that is computed here, children first. Nodes given from elsewhere end the search."""
        found: list[Tensor] = []
        seen: set[int] = set()
        stack: list[tuple[Tensor, bool]] = [(node, False) for _, node, _, _ in reversed(self.wanted)]
        while stack:
            node, done = stack.pop()
            if done:
                found.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                if id(node) not in self.given:
                    stack.extend((c, False) for c in reversed(node.children()))
        return found

    # -- tensors -------------------------------------------------------------------------------------------------------
    def unique(self, name: str) -> str:
        found, n = name, 1
        while found in self.names:
            n += 1
            found = f"{name}_{n}"
        self.names.add(found)
        return found

    def placeholder(self, name: str, node: Tensor, dtype: str) -> Any:
        if name not in self.inputs:
            self.inputs[name] = te.placeholder(self.shape(node.dims), dtype, name=name)
        return self.inputs[name]

    def shape(self, dims: Sequence[str]) -> tuple[Expr, ...]:
        return tuple(self.extent(d) for d in dims)

    def extent(self, dim: str) -> Expr:
        forms = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "floordiv": tirx.floordiv}
        return self.graph.extent(dim).fold(self.dim, i64, lambda op, a, b: forms[op](a, b))

    def dim(self, name: str) -> Expr:
        if name not in self.dims:
            self.dims[name] = tirx.Var(name, "int64")
        return self.dims[name]

    def make(self, dims: tuple[str, ...], body: Callable[[dict[str, Expr]], Any], name: str) -> Any:
        made = te.compute(
            self.shape(dims), lambda *at: body(dict(zip(dims, at, strict=True))), name=self.unique(name),
            varargs_names=[f"i_{d}" for d in dims],
        )  # fmt: skip
        first = made[0] if isinstance(made, (list, tuple)) else made
        self.computed.append(Computed(first, lambda: self.show(dims, body)))
        return first

    def show(self, dims: tuple[str, ...], body: Callable[[dict[str, Expr]], Any]) -> str:
        """The body once more, over buffers: TVM 0.27 prints reads of TE tensors as references to metadata."""
        self.showing = {}
        try:
            found = body({d: tirx.Var(f"i_{d}", "int64") for d in dims})
            return found if isinstance(found, str) else _text(found)
        finally:
            self.showing = None

    def read(self, tensor: Any, at: Sequence[Expr]) -> Expr:
        if self.showing is None:
            return tensor(*at)
        name = str(tensor.op.name)
        if name not in self.showing:
            self.showing[name] = tirx.decl_buffer(list(tensor.shape), tensor.dtype, name)
        return tirx.BufferLoad(self.showing[name], list(at))

    def compute(self, node: Tensor, label: str | None) -> Any:
        name = label or (node.op if isinstance(node, (Map, Reduce, Scan)) else "read")
        if isinstance(node, Reduce):
            return self.make(node.dims, self.reduction(node), name)
        if isinstance(node, Scan):
            return self.make(node.dims, self.scan(node), f"running_{node.op}" if label is None else name)
        return self.make(node.dims, lambda at: self.inside(node, at), name)

    def copy(self, label: str, node: Tensor, dtype: DType, dims: tuple[str, ...]) -> Any:
        return self.make(dims, lambda at: _stored(self.value(node, at), dtype), label)

    def reduction(self, node: Reduce) -> Callable[[dict[str, Expr]], Any]:
        axes: dict[str, Any] = {}
        inside: list[Expr] = []  # conditions: the position is a real one
        for d in node.over:
            extent = self.extent(d)
            known = self.graph.extent(d).value
            length = i64(max(known, 1)) if known is not None else tirx.Max(extent, i64(1))
            axes[d] = te.reduce_axis((i64(0), length), name=f"r_{d}")
            if not known:
                inside.append(axes[d].var < extent)
        kind = compute_name(node.arg.dtype if node.op in ("argmax", "argmin") else node.dtype)
        neutral = _neutral(node.op, kind)

        def body(at: dict[str, Expr]) -> Any:
            coords = {**at, **{d: a.var for d, a in axes.items()}}
            value = self.value(node.arg, coords, kind)
            for condition in inside:
                value = tirx.if_then_else(condition, value, neutral)
            if self.showing is not None:
                over = ", ".join(f"{a.var.name} < {_text(a.dom.extent)}" for a in axes.values())
                return f"{node.op}({_text(value)}, over {over})"
            if node.op in ("argmax", "argmin"):
                (axis,) = axes.values()
                return _search(node.op)((axis.var, value), axis=axis)
            return _reducer(node.op)(value, axis=list(axes.values()))

        return body

    def scan(self, node: Scan) -> Callable[[dict[str, Expr]], Any]:
        """As a reduction at each position, over the positions before it: TE has no other form for what follows it."""
        extent = self.extent(node.over)
        axis = te.reduce_axis(
            (i64(0), extent), name=f"r_{node.over}"
        )  # where there is a position, there is one to read
        kind = compute_name(node.dtype)
        neutral = _neutral(node.op, kind)

        def body(at: dict[str, Expr]) -> Any:
            here, there = at[node.over], axis.var
            before, behind = (here, there) if node.reverse else (there, here)
            inside = before < behind if node.exclusive else before <= behind
            value = tirx.if_then_else(inside, self.value(node.arg, {**at, node.over: there}, kind), neutral)
            if self.showing is not None:
                return f"{node.op}({_text(value)}, over {axis.var.name} < {_text(axis.dom.extent)})"
            return _reducer(node.op)(value, axis=[axis])

        return body

    # -- values --------------------------------------------------------------------------------------------------------
    def value(self, node: Tensor, coords: Mapping[str, Expr], name: str | None = None) -> Expr:
        """The node at a position, as type ``name`` if one is given."""
        if isinstance(node, Const):
            return constant(node.value, name or compute_name(node.dtype))
        found = self.plain(node, coords)
        return found if name is None else _to(found, name)

    def plain(self, node: Tensor, coords: Mapping[str, Expr]) -> Expr:
        tensor = self.tensors.get(id(node))
        if tensor is None and id(node) in self.given:
            tensor = self.placeholder(self.given[id(node)][0], node, compute_name(node.dtype))
        if tensor is not None:
            return self.read(tensor, [coords[d] for d in node.dims])
        return self.inside(node, coords)

    def inside(self, node: Tensor, coords: Mapping[str, Expr]) -> Expr:
        if isinstance(node, Input):
            raw = self.read(self.placeholder(node.name, node, _storage(node.dtype)), [coords[d] for d in node.dims])
            return (
                NARROW[node.dtype.name].load(raw)
                if node.dtype in float8.members
                else _to(raw, compute_name(node.dtype))
            )
        if isinstance(node, Scalar):
            if node.name not in self.scalars:
                self.scalars[node.name] = tirx.Var(node.name, self.scalar_type)
            return self.scalars[node.name]
        if isinstance(node, Index):
            return coords[node.dim]
        if isinstance(node, Size):
            return self.extent(node.dim)
        if isinstance(node, Map):
            return self.map(node, coords)
        if isinstance(node, At):
            return self.at(node, coords)
        if isinstance(node, Concat):
            return self.concat(node, coords)
        raise InternalError(f"no TE form of {node!r}")

    def at(self, node: At, coords: Mapping[str, Expr]) -> Expr:
        there = {d: coords[d] for d in node.source.dims if d not in node.coords}
        for d, position in node.coords.items():
            at = self.value(position, coords, "int64")
            there[d] = at if node.exact else tirx.Max(tirx.Min(at, self.extent(d) - i64(1)), i64(0))
        found = self.value(node.source, there)
        if not node.exact:  # of a source without elements nothing can be read, wherever the position is clamped to
            for d in node.coords:
                if not self.graph.extent(d).value:
                    found = tirx.if_then_else(self.extent(d) > i64(0), found, constant(0, found.ty.dtype))
        return found

    def concat(self, node: Concat, coords: Mapping[str, Expr]) -> Expr:
        """`if_then_else` evaluates one branch alone: a part must not be read past its end."""
        at, name = coords[node.dim], compute_name(node.dtype)
        start: Expr = i64(0)
        parts: list[tuple[Expr, Expr]] = []
        for part, d in zip(node.parts, node.part_dims, strict=True):
            there = {**{o: coords[o] for o in part.dims if o != d}, d: at - start}
            start = start + self.extent(d)
            parts.append((start, self.value(part, there, name)))
        result = parts[-1][1]
        for end, value in reversed(parts[:-1]):
            result = tirx.if_then_else(at < end, value, result)
        return result

    def map(self, node: Map, coords: Mapping[str, Expr]) -> Expr:
        op, name = node.op, compute_name(node.dtype)
        if op == "cast":
            x = self.value(node.args[0], coords)
            if node.dtype in float8.members:
                return NARROW[node.dtype.name].load(_stored(x, node.dtype))
            if node.dtype.kind == "float" and node.dtype.bits < 32:
                return tirx.Cast("float32", tirx.Cast(node.dtype.name, _to(x, "float32")))
            return _to(x, name)
        if op == "bitcast":
            x = self.value(node.args[0], coords, node.args[0].dtype.name)
            return x if node.dtype == node.args[0].dtype else tirx.reinterpret(node.dtype.name, x)
        if op == "where":
            condition = self.value(node.args[0], coords)
            return tirx.Select(condition, *(self.value(a, coords, name) for a in node.args[1:]))
        if op == "not":
            return _not(self.value(node.args[0], coords))
        if op == "isnan":
            return _nan(self.value(node.args[0], coords))
        if op in _COMPARISONS:
            name = compute_name(common_type(node.args)[0])
            name = "int32" if name == "bool" else name  # TVM 0.27 compares bools by an instruction for floats
        args = [self.value(a, coords, name) for a in node.args]
        if op in ("eq", "ne") and node.args[0] is node.args[1]:  # TVM's simplifier takes x != x for false
            return _nan(args[0]) if op == "ne" else _not(_nan(args[0]))
        if op == "pow":
            return self.power(node, args)
        if op in ("floordiv", "mod"):
            return _floor(op, *args)
        if op in BITS:
            return bits(op, args, lambda e: e)
        return _UNARY[op](*args) if len(args) == 1 else _BINARY[op](*args)

    def power(self, node: Map, args: list[Expr]) -> Expr:
        exponent = node.args[1]
        if args[0].ty.dtype.startswith("float"):
            return tirx.pow(*args)
        if isinstance(exponent, Const) and 0 <= exponent.value <= 16:
            result = constant(1, args[0].ty.dtype)
            for _ in range(int(exponent.value)):
                result = result * args[0]
            return result
        raise error(
            "E3012", op=self.graph.op, found="a power of integers whose exponent is no small constant",
            fix="Cast to a floating type first: og.cast(x, og.float32) ** y.",
        )  # fmt: skip


def _is_position(node: Tensor) -> bool:
    """Whether a value is made of positions, sizes and numbers alone; such a one is never worth memory."""
    if isinstance(node, (Index, Size, Const)):
        return True
    return isinstance(node, Map) and node.dtype.kind != "float" and all(_is_position(a) for a in node.args)


def _storage(dtype: DType) -> str:
    """TVM 0.27 rounds float8 wrongly on CPUs: they are bits here."""
    return NARROW[dtype.name].storage if dtype in float8.members else dtype.name


def _stored(x: Expr, dtype: DType) -> Expr:
    if dtype in float8.members:
        return NARROW[dtype.name].round(_to(x, "float32"), lambda e: e)
    return _to(x, dtype.name)


def _to(x: Expr, name: str) -> Expr:
    if x.ty.dtype == name:
        return x
    if name == "bool":
        return tirx.NE(x, constant(0, x.ty.dtype))
    if x.ty.dtype == "bool":
        return tirx.Select(x, constant(1, name), constant(0, name))
    return tirx.Cast(name, x)


def _extreme(op: str, a: Expr, b: Expr) -> Expr:
    """max or min of two numbers; a float NaN on either side wins."""
    first = a >= b if op == "max" else a <= b
    return tirx.Select(tirx.Or(first, is_nan(a)) if a.ty.dtype.startswith("float") else first, a, b)


def _nan(x: Expr) -> Expr:
    return is_nan(x) if x.ty.dtype.startswith("float") else constant(False, "bool")


def _not(x: Expr) -> Expr:
    """Not, behind a cast: TVM's simplifier takes "not x > y" for "x <= y", which is wrong for NaN."""
    return tirx.EQ(tirx.Cast("int32", x), tirx.IntImm("int32", 0))


def _floor(op: str, a: Expr, b: Expr) -> Expr:
    if not a.ty.dtype.startswith("float"):
        return tirx.floordiv(a, b) if op == "floordiv" else tirx.floormod(a, b)
    quotient = tirx.floor(tirx.Div(a, b))
    return quotient if op == "floordiv" else tirx.Sub(a, tirx.Mul(quotient, b))


# -- reducers ----------------------------------------------------------------------------------------------------------
def _neutral(op: str, name: str) -> Expr:
    if op in ("sum", "prod"):
        return constant(0 if op == "sum" else 1, name)
    smallest = op in ("max", "argmax")
    if name.startswith("float"):
        return constant(float("-inf") if smallest else float("inf"), name)
    largest = int(LARGEST[name])
    lowest = 0 if name.startswith("uint") else -largest - 1
    return constant(lowest if smallest else largest, name)


def _reducer(op: str) -> Any:
    if op == "sum":
        return te.sum
    combine = _BINARY["mul" if op == "prod" else op]
    return te.comm_reducer(lambda a, b: combine(a, b), lambda name: _neutral(op, str(name)), name=op)


def _search(op: str) -> Any:
    """Positions of extremes: NaN counts as one, the first of equals is taken, and over nothing it is 0."""

    def combine(a: Any, b: Any) -> tuple[Expr, Expr]:
        (i, x), (j, y) = a, b
        nan_x, nan_y = _nan(x), _nan(y)
        better = x > y if op == "argmax" else x < y
        wins = tirx.Or(tirx.And(nan_x, tirx.Not(nan_y)), tirx.And(better, tirx.Not(nan_y)))
        same = tirx.Or(tirx.And(nan_x, nan_y), tirx.EQ(x, y))
        left = tirx.Or(wins, tirx.And(same, i < j))
        return tirx.Select(left, i, j), tirx.Select(left, x, y)

    def neutral(_: Any, name: Any) -> tuple[Expr, Expr]:
        return constant(int(LARGEST["int64"]), "int64"), _neutral(op, str(name))

    return te.comm_reducer(combine, neutral, name=op)


# -- text --------------------------------------------------------------------------------------------------------------
def _shape(tensor: Any) -> str:
    return f"({', '.join(_text(s) for s in tensor.shape)}{',' if len(tensor.shape) == 1 else ''})"


def _text(x: Expr) -> str:
    """An expression in TVMScript, on one line, without the declarations of what it reads."""
    lines = [line for line in str(x).splitlines() if line.strip()]
    return lines[-1].strip() if lines else str(x)
