"""The Python function of an op: its source, its signature and its help.

The function is generated so that Python itself binds the arguments, and a repeated call finds its plan with one lookup.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opsgen.errors import OpsgenError, error
from opsgen.runtime.manifest import REQUIRED, Param, ScalarParam, Signature, TensorParam


class _Missing:
    """Type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""Stands for an argument that the caller did not give."""


def default_of(param: Param) -> Any:
    """What the parameter is when it is left out; `MISSING` where it must be given."""
    if isinstance(param, TensorParam):
        return None if param.optional else MISSING
    return MISSING if param.default is REQUIRED else param.default


def python_signature(signature: Signature) -> inspect.Signature:
    """The signature that ``help()`` shows; ``out`` comes last, by keyword."""
    by_position, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    params: list[inspect.Parameter] = []
    for param in signature.params:
        default = default_of(param)
        shown = inspect.Parameter.empty if default is MISSING else default
        params.append(inspect.Parameter(param.name, by_name if param.keyword else by_position, default=shown))
    if signature.results:
        params.append(inspect.Parameter("out", by_name, default=None))
    return inspect.Signature(params)


def call_form(op: str, signature: Signature) -> str:
    """Such as ``rms_norm(x, weight, *, eps=1e-06, out=None)``."""
    return f"{op}{python_signature(signature)}"


def document(op: str, signature: Signature, dtypes: Mapping[str, Sequence[str]]) -> str:
    """The docstring: the op's first line, then each argument; ``dtypes`` are those that the library has, by name."""
    lines = [signature.doc or op, "", "Args:"]
    for param in signature.params:
        if isinstance(param, TensorParam):
            what = f"[{', '.join(map(str, param.dims))}]"
            if dtypes.get(param.name):
                what += f", {' or '.join(dtypes[param.name])}"
            what += "; may be None" if param.optional else ""
            what += "; updated in place" if param.mutable else ""
        elif isinstance(param, ScalarParam):
            what = "a number"
        else:
            what = param.type + (f", one of {list(param.choices)}" if param.choices else "")
        lines.append(f"    {param.name}: {what}.")
    if len(signature.results) == 1:
        lines.append("    out: memory for the result; new memory where it is not given.")
    elif signature.results:
        names = ", ".join(signature.results)
        lines.append(
            f"    out: memory for the results ({names}), as a tuple or a dict; new memory where it is not given."
        )
    return "\n".join(lines)


def misuse(
    op: str, signature: Signature, positional: Sequence[Any], more: Sequence[Any], named: dict[str, Any]
) -> OpsgenError:
    """E4002 for arguments that the signature has no place for."""
    known = {param.name for param in signature.params}
    twice = [name for name in named if name in known]
    if more:
        found = f"{len(positional) + len(more)} positional arguments, of which it takes {len(positional)}"
    elif twice:
        found = f"argument {twice[0]!r} is given twice, by position and by name"
    else:
        found = f"argument {next(iter(named))!r} is unknown"
    return error("E4002", op=op, found=found, wanted=call_form(op, signature))


def missing(op: str, signature: Signature, name: str) -> OpsgenError:
    """E4002 for an argument that was not given."""
    return error("E4002", op=op, found=f"argument {name!r} is missing", wanted=call_form(op, signature))


def split_out(op: str, signature: Signature, out: Any) -> tuple[Any, ...]:
    """The caller's memory for several results, in order.

    Raises:
        CallError: E4002, not a tuple or dict of exactly the results.
    """
    names = signature.results
    memory: tuple[Any, ...] | None = None
    if isinstance(out, (tuple, list)) and len(out) == len(names):
        memory = tuple(out)
    elif isinstance(out, dict) and set(out) == set(names):
        memory = tuple(out[name] for name in names)
    if memory is not None and not any(value is None for value in memory):
        return memory
    if memory is not None:
        found = "out has an entry that is None"
    elif isinstance(out, dict):
        found = f"out has the keys {list(map(str, out))}"
    elif isinstance(out, (tuple, list)):
        found = f"out has {len(out)} entries"
    else:
        found = f"out is a {type(out).__name__}"
    wanted = f"{call_form(op, signature)} with out a tuple or dict of {', '.join(names)}"
    raise error("E4002", op=op, found=found, wanted=wanted)


def source(op: str, signature: Signature, packable: Collection[str] = ()) -> str:
    """The Python source of the op's function; ``packable`` are the tensors that may be given packed.

    Names that start with ``_og_`` are its own; the manifest's schema keeps parameters from using them. It is executed
    with the globals that `opsgen.runtime.dispatch.OpDispatch` gives it. Positional parameters are positional-only to
    Python, and taken from ``_og_named`` where the caller names them: only so does a wrong call reach `misuse`.
    """
    positional = [param.name for param in signature.params if not param.keyword]
    keyword = [param.name for param in signature.params if param.keyword]
    tensors = [param.name for param in signature.tensors]
    optional = {param.name for param in signature.tensors if param.optional}
    written = {param.name for param in signature.tensors if param.mutable}
    scalars = [param.name for param in signature.scalars]
    attributes = [param.name for param in signature.attributes]
    count = len(signature.results)
    outs = ["out"] if count == 1 else [f"_og_out{index}" for index in range(count)]

    head = [f"{name}=_og_default_{name}" for name in positional] + (["/"] if positional else []) + ["*_og_more"]
    head += [f"{name}=_og_default_{name}" for name in keyword] + (["out=None"] if count else []) + ["**_og_named"]
    lines = [f"def {op}({', '.join(head)}):"] + (["    if _og_named:"] if positional else [])
    for name in positional:
        lines += [f"        if {name} is _og_default_{name} and {name!r} in _og_named:"]
        lines += [f"            {name} = _og_named.pop({name!r})"]
    lines += ["    if _og_more or _og_named:"]
    lines += [f"        raise _og_misuse({_tuple(positional)}, _og_more, _og_named)"]
    if count > 1:
        lines += ["    if out is None:", f"        {' = '.join(outs)} = None"]
        lines += ["    else:", f"        {', '.join(outs)} = _og_split_out(out)"]

    for param in signature.tensors:
        if not param.dims:  # without dims: a number will do
            others = [name for name in tensors if name != param.name]
            lines += [f"    if _og_type({param.name}) in _og_integers:"]
            lines += [f"        {param.name} = _og_scalar_tensor({param.name!r}, {param.name}, {_tuple(others)})"]

    # An output may be None, and then all are: they are told apart by the first.
    arrays = [(name, name in optional, name in written) for name in tensors] + [(name, True, True) for name in outs]
    key = [f"{name}, _og_type({name})" for name in attributes]
    numpy_piece = "{0}.shape, {0}.strides, {0}.dtype, {0}.flags.num & _og_flags"
    numpy_key = [_piece(numpy_piece, name, maybe, name in packable) for name, maybe, _ in arrays]
    torch_piece = "{0}.shape, {0}.stride(), {0}.dtype, {0}.device, {0}.is_neg(), {0}.data_ptr() & 7"
    torch_key = [
        _piece(torch_piece + (", {0}.requires_grad" if writes else ""), name, maybe, name in packable)
        for name, maybe, writes in arrays
    ]
    lines += ["    try:"]
    lines += [f"        if {_types('_og_type({0}) is _og_ndarray', arrays, packable)}:"]
    lines += [f"            _og_key = {_tuple(numpy_key + key)}"]
    lines += [f"        elif {_types('_og_type({0}) in _og_torch_types', arrays, packable)}:"]
    lines += [f"            _og_key = {_tuple(torch_key + key)}"]
    lines += ["        else:", "            _og_key = None"]
    lines += ["        _og_plan = _og_plans.get(_og_key)"]
    lines += ["    except Exception:  # a sparse tensor, an unhashable attribute: the slow path says what is wrong"]
    lines += ["        _og_key = _og_plan = None"]
    lines += ["    if _og_plan is None:"]
    given = f"{_tuple(tensors)}, {_tuple(scalars)}, {_tuple(attributes)}, {_tuple(outs)}"
    lines += [f"        _og_plan = _og_make_plan(_og_key, {given})"]
    for name in tensors:
        if name in packable:
            lines += [f"    if _og_type({name}) is _og_packed:", f"        {name} = {name}.tensor"]
    for name in scalars:
        lines += [f"    if _og_type({name}) is not _og_float:", f"        {name} = _og_number({name!r}, {name})"]
    if optional:
        lines += [f"    _og_tensors = [_og_t for _og_t in {_tuple(tensors)} if _og_t is not None]"]
        operands, listed = ["*_og_tensors"], "_og_tensors"
    else:
        operands, listed = tensors, _tuple(tensors)
    lines += ["    if _og_plan.direct:", "        try:"]
    if count:
        lines += [
            f"            if {outs[0]} is None:",
            f"                {_tuple(outs)} = [_og_f() for _og_f in _og_plan.fresh]",
        ]
    lines += ["            _og_stats.calls += 1"]
    lines += [f"            _og_plan.launch({', '.join(['0', *operands, *scalars, *outs])})"]
    lines += ["        except Exception as _og_failure:"]
    lines += [f"            _og_plan.recover(_og_failure, {listed}, {_tuple(scalars)}, {_tuple(outs)})"]
    memory = f"() if {outs[0]} is None else {_tuple(outs)}" if count else "()"
    run = f"_og_plan.run({listed}, {_tuple(scalars)}, {memory})"
    if count == 0:
        lines += ["        return None", f"    {run}", "    return None"]
    elif count == 1:
        lines += ["        return out", f"    return {run}[0]"]
    else:
        lines += [f"        return _og_results({', '.join(outs)})", f"    return _og_results(*{run})"]
    return "\n".join(lines) + "\n"


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _piece(template: str, name: str, maybe_none: bool, maybe_packed: bool) -> str:
    """The part of a key for one array; one that may be None is told by that, and a packed one by its kind."""
    text = template.format(name)
    if maybe_packed:
        text = f"{name}.kind if _og_type({name}) is _og_packed else ({text})"
    return f"None if {name} is None else ({text})" if maybe_none else text


def _types(template: str, arrays: Sequence[tuple[str, bool, bool]], packable: Collection[str]) -> str:
    """The condition that every array is of the type that ``template`` tests, or None or packed where it may be."""
    tests: list[str] = []
    for name, maybe, _ in arrays:
        ways = ([f"{name} is None"] if maybe else []) + [template.format(name)]
        ways += [f"_og_type({name}) is _og_packed"] if name in packable else []
        tests.append(f"({' or '.join(ways)})" if len(ways) > 1 else ways[0])
    return " and ".join(tests) or "True"
