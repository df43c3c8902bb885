"""Ops: what ``@og.op`` makes of a function, and the graph that tracing it gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, overload

from ..errors import InternalError, OpsgenError, error, warn
from . import dtypes, names, signature
from .dtypes import DType, DTypeClass
from .extent import Extent
from .hints import instead_of
from .location import definition_line, raised_line, user_line
from .signature import Parameter
from .spec import TensorSpec, dtype_choices
from .tensor import At, Const, Index, Input, Scalar, Tensor, as_number, as_tensor, elementwise
from .trace import ROWS, Check, Constraint, Frame, Trace, active, current, tracing


@dataclass(frozen=True)
class Result:
    """One result of an op: its name, its value, and the element type in which it is stored."""

    name: str
    value: Tensor
    dtype: DType
    updates: Input | None = None  # the Mut parameter that the result is written to


@dataclass(frozen=True)
class Graph:
    """An op traced for one choice of element types, attributes and optional tensors.

    ``extents`` gives every dim: a free one (a dim of an input) is `Extent.dim` of itself, others are expressions over
    free ones.
    """

    op: str
    inputs: tuple[Input, ...]
    scalars: tuple[Scalar, ...]
    results: tuple[Result, ...]
    extents: Mapping[str, Extent]
    constraints: tuple[Constraint, ...]
    attributes: Mapping[str, Any]
    absent: frozenset[str]
    leading: bool
    """Whether some input has "...": then the dim "rows" stands for its flattened leading dims."""
    checks: tuple[Check, ...] = ()

    def extent(self, dim: str) -> Extent:
        """A dim's extent over free dims only."""
        known = self.extents[dim]
        return known if known == Extent.dim(dim) else known.substitute({n: self.extent(n) for n in known.names()})

    def outputs(self) -> tuple[Tensor, ...]:
        """The values of the results, in order."""
        return tuple(r.value for r in self.results)


class Results:
    """Several results by name, as a named tuple gives them: ``r.lse``, or ``y, lse = r``. `og.results` makes it."""

    # No subclass of dict: a dict's methods would hide results called "keys" or "values".
    __slots__ = ("_named",)

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self._named = dict(named)

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self._named[name]
        except KeyError:
            raise AttributeError(f"there is no result {name!r}; the results are {list(self._named)}") from None

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    def __repr__(self) -> str:
        return f"results({', '.join(f'{k}={v!r}' for k, v in self._named.items())})"


def results(**values: Tensor) -> Results:
    """Several results of an op: ``return og.results(y=y, lse=lse)``; a call gives a named tuple.

    A result with the name of a Mut parameter is that parameter's new value.

    Raises:
        DefinitionError: E1010, a result cannot have its name.
    """
    for name in values:
        if not names.public(name):
            raise error(
                "E1010",
                where=user_line(),
                function="results",
                found=f"a result cannot be called {name!r}",
                fix=f"Use an identifier ({names.RULE}) that does not start with _.",
            )
    return Results(values)


@dataclass(frozen=True)
class Workload:
    """A size at which an op is tested and timed: dims by name, with the model that it comes from.

    ``scalars``: values of run-time scalars that matter to it, such as a window.
    """

    label: str
    dims: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)


class Op:
    """An operator: a description that can be traced, evaluated in numpy and compiled.

    Calling it inside another op's definition inlines it. Arrays are not computed by calling it: compile it first
    (`opsgen.compile`), or use `evaluate`, the slow reference in numpy.
    """

    def __init__(self, function: Callable[..., Any], name: str, scope: dict[str, Any]) -> None:
        if not names.identifier(name):
            raise error(
                "E1010",
                where=definition_line(function),
                function="op",
                found=f"an op cannot be called {name!r}",
                fix=f"Use an identifier ({names.RULE}): @og.op(name=...).",
            )
        self.function = function
        self.name = name
        self.__name__ = name
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.parameters = signature.parse(function, scope)
        self.workloads: list[Workload] = []
        self.peers: dict[str, Callable[..., Any]] = {}
        self._reference: Callable[..., Any] | None = None
        self._check()
        if name in names.LIBRARY_MEMBERS:
            warn("W1001", op=name)

    # -- what belongs to an op's file ----------------------------------------------------------------------------------
    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: an independent reference, numpy arrays (float64) in and out, with the op's own call."""
        self._reference = function
        return function

    def expected(self, *args: Any, **kwargs: Any) -> Any:
        """What the op's independent reference gives; without one, `evaluate` in float64."""
        if self._reference is not None:
            return self._reference(*args, **kwargs)
        return self.evaluate(*args, dtype="float64", **kwargs)

    @overload
    def peer(self, function: Callable[..., Any], /) -> Callable[..., Any]: ...
    @overload
    def peer(self, /, *, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
    def peer(self, function: Callable[..., Any] | None = None, /, *, name: str = "torch") -> Any:
        """Decorator: what a user of torch would write instead, torch tensors in and out, with the op's own call.

        `opsgen bench` times it beside the op, and compiles the one called "torch" with torch.compile. It imports torch
        in its body, works on any device and in float64, and returns the first result, or a dict of results by name;
        what it leaves out is not compared. NotImplemented: it has no form of this call.

        Args:
            function: the peer.
            name: tells several peers of an op apart; that of a library that it calls, such as "cuDNN".
        """

        def add(f: Callable[..., Any]) -> Callable[..., Any]:
            self.peers[name] = f
            return f

        return add if function is None else add(function)

    def workload(
        self,
        label: str,
        *,
        absent: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        scalars: Mapping[str, float] | None = None,
        **dims: int,
    ) -> None:
        """Adds a size at which the op is tested and timed."""
        self.workloads.append(Workload(label, dims, attributes or {}, tuple(absent), scalars or {}))

    # -- tracing -------------------------------------------------------------------------------------------------------
    def parameter(self, name: str) -> Parameter:
        """The parameter of that name. KeyError where there is none."""
        for p in self.parameters:
            if p.name == name:
                return p
        raise KeyError(name)

    @property
    def dims(self) -> tuple[str, ...]:
        """The named dims of its tensor parameters."""
        return tuple(dict.fromkeys(d for p in self.parameters if p.spec for d in p.spec.named))

    def trace(
        self,
        dtype: DType = dtypes.float32,
        *,
        dtypes_of: Mapping[str, DType] | None = None,
        absent: frozenset[str] = frozenset(),
        attributes: Mapping[str, Any] | None = None,
        bound: Mapping[str, int] | None = None,
    ) -> Graph:
        """The op's graph.

        Args:
            dtype: the type of floating parameters that declare none.
            dtypes_of: types of single parameters, by name.
            absent: optional tensors that are left out.
            attributes: values of specialising attributes; defaults fill the rest.
            bound: dims with a fixed extent.

        Raises:
            DefinitionError: the definition is wrong, E1xxx.
            CompileError: E3002, a parameter does not take its type; E3003, an attribute has no value or a wrong one.
        """
        trace = Trace(self.name)
        leading = any(p.spec and p.spec.leading and p.name not in absent for p in self.parameters)
        frame = Frame(leading=leading)
        trace.frames.append(frame)
        if leading:
            frame.lead = (ROWS,)
            trace.extents[ROWS] = Extent.dim(ROWS)
        values: dict[str, Any] = {}
        inputs: list[Input] = []
        scalars: list[Scalar] = []
        chosen: dict[str, Any] = {}
        with tracing(trace):
            for p in self.parameters:
                if p.spec is not None:
                    if p.name in absent:
                        values[p.name] = None
                        continue
                    for d in p.spec.named:
                        frame.names[d] = d
                        fixed = (bound or {}).get(d)
                        trace.extents[d] = Extent.dim(d) if fixed is None else Extent.const(fixed)
                    dims = (ROWS, *p.spec.named) if p.spec.leading else p.spec.named
                    default = p.spec.dtype if isinstance(p.spec.dtype, DType) else None
                    if isinstance(p.spec.dtype, DTypeClass):
                        default = p.spec.dtype.members[0]
                    kind = (dtypes_of or {}).get(p.name, default or dtype)
                    if kind not in dtype_choices(p.spec):
                        known = [d.name for d in dtype_choices(p.spec)]
                        raise error("E3002", op=self.name, parameter=p.name, found=kind.name, known=known)
                    node = Input(p.name, dims, kind, p.spec.mutable)
                    inputs.append(node)
                    values[p.name] = node
                elif p.role == "scalar":
                    scalar = Scalar(p.name)
                    scalars.append(scalar)
                    values[p.name] = scalar
                else:
                    chosen[p.name] = values[p.name] = self._attribute(p, attributes or {})
            found = self._results(self._call_function(values), inputs)
        return Graph(
            self.name,
            tuple(inputs),
            tuple(scalars),
            found,
            trace.extents,
            tuple(trace.constraints),
            chosen,
            absent,
            leading,
            tuple(trace.checks),
        )

    def _attribute(self, p: Parameter, given: Mapping[str, Any]) -> Any:
        value = given.get(p.name, p.default)
        if value is signature._UNSET:
            wanted = f"it has no default; choose one of {list(p.choices)}" if p.choices else f"it needs a {p.type}"
            raise error("E3003", op=self.name, attribute=p.name, found="not given", wanted=wanted)
        try:
            return p.canonical(value)
        except ValueError as bad:
            raise error("E3003", op=self.name, attribute=p.name, found=repr(value), wanted=str(bad)) from None

    def _call_function(self, values: Mapping[str, Any]) -> Any:
        try:
            return self.function(**values)
        except (OpsgenError, InternalError):
            raise
        except (ArithmeticError, AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError) as bad:
            # A Python mistake in the definition: None used as a tensor, an unknown method. It keeps its own traceback.
            found = str(bad) if isinstance(bad, (AttributeError, TypeError)) else f"{type(bad).__name__}: {bad}"
            fix = "Correct it; the Python error stands above this one."
            if "NoneType" in str(bad):
                fix = "An optional tensor is None where it is absent: test it with `is None`."
            elif isinstance(bad, AttributeError) and (isinstance(bad.obj, Tensor) or bad.obj is sys.modules["opsgen"]):
                if isinstance(bad.obj, Tensor):
                    found = f"a tensor of a definition has no {bad.name!r}"
                fix = instead_of(bad.name or "") or fix
            where = raised_line(bad, self.function.__code__.co_filename)
            raise error("E1010", where=where, function=self.name, found=found, fix=fix) from bad

    def _results(self, returned: Any, inputs: Sequence[Input]) -> tuple[Result, ...]:
        where = definition_line(self.function)
        if isinstance(returned, Tensor) or as_number(returned) is not None:
            returned = Results({"out": returned})
        if not isinstance(returned, Results):
            raise error("E1009", where=where, op=self.name, found=f"a {type(returned).__name__}")
        if not returned:
            raise error("E1009", where=where, op=self.name, found="no results")
        found = []
        lead = current().frames[-1].lead
        mutable = {i.name: i for i in inputs if i.mutable}
        for name, value in returned._named.items():
            number = as_number(value)
            if number is not None:
                value = Const(number)
            if not isinstance(value, Tensor):
                raise error("E1009", where=where, op=self.name, found=f"{name}={type(value).__name__}")
            target = mutable.get(name)
            if target is not None and set(value.dims) - set(target.dims):
                raise error(
                    "E1010",
                    where=where,
                    function=self.name,
                    fix="Its dims must be the parameter's.",
                    found=f"the new value of {name!r} has dims {list(value.dims)}, the parameter {list(target.dims)}",
                )
            if target is not None:
                for d in target.dims:  # a new value without some dim is the same all along it
                    if d not in value.dims:
                        value = elementwise("where", elementwise("ge", Index(d), 0), value, value)
                if value.dims != target.dims:  # it is stored in the parameter's memory, so in the parameter's order
                    value = At(value, {}, target.dims, exact=True)
            elif lead and lead[0] in value.dims[1:]:  # "..." comes first in every result: w["n"] * x["...", "n"] too
                value = At(value, {}, (lead[0], *(d for d in value.dims if d != lead[0])), exact=True)
            found.append(Result(name, value, target.dtype if target is not None else value.dtype, target))
        for name in mutable:
            if name not in returned._named:
                raise error(
                    "E1010",
                    where=where,
                    function=self.name,
                    found=f"the Mut parameter {name!r} is never updated",
                    fix=f"Return its new value: og.results({name}=...), or declare it og.Tensor.",
                )
        return tuple(found)

    def _check(self) -> None:
        """Traces once with and once without the optional tensors, so that mistakes show where the op is defined."""
        if any(p.role == "attribute" and p.required for p in self.parameters):
            return
        optional = frozenset(p.name for p in self.parameters if p.optional)
        for absent in {frozenset[str](), optional}:
            self.trace(absent=absent)

    # -- calling it ----------------------------------------------------------------------------------------------------
    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, defaults filled in.

        Raises:
            DefinitionError: E1008, an argument is missing or not known.
        """

        def refuse(found: str) -> None:
            raise error("E1008", where=user_line(), op=self.name, found=found, fix=f"The call is {self.call_form()}.")

        values: dict[str, Any] = {}
        positional = [p for p in self.parameters if not p.keyword]
        if len(args) > len(positional):
            refuse(f"{len(args)} positional arguments")
        for p, value in zip(positional, args, strict=False):
            values[p.name] = value
        for name, value in kwargs.items():
            if name in values or all(p.name != name for p in self.parameters):
                refuse(f"argument {name!r} is {'given twice' if name in values else 'not known'}")
            values[name] = value
        for p in self.parameters:
            if p.name not in values:
                if p.required:
                    refuse(f"argument {p.name!r} is missing")
                values[p.name] = p.default
        return values

    def call_form(self) -> str:
        """``rms_norm(x, weight, *, eps=1e-06)``."""
        parts, star = [], False
        for p in self.parameters:
            if p.keyword and not star:
                parts.append("*")
                star = True
            parts.append(p.name if p.required else f"{p.name}={p.default!r}")
        return f"{self.name}({', '.join(parts)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = active()
        if trace is None:
            raise error(
                "E1008",
                where=user_line(),
                op=self.name,
                found="it was called outside of an op's definition",
                fix=f"Compile it and call the library: lib = og.compile([{self.name}]); lib.{self.name}(...). "
                f"{self.name}.evaluate(...) computes the reference in numpy.",
            )
        values = self.bind(args, kwargs)
        frame, back = _unify(self, values, trace)
        trace.frames.append(frame)
        try:
            returned = self._call_function(values)
        finally:
            trace.frames.pop()
        returned = _restore(returned, back, trace)
        _adopt(returned, trace.frames[-1])
        return returned

    def evaluate(self, *args: Any, dtype: str | None = None, **kwargs: Any) -> Any:
        """The op in numpy: the slow reference.

        Args:
            args, kwargs: the op's call, with numpy arrays.
            dtype: ``"float64"`` computes in double whatever the inputs are, and returns double.

        Returns:
            An array, or a dict of arrays by result name.
        """
        from ..lowering.to_numpy import evaluate

        return evaluate(self, self.bind(args, kwargs), dtype)

    def __repr__(self) -> str:
        return f"<op {self.call_form()}>"


def _unify(op: Op, values: dict[str, Any], trace: Trace) -> tuple[Frame, dict[str, str]]:
    """The called op's frame: its dim names mapped to the caller's. Replaces tensor arguments in ``values``.

    Two dims of the called op that meet one dim of the caller (self-attention calls queries and keys by one name) are
    kept apart: the
    second gets a name of its own, given back as ``back`` (its graph name → the caller's).
    """

    def refuse(found: str, fix: str) -> None:
        raise error("E1008", where=user_line(), op=op.name, found=found, fix=fix)

    frame = Frame(leading=any(p.spec and p.spec.leading for p in op.parameters))
    lead_found = False
    back: dict[str, str] = {}
    tensors: list[tuple[Parameter, TensorSpec, Tensor]] = []
    for p in op.parameters:
        value = values[p.name]
        if p.role == "scalar":
            scalar = values[p.name] = as_tensor(value, op.name)
            if scalar.dims or scalar.dtype.kind == "bool":
                refuse(f"argument {p.name!r} is {value!r}", "It takes a number.")
            continue
        if p.role == "attribute":
            values[p.name] = op._attribute(p, {p.name: value})
            continue
        if value is None and p.optional:
            continue
        spec = p.spec
        if not isinstance(value, Tensor) or spec is None:
            refuse(f"argument {p.name!r} is {value!r}", "Pass a tensor expression.")
            continue
        lead = len(value.dims) - len(spec.named)
        if lead < 0 or (lead > 0 and not spec.leading):
            refuse(f"argument {p.name!r} has dims {list(value.dims)}", f"It takes {list(spec.dims)}.")
        if value.dtype not in dtype_choices(spec):
            refuse(f"argument {p.name!r} is {value.dtype.name}", f"It takes {[d.name for d in dtype_choices(spec)]}.")
        if spec.leading:
            if lead_found and frame.lead != value.dims[:lead]:
                refuse(
                    f'"..." is {list(frame.lead)} for one argument and {list(value.dims[:lead])} for {p.name!r}',
                    "Leading dims must be the same.",
                )
            frame.lead, lead_found = value.dims[:lead], True
        tensors.append((p, spec, value))
    for p, spec, value in tensors:  # only now that "..." is known: a named dim must not meet one of its dims
        lead = len(value.dims) - len(spec.named)
        for name, dim in zip(spec.named, value.dims[lead:], strict=True):
            taken = {g: n for n, g in frame.names.items()}
            known = frame.names.get(name)
            if known is None and (dim in taken or dim in frame.lead):
                fresh = trace.fresh(f"{dim}_{name}")
                trace.extents[fresh] = trace.extents[dim]
                back[fresh] = dim
                frame.names[name] = known = fresh
            if known is None:
                frame.names[name] = dim
            elif known != dim:
                if trace.extents[known] != trace.extents[dim] and back.get(known) != dim:
                    refuse(
                        f"its dim {name!r} is {known!r} for one argument and {dim!r} for {p.name!r}",
                        f"Rename one: {p.name}.rename({dim}={known!r}).",
                    )
                value = _as_dim(value, dim, known)
        values[p.name] = value
    return frame, back


def _as_dim(x: Tensor, dim: str, new: str) -> Tensor:
    return At(x, {dim: Index(new)}, tuple(new if d == dim else d for d in x.dims), exact=True)


def _restore(returned: Any, back: Mapping[str, str], trace: Trace) -> Any:
    """Gives results the caller's dim names again where `_unify` kept two apart and only one is left."""

    def one(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        for fresh, dim in back.items():
            if fresh in x.dims and dim not in x.dims:
                x = _as_dim(x, fresh, dim)
        return x

    if isinstance(returned, Results):
        return Results({k: one(v) for k, v in returned._named.items()})
    return one(returned)


def _adopt(returned: Any, frame: Frame) -> None:
    """Gives the dims that a called op's results bring along a name in its caller, whose ``frame`` it is."""
    values = list(returned) if isinstance(returned, Results) else [returned]
    for dim in (d for x in values if isinstance(x, Tensor) for d in x.dims):
        if dim not in frame.names.values() and dim not in frame.lead:
            frame.names.setdefault(dim, dim)


@overload
def op(function: Callable[..., Any], /) -> Op: ...
@overload
def op(*, name: str | None = None) -> Callable[[Callable[..., Any]], Op]: ...
def op(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Decorator: makes an operator of a function over tensors with named dims.

    A library has the op as an attribute, ``lib.gelu(x)``, and by its name, ``lib["gelu"](x)``. Attributes that are the
    library's own come first: an op called manifest, manifests, ops, pack, path, paths, save or stats gets the warning
    W1001 and is reached by ``lib["save"](x)`` alone.

    Args:
        function: the definition.
        name: the op's name; that of the function unless it is given.

    Raises:
        DefinitionError: the definition is wrong; the message shows the line, what was found and what would be right.
    """
    frame = sys._getframe(1)

    def make(f: Callable[..., Any]) -> Op:
        return Op(f, f.__name__ if name is None else name, dict(frame.f_locals))

    return make if function is None else make(function)


def variants(op: Op) -> list[frozenset[str]]:
    """Every combination of optional tensors that may be absent."""
    optional = [p.name for p in op.parameters if p.optional]
    return [
        frozenset(n for n, out in zip(optional, chosen, strict=True) if out)
        for chosen in product((False, True), repeat=len(optional))
    ]


__all__ = ["Graph", "Op", "Result", "Results", "Workload", "op", "results", "variants"]
