"""The functions of the language: elementwise math, reductions, contraction, positions and views.

All take tensors of an op's definition (and Python numbers where a value is elementwise) and give tensors. Shapes go by
dim
name. They raise `opsgen.errors.DefinitionError` with the line of the definition.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import error
from . import dtypes
from .extent import Extent
from .location import user_line
from .tensor import (
    METHODS,
    At,
    Concat,
    Const,
    Index,
    Input,
    Map,
    Reduce,
    Size,
    Tensor,
    as_tensor,
    common_type,
    elementwise,
)
from .trace import Check, Trace, active, current


# -- elementwise -------------------------------------------------------------------------------------------------------
def exp(x: Any) -> Tensor:
    """e^x."""
    return elementwise("exp", x)


def exp2(x: Any) -> Tensor:
    """2^x."""
    return elementwise("exp2", x)


def log(x: Any) -> Tensor:
    """The natural logarithm; -inf at 0, NaN below."""
    return elementwise("log", x)


def log1p(x: Any) -> Tensor:
    """log(1 + x), accurate near 0."""
    return elementwise("log1p", x)


def sqrt(x: Any) -> Tensor:
    """The square root, correctly rounded."""
    return elementwise("sqrt", x)


def rsqrt(x: Any) -> Tensor:
    """1 / sqrt(x)."""
    return elementwise("rsqrt", x)


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return elementwise("tanh", x)


def erf(x: Any) -> Tensor:
    """The error function."""
    return elementwise("erf", x)


def sigmoid(x: Any) -> Tensor:
    """1 / (1 + exp(-x))."""
    return elementwise("sigmoid", x)


def sin(x: Any) -> Tensor:
    """The sine of x in radians."""
    return elementwise("sin", x)


def cos(x: Any) -> Tensor:
    """The cosine of x in radians."""
    return elementwise("cos", x)


def floor(x: Any) -> Tensor:
    """The largest integer not above x."""
    return elementwise("floor", x)


def ceil(x: Any) -> Tensor:
    """The smallest integer not below x."""
    return elementwise("ceil", x)


def round(x: Any) -> Tensor:  # the field's name for it, as in torch.round
    """The nearest integer; halves go to the even one."""
    return elementwise("round", x)


def abs(x: Any) -> Tensor:  # as in torch.abs
    """The absolute value."""
    return elementwise("abs", x)


def isnan(x: Any) -> Tensor:
    """Whether x is not a number."""
    return elementwise("isnan", x)


def where(condition: Any, then: Any, otherwise: Any) -> Tensor:
    """``then`` where ``condition`` (bool) holds, else ``otherwise``."""
    return elementwise("where", condition, then, otherwise)


def logical_not(x: Any) -> Tensor:
    """Not, of a bool."""
    return elementwise("not", x)


def cast(x: Any, dtype: Any) -> Tensor:
    """x rounded to ``dtype``: og.float32, "float32" or np.float32.

    Integers drop the fraction, and where they cannot hold the number (or it is NaN) they are unspecified. Casting to a
    half type rounds there and then; without a cast, halves round once, at the output.

    Raises:
        DefinitionError: E1003 unknown dtype; E1011 a constant that ``dtype`` cannot hold.
    """
    x = as_tensor(x, "cast")
    target = dtypes.as_dtype(dtype)
    if target is None:
        found = f"dtype {str(dtype)!r}"
        raise error("E1003", where=user_line(), function="cast", found=found, wanted=sorted(dtypes.DTYPES))
    if isinstance(x, Const) and not dtypes.holds(target, x.value):
        raise error("E1011", where=user_line(), found=x.value, dtype=target.name, limit=dtypes.LARGEST[target.name])
    if target == x.dtype and not x.weak:
        return x
    return Map("cast", (x,), x.dims, target)


# -- reductions --------------------------------------------------------------------------------------------------------
def _over(x: Tensor, over: Any, function: str) -> tuple[str, ...]:
    _in_definition(function)
    names = (over,) if isinstance(over, str) else tuple(over)
    trace = current()
    resolved = []
    for name in names:
        actual = trace.lookup(name)
        if actual is None or actual not in x.dims:
            raise error("E1002", where=user_line(), function=function, found=name, known=list(x.dims))
        resolved.append(actual)
    if not resolved or len(set(resolved)) != len(resolved):
        raise error("E1002", where=user_line(), function=function, found=over, known=list(x.dims))
    return tuple(resolved)


def _reduce(op: str, x: Any, over: Any) -> Tensor:
    x = as_tensor(x, op)
    if x.dtype.kind == "bool":
        raise error("E1003", where=user_line(), function=op, found="bool", wanted="numbers")
    dims = _over(x, over, op)
    dtype = x.dtype
    if op in ("argmax", "argmin"):
        dtype = dtypes.int64
        if len(dims) != 1:
            raise error(
                "E1010",
                where=user_line(),
                function=op,
                found=f"{len(dims)} dims to search",
                fix="Merge them first: x.merge('a', 'b', into='ab').",
            )
    elif op in ("sum", "prod") and dtype.kind in ("int", "uint"):
        dtype = dtypes.int64
    return Reduce(op, x, dims, dtype)


def sum(x: Any, over: Any) -> Tensor:  # as in torch.sum
    """The sum over one dim or several; 0 over none. Integers give int64."""
    return _reduce("sum", x, over)


def prod(x: Any, over: Any) -> Tensor:
    """The product over one dim or several; 1 over none."""
    return _reduce("prod", x, over)


def max(x: Any, y: Any = None, *, over: Any = None) -> Tensor:  # as in torch.max
    """``max(x, over=dim)``: the largest along dims (-inf over none). ``max(x, y)``: elementwise. NaN wins in both."""
    return _extreme("max", x, y, over)


def min(x: Any, y: Any = None, *, over: Any = None) -> Tensor:  # as in torch.min
    """``min(x, over=dim)``: the smallest along dims (inf over none). ``min(x, y)``: elementwise. NaN wins in both."""
    return _extreme("min", x, y, over)


def _extreme(op: str, x: Any, y: Any, over: Any) -> Tensor:
    if isinstance(y, (str, tuple, list)) and over is None:
        y, over = None, y
    if (y is None) == (over is None):
        raise error(
            "E1010",
            where=user_line(),
            function=op,
            found="neither or both of a second operand and over= are given",
            fix=f"Write og.{op}(x, over='dim') to reduce, or og.{op}(x, y) elementwise.",
        )
    return elementwise(op, x, y) if over is None else _reduce(op, x, over)


def mean(x: Any, over: Any) -> Tensor:
    """The arithmetic mean over one dim or several; integers give float32."""
    x = as_tensor(x, "mean")
    dims = _over(x, over, "mean")
    if x.dtype.kind != "float":
        x = cast(x, dtypes.float32)
    count: Tensor = Size(dims[0])
    for d in dims[1:]:
        count = elementwise("mul", count, Size(d))
    return elementwise("div", Reduce("sum", x, dims, x.dtype), count)


def argmax(x: Any, over: str) -> Tensor:
    """The position of the first largest element along a dim, int64. A NaN counts as largest."""
    return _reduce("argmax", x, over)


def argmin(x: Any, over: str) -> Tensor:
    """The position of the first smallest element along a dim, int64. A NaN counts as smallest."""
    return _reduce("argmin", x, over)


def dot(a: Any, b: Any, over: Any) -> Tensor:
    """The sum of a·b over dims that both have: matrix products, and their batched and transposed forms.

    Result dims: a's without ``over``, then b's new ones. Dims that both have and that are not summed are batch dims.

    int8 and uint8 are multiplied and summed in int32, which the result is: exact up to 2^31 / 2^14 = 131072 terms of
    int8 (33025 of uint8), and modulo 2^32 beyond. Other integers are multiplied and summed in int64.
    """
    a, b = as_tensor(a, "dot"), as_tensor(b, "dot")
    for operand in (a, b):
        _over(operand, over, "dot")
    product = elementwise("mul", a, b)
    if product.dtype.kind == "float" or product.weak:
        return sum(product, over)
    small = a.dtype.bits == b.dtype.bits == 8
    wide = dtypes.int32 if small else dtypes.int64
    dims = _over(product, over, "dot")
    return Reduce("sum", Map("mul", (a, b), product.dims, wide), dims, wide)


def softmax(x: Any, over: str, where: Any = None) -> Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) along a dim.

    With ``where``, a bool tensor that may have dims of its own, elements at which it is False are not there: they give
    0, whatever x holds, and so does a row without any other. A row of -inf alone that is there has no softmax: NaN.
    """
    _, shifted, total = _exponentials(x, over, where)
    return shifted / (total if where is None else elementwise("where", total == 0, 1.0, total))


def logsumexp(x: Any, over: str, where: Any = None) -> Tensor:
    """max(x) + log(sum(exp(x - max(x)))) along a dim, in float32 at least; over nothing it is -inf.

    ``where`` is as for `softmax`, whose maximum, exponentials and sum of the same operands it shares.
    """
    largest, _, total = _exponentials(x, over, where)
    found = largest + log(total)
    return cast(found, dtypes.compute_type(found.dtype))


def _exponentials(x: Any, over: str, where: Any) -> tuple[Tensor, Tensor, Tensor]:
    """max(x), exp(x - max(x)) and its sum along a dim: the same nodes for the same operands."""
    x = as_tensor(x, "softmax")
    _in_definition("softmax")
    names = (over,) if isinstance(over, str) else tuple(over)
    key = ("exponentials", id(x), id(where), *(current().lookup(n) for n in names))
    known = current().shared.get(key)
    if known is None:
        # One masked value for maximum and exponential alike: what is read twice is stored once.
        inside = x if where is None else elementwise("where", where, x, float("-inf"))
        largest = _reduce("max", inside, over)
        shifted = exp(elementwise("sub", inside, largest))
        if where is not None:  # where all are masked, -inf - -inf is NaN
            shifted = elementwise("where", where, shifted, 0.0)
        # With the operands: while they are kept, no other node gets their ids.
        known = current().shared[key] = (largest, shifted, sum(shifted, over), x, where)
    found: Any = known
    return found[0], found[1], found[2]


# -- positions and sizes -----------------------------------------------------------------------------------------------
def index(dim: str) -> Tensor:
    """The position 0, 1, … along a dim, int64; of ``"..."``, the position along all leading dims as one."""
    _in_definition("index")
    frame = current().frames[-1]
    if dim != "..." or not frame.leading:
        return Index(current().resolve(dim))
    position: Tensor = Const(0)
    for i, lead in enumerate(frame.lead):
        position = position * Size(lead) + Index(lead) if i else Index(lead)
    return position


def size(dim: str) -> Tensor:
    """The extent of a dim, int64."""
    _in_definition("size")
    return Size(current().resolve(dim))


def require(condition: str, message: str) -> None:
    """A condition on dims that every call must meet, such as ``og.require("heads % kv_heads == 0", "…")``.

    A call that breaks it gets E4010 with ``message`` before anything runs.
    """
    _in_definition("require")
    try:
        tree = ast.parse(condition, mode="eval")
    except SyntaxError as bad:
        _refuse_condition(f"{condition!r} is no expression ({bad.msg})")
    current().require(ast.unparse(_with_extents(tree.body)), message)


def require_offsets(offsets: Tensor, dim: str) -> None:
    """``offsets``, a vector of integers, cuts a dim into runs that follow each other: the packed sequences of a batch.

    Run s is offsets[s] <= position < offsets[s + 1]; runs may be empty. The elements start at 0, never fall and end at
    the dim's extent: a call with others gets E4024 before anything runs. Offsets that the op computes, and that are no
    input's elements, are not checked.
    """
    source = _checked("require_offsets", offsets, dim, vector=True)
    trace = current()
    trace.require(f"({trace.extents[offsets.dims[0]]}) > 0", f"{offsets.dims[0]} counts the sequences, and one more")
    if source is not None:
        _add_check(Check("offsets", source.name, trace.resolve(dim)))


def segment(offsets: Tensor, dim: str) -> Tensor:
    """The run of ``offsets`` that each position along a dim lies in, int64: ``weight.at(experts=og.segment(offsets,
    "tokens"))`` reads the weight of each token's expert.

    Run s is offsets[s] <= position < offsets[s + 1], so there is an offset more than there are runs, and runs may be
    empty. Calls are held to `require_offsets`. Where elements are not checked (on a GPU, or offsets that the op
    computes), it is how many offsets are not past the position, less one: positions before all runs give -1, those
    behind them the number of runs, and it never falls, whatever the offsets are.
    """
    require_offsets(offsets, dim)
    if current().resolve(dim) == offsets.dims[0]:
        raise error(
            "E1010",
            where=user_line(),
            function="segment",
            found=f"the offsets lie along {dim!r}, the dim that they cut",
            fix="Give the offsets a dim of their own: offsets: og.Tensor['offsets', og.integer].",
        )
    begun = where(elementwise("le", offsets, index(dim)), 1, 0)
    return Reduce("sum", begun, offsets.dims, dtypes.int64) - 1


def require_sorted(x: Tensor) -> None:
    """The elements of ``x``, a vector of integers, never fall: a call with others gets E4027 before anything runs.

    So a product with ``weight.at(experts=x)`` is one product for each run of equal elements. Values that the op
    computes, and that are no input's elements, are not checked, and nothing is concluded of them.
    """
    source = _checked("require_sorted", x, None, vector=True)
    if source is not None:
        _add_check(Check("sorted", source.name, source.dims[0]))


def require_lengths(lengths: Tensor, dim: str) -> None:
    """The elements of ``lengths``, integers, say how much of a dim is there: they lie in [0, extent].

    A call with others gets E4025 before anything runs. Lengths that the op computes are not checked.
    """
    source = _checked("require_lengths", lengths, dim, vector=False)
    if source is not None:
        _add_check(Check("lengths", source.name, current().resolve(dim)))


def _checked(function: str, x: Any, dim: str | None, vector: bool) -> Input | None:
    """The input whose elements are checked, None for values that the op computes; refuses all but integer tensors."""
    trace = _of(x, function)
    if dim is not None:
        trace.resolve(dim)
    if x.dtype.kind not in ("int", "uint") or (vector and len(x.dims) != 1):
        wanted = "a vector of integers" if vector else "integers"
        raise error("E1003", where=user_line(), function=function, found=repr(x), wanted=wanted)
    return checked_input(x)


def _add_check(check: Check) -> None:
    if check not in current().checks:
        current().checks.append(check)


_CONDITION = (
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.UnaryOp,
    ast.UAdd,
    ast.USub,
    ast.Not,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)


def _with_extents(node: ast.expr) -> ast.expr:
    """A condition with extents in the place of dim names.

    The language is that of the library's manifest: integers, names, + - * // %, comparisons, and/or/not, min and max.
    """
    if isinstance(node, ast.Name):
        trace = current()
        # As a tree: put in as text, the extent hidden // 64 would lose its parentheses.
        return ast.parse(str(trace.extents[trace.resolve(node.id)]), mode="eval").body
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        if len(node.args) > 1 and not node.keywords:
            node.args = [_with_extents(a) for a in node.args]
            return node
    elif all(isinstance(n, (*_CONDITION, ast.expr)) for n in ast.iter_child_nodes(node)) and isinstance(
        node, _CONDITION
    ):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, _with_extents(value))
            elif isinstance(value, list):
                setattr(node, name, [_with_extents(v) if isinstance(v, ast.expr) else v for v in value])
        return node
    _refuse_condition(f"{ast.unparse(node)} cannot stand in a condition on dims")


def _refuse_condition(found: str) -> NoReturn:
    raise error(
        "E1010",
        where=user_line(),
        function="require",
        found=found,
        fix="Write a comparison of dims and integers, such as 'heads % kv_heads == 0'.",
    )


def _in_definition(function: str) -> None:
    if active() is None:
        raise error(
            "E1010",
            where=user_line(),
            function=function,
            found="it is called outside an op's definition",
            fix="Call it inside a function decorated with @og.op.",
        )


def _of(x: Any, function: str) -> Trace:
    """The tracing under way, for a view of x, which must be a tensor of it."""
    _in_definition(function)
    if not isinstance(x, Tensor):
        raise error("E1003", where=user_line(), function=function, found=f"a {type(x).__name__}", wanted="a tensor")
    return current()


def at(x: Tensor, **positions: Any) -> Tensor:
    """x read at computed positions: ``x.at(heads=og.index("heads") // group)``, ``table.at(vocab=ids)``.

    Each position is an integer tensor; its dims replace the dim that it indexes (new ones come where that dim was).
    Positions that are an input's elements are checked before the call runs (E4009); other positions are clamped to
    the dim, and a call in which it has no element to be clamped to gets E4010.
    """
    trace = _of(x, "at")
    coords: dict[str, Tensor] = {}
    for name, position in positions.items():
        dim = trace.lookup(name)
        if dim is None or dim not in x.dims:
            raise error("E1001", where=user_line(), found=name, known=list(x.dims))
        value = as_tensor(position, "at")
        if value.dtype.kind not in ("int", "uint"):
            raise error(
                "E1003",
                where=user_line(),
                function="at",
                found=f"a position of type {value.dtype.name}",
                wanted="integer positions",
            )
        coords[dim] = value
    dims = _at_dims(x, coords)
    for dim, value in coords.items():
        if dim not in dims and checked_input(value) is None:
            count = Extent.const(1)
            for d in dims:
                count = count.times(trace.extents[d])
            needs = f"({trace.extents[dim]}) > 0 or ({count}) == 0"
            trace.require(needs, f"{dim} is read at computed positions and must have an element")
    return At(x, coords, dims)


def checked_input(position: Tensor) -> Input | None:
    """The input whose elements are positions of an `At`, if that is all they are: it is checked before launch."""
    while (isinstance(position, Map) and position.op == "cast") or (isinstance(position, At) and not position.coords):
        position = position.children()[0]
    return position if isinstance(position, Input) else None


def _at_dims(x: Tensor, coords: dict[str, Tensor]) -> tuple[str, ...]:
    """Dims of a read: each indexed dim gives way to the new dims of its position."""
    kept = [d for d in x.dims if d not in coords]
    dims: list[str] = []
    for d in x.dims:
        new = coords[d].dims if d in coords else (d,)
        dims.extend(n for n in new if n not in dims and (d not in coords or n not in kept))
    return tuple(dims)


def rename(x: Tensor, **names: str) -> Tensor:
    """The same values under other dim names: ``og.rename(x, queries="keys")``. A new name gets the old one's extent."""
    trace = _of(x, "rename")
    coords: dict[str, Tensor] = {}
    for old, new in names.items():
        dim = trace.resolve(old)
        if dim not in x.dims:
            raise error("E1001", where=user_line(), found=old, known=list(x.dims))
        coords[dim] = Index(trace.declare(new, trace.extents[dim]))
    dims = tuple(coords[d].dims[0] if d in coords else d for d in x.dims)
    return At(x, coords, dims, exact=True)


def _extent(value: Any, trace: Trace) -> Extent | None:
    """The extent that a positive integer, of Python or of numpy, og.size, or sums, products and quotients (//) of them
    give; None for anything else."""
    if isinstance(value, Size):
        return trace.extents[value.dim]
    if isinstance(value, Map) and value.op in ("add", "mul", "floordiv"):
        a, b = (a.value if isinstance(a, Const) else a for a in value.args)
        left, right = _extent(a, trace), _extent(b, trace)
        if left is None or right is None or (value.op == "floordiv" and right.value is None):
            return None
        return {"add": left.__add__, "mul": left.__mul__, "floordiv": left.__floordiv__}[value.op](right)
    if isinstance(value, (bool, Tensor)) or not hasattr(value, "__index__"):
        return None
    try:
        number = operator.index(value)
    except TypeError:  # an array of several numbers
        return None
    return Extent.const(number) if number > 0 else None


def split(x: Tensor, dim: str, **into: Any) -> Tensor:
    """One dim as several, outermost first: ``og.split(x, "hidden", heads=None, head_dim=64)``.

    Extents are ints or ``og.size(...)``; exactly one may be None and is derived. The extent must divide: a call that
    does not fit gets
    E4010.
    """
    trace = _of(x, "split")
    source = trace.resolve(dim)
    if source not in x.dims:
        raise error("E1001", where=user_line(), found=dim, known=list(x.dims))
    total = trace.extents[source]
    unknown = [n for n, v in into.items() if v is None]
    if len(into) < 2 or len(unknown) > 1:
        raise error(
            "E1010",
            where=user_line(),
            function="split",
            found=f"extents {into} for the parts of {dim!r}",
            fix="Name two parts or more, at most one of them None: og.split(x, 'hidden', heads=None, head_dim=64).",
        )
    extents: dict[str, Extent] = {}
    known = Extent.const(1)
    for name, value in into.items():
        if value is None:
            continue
        found = _extent(value, trace)
        if found is None:
            raise error(
                "E1010",
                where=user_line(),
                function="split",
                found=f"the extent of {name!r} is {value!r}",
                fix="Give a positive int, og.size('dim') or None.",
            )
        extents[name] = found
        known = known * extents[name]
    if unknown:
        extents[unknown[0]] = total.divided(known)
        trace.require(f"({known}) > 0 and ({total}) % ({known}) == 0", f"{dim} must be a multiple of {known}")
    else:
        trace.require(f"({total}) == {known}", f"{dim} must be {known}")
    names = [trace.declare(n, extents[n]) for n in into]
    position: Tensor = Index(names[0])
    for n in names[1:]:
        position = position * Size(n) + Index(n)
    dims = tuple(n for d in x.dims for n in (names if d == source else [d]))
    return At(x, {source: position}, dims, exact=True)


def merge(x: Tensor, *dims: str, into: str) -> Tensor:
    """Several dims as one, the first outermost: ``og.merge(x, "heads", "head_dim", into="hidden")``.

    The new dim stands where the first of them stood.
    """
    trace = _of(x, "merge")
    names = [trace.resolve(d) for d in dims]
    if len(names) < 2 or any(n not in x.dims for n in names):
        raise error("E1001", where=user_line(), found=list(dims), known=list(x.dims))
    total = Extent.const(1)
    for n in names:
        total = total.times(trace.extents[n])
    merged = trace.declare(into, total)
    coords: dict[str, Tensor] = {}
    rest: Tensor = Index(merged)
    for n in reversed(names[1:]):
        coords[n] = rest % Size(n)
        rest = rest // Size(n)
    coords[names[0]] = rest
    out = tuple(merged if d == names[0] else d for d in x.dims if d not in names[1:])
    return At(x, coords, out, exact=True)


def transpose(x: Tensor, *dims: str) -> Tensor:
    """The same tensor with its dims in the given order; only the order of an op's result depends on it.

    ``"..."`` comes first, as it does in every result.
    """
    trace = _of(x, "transpose")
    if "..." in dims[1:]:
        raise error("E1006", where=user_line(), found=list(dims), what="og.transpose")
    order = tuple(d for n in dims for d in (trace.frames[-1].lead if n == "..." else (trace.resolve(n),)))
    if sorted(order) != sorted(x.dims):
        raise error("E1013", where=user_line(), dims=list(dims), found=f"the tensor has dims {list(x.dims)}")
    return At(x, {}, order, exact=True)


def concat(*tensors: Tensor, dim: str | tuple[str, ...], into: str) -> Tensor:
    """The tensors one after the other: ``og.concat(past, new, dim=("past", "new"), into="keys")``.

    ``dim`` names the dim that each part contributes (one name if it is the same for all); the other dims must agree.
    The joined dim is
    called ``into`` and stands where the first part's stood.
    """
    _in_definition("concat")
    trace = current()
    parts = tuple(as_tensor(t, "concat") for t in tensors)
    names = (dim,) * len(parts) if isinstance(dim, str) else tuple(dim)
    part_dims = tuple(trace.resolve(n) for n in names)
    others = [set(p.dims) - {d} for p, d in zip(parts, part_dims, strict=False)]
    if (
        not parts
        or len(part_dims) != len(parts)
        or any(d not in p.dims for p, d in zip(parts, part_dims, strict=True))
        or any(o != others[0] for o in others)
    ):
        raise error(
            "E1010",
            where=user_line(),
            function="concat",
            found=f"parts with dims {[list(p.dims) for p in parts]} joined along {list(names)}",
            fix="Name one dim of each part; all their other dims must agree.",
        )
    total = trace.extents[part_dims[0]]
    for d in part_dims[1:]:
        total = total + trace.extents[d]
    joined = trace.declare(into, total)
    dims = tuple(joined if d == part_dims[0] else d for d in parts[0].dims)
    return Concat(parts, part_dims, joined, dims, common_type(parts)[0])


def compute(function: Callable[..., Any], **extents: Any) -> Tensor:
    """A tensor from the positions along dims, which are the function's parameters.

    ``og.compute(lambda queries, keys: og.where(keys <= queries, 0.0, float("-inf")))``. A dim that the op does not
    have yet gets
    its extent by keyword: ``og.compute(lambda taps: ..., taps=3)``.
    """
    _in_definition("compute")
    trace = current()
    for name, value in extents.items():
        extent = _extent(value, trace)
        if extent is None:
            raise error(
                "E1010",
                where=user_line(),
                function="compute",
                found=f"the extent of {name!r} is {value!r}",
                fix="Give a positive int or og.size('dim').",
            )
        trace.declare(name, extent)
    names = list(inspect.signature(function).parameters)
    value = as_tensor(function(*(Index(trace.resolve(n)) for n in names)), "compute")
    missing = [n for n in names if trace.resolve(n) not in value.dims]
    for n in missing:  # a function that ignores a position is constant along it
        value = where(Index(trace.resolve(n)) >= 0, value, value)
    order = tuple(trace.resolve(n) for n in names)
    rest = tuple(d for d in value.dims if d not in order)
    return At(value, {}, rest + order, exact=True) if value.dims != rest + order else value


METHODS.update({"at": at, "cast": cast, "merge": merge, "rename": rename, "split": split})

__all__ = [
    "abs",
    "argmax",
    "argmin",
    "at",
    "cast",
    "ceil",
    "compute",
    "concat",
    "cos",
    "dot",
    "erf",
    "exp",
    "exp2",
    "floor",
    "index",
    "isnan",
    "log",
    "log1p",
    "logical_not",
    "logsumexp",
    "max",
    "mean",
    "merge",
    "min",
    "prod",
    "rename",
    "require",
    "require_lengths",
    "require_offsets",
    "require_sorted",
    "round",
    "rsqrt",
    "segment",
    "sigmoid",
    "sin",
    "size",
    "softmax",
    "split",
    "sqrt",
    "sum",
    "tanh",
    "transpose",
    "where",
]
