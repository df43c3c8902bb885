"""The expression graph: immutable nodes over named dims.

A node knows its dims (names, in order), its element type and where it was written. Everything later, from the loop
nest to the reference evaluator, is a lowering of these ten kinds of node:

    Input  Scalar  Const  Index  Size      leaves
    Map                                    elementwise, broadcasting by name
    Reduce                                 over one or more dims; a contraction is a sum over a product
    Scan                                   a running sum, product, maximum or minimum along one dim
    At                                     reads at computed positions: gather, split, merge and rename are all this
    Concat                                 along one dim
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ..errors import error
from . import dtypes
from .dtypes import DType
from .location import user_line
from .spec import TensorSpec

METHODS: dict[str, Callable[..., Tensor]] = {}
"""Functions that tensors have as methods too. functions.py, which builds on this module, fills it."""


class Tensor:
    """A value with named dims inside an op's definition, and the annotation of an op's parameter.

    As an annotation, ``og.Tensor["...", "hidden"]`` gives the dims; a last entry may be an element type
    (``og.Tensor["...", og.int64]``) or a class of them (``og.integer``). Without one, the parameter takes the floating
    type that the op is compiled for.

    As a value it broadcasts by name: ``x * weight`` needs no axis numbers.
    """

    __slots__ = ("dims", "dtype", "weak", "where")

    def __init__(self, dims: tuple[str, ...], dtype: DType, weak: bool = False) -> None:
        self.dims = dims
        self.dtype = dtype
        self.weak = weak
        self.where = user_line()
        if len(set(dims)) != len(dims):
            twice = next(d for d in dims if dims.count(d) > 1)
            raise error("E1007", where=self.where, found=twice, what=f"a result with dims {list(dims)}")

    def __class_getitem__(cls, items: Any) -> TensorSpec:
        return TensorSpec.from_items(items if isinstance(items, tuple) else (items,), mutable=issubclass(cls, Mut))

    # -- arithmetic --------------------------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor:
        return elementwise("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return elementwise("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return elementwise("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return elementwise("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return elementwise("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return elementwise("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return elementwise("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return elementwise("div", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        """The quotient rounded down. Integers give 0 for a division by 0, and so does %."""
        return elementwise("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return elementwise("floordiv", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return elementwise("mod", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return elementwise("mod", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return elementwise("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return elementwise("pow", other, self)

    def __neg__(self) -> Tensor:
        return elementwise("neg", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return elementwise("abs", self)

    def __matmul__(self, other: Any) -> NoReturn:
        raise error(
            "E1010",
            where=user_line(),
            function="@",
            found="tensors with named dims have no last and first axis to contract",
            fix="Name the dim: og.dot(x, y, over='dim').",
        )

    __rmatmul__ = __matmul__

    # -- numpy -------------------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Tensor:
        """Operators with a numpy scalar on the left; other functions of numpy are refused, as is what has an array."""
        name = ufunc.__name__
        if method == "__call__" and name in _OPERATORS and not kwargs:
            return elementwise(_OPERATORS[name], *inputs)
        if method == "__call__" and name in _BIT_OPERATORS and not kwargs:
            return logic_or_bits(_BIT_OPERATORS[name], *inputs)
        methods = {"reduce": _REDUCTIONS, "accumulate": _SCANS}
        _refuse_numpy(methods.get(method, _COUNTERPARTS).get(name), f"np.{name}")

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> NoReturn:
        name = function.__name__
        _refuse_numpy(_COUNTERPARTS.get(name), f"np.{name}")

    # -- comparisons and logic ---------------------------------------------------------------------------------------
    def __lt__(self, other: Any) -> Tensor:
        return elementwise("lt", self, other)

    def __le__(self, other: Any) -> Tensor:
        return elementwise("le", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return elementwise("gt", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return elementwise("ge", self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return elementwise("eq", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return elementwise("ne", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Tensor:
        return logic_or_bits("and", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return logic_or_bits("and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return logic_or_bits("or", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return logic_or_bits("or", other, self)

    def __xor__(self, other: Any) -> Tensor:
        return logic_or_bits("xor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return logic_or_bits("xor", other, self)

    def __invert__(self) -> Tensor:
        return logic_or_bits("not", self)

    def __lshift__(self, other: Any) -> Tensor:
        """The bits moved to higher places, modulo 2 to the width. A count outside of the width leaves 0."""
        return elementwise("shift_left", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return elementwise("shift_left", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        """The bits moved to lower places, copies of the sign behind them. A count outside of the width leaves those."""
        return elementwise("shift_right", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return elementwise("shift_right", other, self)

    # -- positions and views -----------------------------------------------------------------------------------------
    def at(self, **positions: Any) -> Tensor:
        """Reads at computed positions: see `opsgen.at`."""
        return METHODS["at"](self, **positions)

    def rename(self, **names: str) -> Tensor:
        """The same values under other dim names: ``x.rename(queries="keys")``."""
        return METHODS["rename"](self, **names)

    def split(self, dim: str, **into: Any) -> Tensor:
        """One dim as several: see `opsgen.split`."""
        return METHODS["split"](self, dim, **into)

    def merge(self, *dims: str, into: str) -> Tensor:
        """Several dims as one: see `opsgen.merge`."""
        return METHODS["merge"](self, *dims, into=into)

    def cast(self, dtype: Any) -> Tensor:
        """The values rounded to another element type."""
        return METHODS["cast"](self, dtype)

    # -- what a symbolic value cannot do -----------------------------------------------------------------------------
    def _needs_value(self, construct: str) -> NoReturn:
        raise error("E1004", where=user_line(), construct=construct)

    def __bool__(self) -> bool:
        self._needs_value("if/and/or/not/while")

    def __iter__(self) -> Any:
        self._needs_value("loop or unpacking")

    def __len__(self) -> int:
        self._needs_value("len()")

    def __float__(self) -> float:
        self._needs_value("float()")

    def __int__(self) -> int:
        self._needs_value("int()")

    def __index__(self) -> int:
        self._needs_value("integer use")

    def __getitem__(self, item: Any) -> NoReturn:
        raise error(
            "E1010",
            where=user_line(),
            function="x[...]",
            found="tensors in a definition are not indexed by position",
            fix="Use x.at(dim=position), for example x.at(heads=og.index('heads') // group).",
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype.name}[{', '.join(self.dims)}]>"

    def children(self) -> tuple[Tensor, ...]:
        """The nodes that this one reads."""
        return ()


class Mut(Tensor):
    """The annotation of a parameter that the op updates in place: ``cache: og.Mut["batch", "length", "width"]``.

    The op returns the new value as the result of the same name: ``og.results(cache=og.where(...))``.
    """

    __slots__ = ()


class Input(Tensor):
    """A tensor parameter. ``dtype`` is the type in storage."""

    __slots__ = ("mutable", "name")

    def __init__(self, name: str, dims: tuple[str, ...], dtype: DType, mutable: bool = False) -> None:
        super().__init__(dims, dtype)
        self.name = name
        self.mutable = mutable


class Scalar(Tensor):
    """A float parameter: a run-time scalar of the kernel."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__((), dtypes.float32, weak=True)
        self.name = name


class Const(Tensor):
    """A Python number in the definition."""

    __slots__ = ("value",)

    def __init__(self, value: float | int | bool, dtype: DType | None = None) -> None:
        if dtype is None:
            if isinstance(value, bool):
                dtype = dtypes.bool_
            else:
                dtype = dtypes.int64 if isinstance(value, int) else dtypes.float32
            if dtype == dtypes.int64 and not dtypes.holds(dtype, value):
                raise error("E1011", where=user_line(), found=value, dtype="int64", limit=dtypes.LARGEST["int64"])
        super().__init__((), dtype, weak=dtype.kind != "bool")
        self.value = value


class Index(Tensor):
    """The position along a dim, int64."""

    __slots__ = ("dim",)

    def __init__(self, dim: str) -> None:
        super().__init__((dim,), dtypes.int64)
        self.dim = dim


class Size(Tensor):
    """The extent of a dim, int64."""

    __slots__ = ("dim",)

    def __init__(self, dim: str) -> None:
        super().__init__((), dtypes.int64, weak=True)
        self.dim = dim


class Map(Tensor):
    """``op`` applied elementwise; args broadcast by name."""

    __slots__ = ("args", "op")

    def __init__(
        self, op: str, args: tuple[Tensor, ...], dims: tuple[str, ...], dtype: DType, weak: bool = False
    ) -> None:
        super().__init__(dims, dtype, weak)
        self.op = op
        self.args = args

    def children(self) -> tuple[Tensor, ...]:
        return self.args


class Reduce(Tensor):
    """``op`` is sum, prod, max, min, argmax or argmin."""

    __slots__ = ("arg", "op", "over")

    def __init__(self, op: str, arg: Tensor, over: tuple[str, ...], dtype: DType) -> None:
        weak = arg.weak and op not in ("argmax", "argmin")
        super().__init__(tuple(d for d in arg.dims if d not in over), dtype, weak)
        self.op = op
        self.arg = arg
        self.over = over

    def children(self) -> tuple[Tensor, ...]:
        return (self.arg,)


class Scan(Tensor):
    """``op`` (sum, prod, max or min) of the elements along ``over`` from the first to each position.

    ``exclusive``: without the position's own element, so that the first one is what ``op`` gives over nothing.
    ``reverse``: from the last element to each position.
    """

    __slots__ = ("arg", "exclusive", "op", "over", "reverse")

    def __init__(
        self, op: str, arg: Tensor, over: str, dtype: DType, exclusive: bool = False, reverse: bool = False
    ) -> None:
        super().__init__(arg.dims, dtype, arg.weak)
        self.op = op
        self.arg = arg
        self.over = over
        self.exclusive = exclusive
        self.reverse = reverse

    def children(self) -> tuple[Tensor, ...]:
        return (self.arg,)


class At(Tensor):
    """``source`` read at ``coords`` (dim of the source → position). Dims of the source not named keep their position.

    ``exact`` marks views (split, merge, rename), whose positions lie inside by construction; other positions are
    checked before launch when they are an input's elements, and clamped to the source otherwise.
    """

    __slots__ = ("coords", "exact", "source")

    def __init__(
        self, source: Tensor, coords: Mapping[str, Tensor], dims: tuple[str, ...], exact: bool = False
    ) -> None:
        super().__init__(dims, source.dtype, source.weak)
        self.source = source
        self.coords = dict(coords)
        self.exact = exact

    def children(self) -> tuple[Tensor, ...]:
        return (self.source, *self.coords.values())


class Concat(Tensor):
    """``parts`` one after the other along ``dim``; part i reads its own dim ``part_dims[i]``."""

    __slots__ = ("dim", "part_dims", "parts")

    def __init__(
        self, parts: tuple[Tensor, ...], part_dims: tuple[str, ...], dim: str, dims: tuple[str, ...], dtype: DType
    ) -> None:
        super().__init__(dims, dtype)
        self.parts = parts
        self.part_dims = part_dims
        self.dim = dim

    def children(self) -> tuple[Tensor, ...]:
        return self.parts


_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
_LOGIC = {"and", "or", "not"}
BITS = frozenset({"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right", "wide_product"})
"""Operations on the bits of integers, two's complement."""
_FLOAT_ONLY = {
    "exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos", "floor", "ceil", "round",
}  # fmt: skip
_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "floor_divide": "floordiv",
    "remainder": "mod", "power": "pow", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
    "equal": "eq", "not_equal": "ne", "left_shift": "shift_left", "right_shift": "shift_right",
}  # fmt: skip
"""What numpy calls the operators that it hands over when its scalar stands on the left: ``np.float32(2) * x``."""
_BIT_OPERATORS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_COUNTERPARTS = {
    **{name: name for name in (
        "abs", "argmax", "argmin", "ceil", "cos", "dot", "exp", "exp2", "floor", "isnan", "log", "log1p",
        "logical_not", "max", "mean", "min", "prod", "round", "sin", "sqrt", "sum", "tanh", "transpose", "where",
    )},
    "absolute": "abs", "amax": "max", "amin": "min", "concatenate": "concat", "einsum": "dot", "fabs": "abs",
    "fmax": "max", "fmin": "min", "inner": "dot", "matmul": "dot", "maximum": "max", "minimum": "min", "rint": "round",
    "cumprod": "cumprod", "cumsum": "cumsum", "split": "split", "swapaxes": "transpose", "take": "at",
    "tensordot": "dot", "vecdot": "dot",
}  # fmt: skip
"""Functions of numpy, and the functions of the language that do the same."""
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_SCANS = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}


def _refuse_numpy(counterpart: str | None, function: str) -> NoReturn:
    raise error(
        "E1010",
        where=user_line(),
        function=function,
        found="numpy computes arrays, and a tensor of a definition has no values yet",
        fix=f"Use og.{counterpart}." if counterpart else "Use the functions and operators of opsgen.",
    )


def as_number(value: Any) -> bool | int | float | None:
    """A Python number or a numpy scalar as a Python number; None for anything else."""
    if isinstance(value, (bool, int, float)):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a numpy scalar
        number = value.item()
        return number if isinstance(number, (bool, int, float)) else None
    return None


def as_tensor(value: Any, function: str) -> Tensor:
    """A Python number as a `Const`; tensors as they are.

    Raises:
        DefinitionError: E1010 for None and for arrays; E1003 for anything else.
    """
    if isinstance(value, Tensor):
        return value
    number = as_number(value)
    if number is not None:
        return Const(number)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise error(
            "E1010",
            where=user_line(),
            function=function,
            found=f"an operand is an array ({type(value).__module__}.{type(value).__name__})",
            fix="Arrays are passed when the op is called: make it a parameter, such as table: og.Tensor['dim'].",
        )
    if value is None:
        raise error(
            "E1010", where=user_line(), function=function, found="an operand is None",
            fix="An optional tensor is None where it is absent: test it with `is None`.",
        )  # fmt: skip
    raise error(
        "E1003",
        where=user_line(),
        function=function,
        found=f"a {type(value).__name__}",
        wanted="tensor expressions and Python numbers",
    )


def broadcast_dims(args: tuple[Tensor, ...]) -> tuple[str, ...]:
    """The left operand's dims, then each further operand's new ones, in order."""
    dims: list[str] = []
    for arg in args:
        dims.extend(d for d in arg.dims if d not in dims)
    return tuple(dims)


def common_type(args: tuple[Tensor, ...]) -> tuple[DType, bool]:
    """The promoted type and whether it is weak: Python numbers and run-time scalars adapt to the tensors beside them.

    So does what is made of them and of integers alone, such as ``og.index("keys") * 0.5``: a mask or a table of
    positions
    does not make a float32 result of float16 inputs.
    """
    strong = [a.dtype for a in args if not a.weak]
    weak = [a.dtype for a in args if a.weak]
    if not strong:
        result = weak[0]
        for dtype in weak[1:]:
            result = dtypes.promote(result, dtype)
        return result, True
    result = strong[0]
    for dtype in strong[1:]:
        result = dtypes.promote(result, dtype)
    for dtype in weak:  # a float number beside integers makes a float, otherwise the tensor's type stays
        if dtype.kind == "float" and result.kind != "float":
            return dtypes.float32, True
        if dtype.kind == "int" and result.kind == "bool":
            result = dtypes.int64
    return result, False


def _check_constants(args: tuple[Tensor, ...], dtype: DType, weak: bool) -> None:
    """Refuses a number that the type in which an operation is computed cannot hold. Infinities are meant.

    Raises:
        DefinitionError: E1011.
    """
    if weak:  # not bound to a type yet
        return
    kind = dtypes.compute_type(dtype)
    for a in args:
        if isinstance(a, Const) and not dtypes.holds(kind, a.value):
            raise error("E1011", where=user_line(), found=a.value, dtype=kind.name, limit=dtypes.LARGEST[kind.name])


def elementwise(op: str, *operands: Any) -> Tensor:
    """The node of a map, with its operands' types checked and its result's type decided.

    Raises:
        DefinitionError: E1003, an operand's type does not suit ``op``; E1011, a number does not fit it.
    """
    args = tuple(as_tensor(v, op) for v in operands)

    def refuse(found: str, wanted: str) -> NoReturn:
        raise error("E1003", where=user_line(), function=op, found=found, wanted=wanted)

    kinds = [a.dtype.kind for a in args]
    if op in _LOGIC:
        for a in args:
            if a.dtype.kind != "bool":
                refuse(a.dtype.name, "bool operands, such as a comparison gives, or integers alone")
        return Map(op, args, broadcast_dims(args), dtypes.bool_)
    if op in _COMPARISONS:
        if "bool" in kinds and set(kinds) != {"bool"}:
            refuse(" and ".join(a.dtype.name for a in args), "two numbers or two bools")
        _check_constants(args, *common_type(args))
        return Map(op, args, broadcast_dims(args), dtypes.bool_)
    if op == "where":
        if kinds[0] != "bool":
            refuse(f"a condition of type {args[0].dtype.name}", "a bool condition")
        if (kinds[1] == "bool") != (kinds[2] == "bool"):
            refuse(f"{args[1].dtype.name} and {args[2].dtype.name}", "two branches that are both numbers or both bool")
        dtype, weak = common_type(args[1:])
        _check_constants(args[1:], dtype, weak)
        # The values' dims first, then those that only the condition has: a mask does not turn a result around.
        return Map(op, args, broadcast_dims((*args[1:], args[0])), dtype, weak)
    if op in BITS:
        return _bits(op, args)
    if "bool" in kinds:
        refuse("bool", "numbers; og.where(b, 1.0, 0.0) or og.cast(b, dtype) makes one of a bool")
    dtype, weak = common_type(args)
    if op == "isnan":
        return Map(op, args, args[0].dims, dtypes.bool_)
    if (op in _FLOAT_ONLY or op == "div") and dtype.kind != "float":
        dtype, weak = dtypes.float32, True
    _check_constants(args, dtype, weak)
    if op == "pow" and dtype.kind != "float" and not (isinstance(args[1], Const) and args[1].value >= 0):
        refuse(f"{dtype.name} with an exponent that is no constant of 0 or more", "such a constant, or a floating base")
    return Map(op, args, broadcast_dims(args), dtype, weak)


def logic_or_bits(op: str, *operands: Any) -> Tensor:
    """``and``, ``or``, ``xor`` or ``not``: of bools as truth values, of integers bit by bit.

    Raises:
        DefinitionError: E1003, the operands are neither bools alone nor integers alone.
    """
    args = tuple(as_tensor(v, op) for v in operands)
    kinds = {a.dtype.kind for a in args}
    if kinds <= {"int", "uint"}:
        return elementwise(f"bit_{op}", *args)
    if op == "xor" and kinds == {"bool"}:
        return elementwise("ne", *args)
    if op == "xor":
        found = " and ".join(a.dtype.name for a in args)
        raise error("E1003", where=user_line(), function=op, found=found, wanted="two bools or two integers")
    return elementwise(op, *args)


def _bits(op: str, args: tuple[Tensor, ...]) -> Tensor:
    """The node of an operation on bits, in the integers' common type."""

    def refuse(found: str, wanted: str) -> NoReturn:
        raise error("E1003", where=user_line(), function=op, found=found, wanted=wanted)

    for a in args:
        if a.dtype.kind not in ("int", "uint"):
            refuse(a.dtype.name, "integers; og.cast(x, og.int64) makes one of a float")
    dtype, weak = (dtypes.int64, False) if op == "wide_product" else common_type(args)
    count = args[-1]
    if op.startswith("shift") and isinstance(count, Const) and not 0 <= count.value < dtype.bits:
        found = f"a shift of {dtype.name} by {count.value}"
        raise error("E1010", where=user_line(), function=op, found=found, fix=f"Shift by 0 to {dtype.bits - 1}.")
    _check_constants(args, dtype, weak)
    return Map(op, args, broadcast_dims(args), dtype, weak)


def walk(
    roots: tuple[Tensor, ...],
    visit: Callable[[Tensor], None],
    children: Callable[[Tensor], tuple[Tensor, ...]] = lambda node: node.children(),
) -> None:
    """Every node once, children before parents, left to right. Iterative: deep graphs do not exhaust the stack."""
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            visit(node)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack.extend((c, False) for c in reversed(children(node)))
