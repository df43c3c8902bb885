"""What an op takes: its parameters, read from the Python function's annotations."""

from __future__ import annotations

import ast
import enum
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import OpsgenError, error
from . import names
from .location import definition_line
from .spec import TensorSpec
from .tensor import Mut, Tensor
from .trace import ROWS

_UNSET = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter of an op: ``role`` is ``"tensor"``, ``"scalar"`` (a run-time float) or ``"attribute"``
    (specialises).
    """

    name: str
    role: str
    spec: TensorSpec | None = None
    type: str = ""
    choices: tuple[Any, ...] | None = None
    default: Any = _UNSET
    keyword: bool = False

    @property
    def required(self) -> bool:
        """Whether every call must give it."""
        return self.default is _UNSET

    @property
    def optional(self) -> bool:
        """Whether it is a tensor that may be left out."""
        return self.spec is not None and self.spec.optional

    def canonical(self, value: Any) -> Any:
        """An attribute's value as it stands in keys and manifests: enum members become their value.

        Raises:
            ValueError: the value is not one of the choices or of the wrong type; the message says what is.
        """
        if isinstance(value, enum.Enum):
            value = value.value
        if self.choices is not None:
            if value not in self.choices:
                raise ValueError(f"wanted one of {list(self.choices)}")
            return value
        wanted = {"bool": bool, "int": int, "str": str}[self.type]
        if type(value) is not wanted:
            raise ValueError(f"wanted a {self.type}")
        return value


def _annotations(function: Callable[..., Any], scope: dict[str, Any]) -> dict[str, Any]:
    """Annotations as values. String ones are evaluated where the op was written, so ops inside functions work too."""
    found: dict[str, Any] = {}
    code = function.__code__
    for name, value in function.__annotations__.items():
        if isinstance(value, str):
            try:
                tree = ast.parse(value, mode="eval")
                ast.increment_lineno(tree, code.co_firstlineno - 1)  # an error in it shows the op's line
                value = eval(compile(tree, code.co_filename, "eval"), function.__globals__, scope)
            except OpsgenError:
                raise
            except (NameError, AttributeError, TypeError, SyntaxError) as bad:
                raise error(
                    "E1005",
                    where=definition_line(function),
                    parameter=name,
                    found=f"the annotation {value!r} cannot be read ({bad})",
                    fix="Import what it names, and write it as docs/tutorial.md shows.",
                ) from None
        found[name] = value
    return found


def _tensor_spec(annotation: Any) -> TensorSpec | None:
    """The spec in an annotation: ``Tensor[...]``, ``Annotated[Tensor, ...]``, either with ``| None``."""
    if isinstance(annotation, TensorSpec):
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, Tensor):
        return TensorSpec((), None, issubclass(annotation, Mut))
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        base, *items = typing.get_args(annotation)
        inner = _tensor_spec(base)
        if inner is None:
            return None
        spec = TensorSpec.from_items(tuple(items), inner.mutable)
        return replace(spec, optional=inner.optional)
    if origin in (typing.Union, types.UnionType):
        args = typing.get_args(annotation)
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1 and len(args) == 2:
            spec_or_none = _tensor_spec(rest[0])
            return replace(spec_or_none, optional=True) if spec_or_none else None
    return None


def parse(function: Callable[..., Any], scope: dict[str, Any]) -> tuple[Parameter, ...]:
    """The parameters of an op's function.

    Raises:
        DefinitionError: E1005 a parameter whose annotation or default does not fit; E1006, E1007 dims.
    """
    hints = _annotations(function, scope)
    where = definition_line(function)
    parameters = [
        _parameter(p, hints.get(p.name, _UNSET), where) for p in inspect.signature(function).parameters.values()
    ]
    used = {d for p in parameters if p.spec for d in p.spec.named}
    if any(p.spec and p.spec.leading for p in parameters) and ROWS in used:
        raise error("E1007", where=where, found=ROWS, what='this op: "..." is called "rows" wherever it needs a name')
    return tuple(parameters)


def _parameter(p: inspect.Parameter, annotation: Any, where: str) -> Parameter:
    def refuse(found: str, fix: str) -> None:
        raise error("E1005", where=where, parameter=p.name, found=found, fix=fix)

    keyword = p.kind is inspect.Parameter.KEYWORD_ONLY
    if p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        refuse("*args and **kwargs have no dims", "Name each parameter.")
    if not names.identifier(p.name) or p.name.startswith("_og_"):
        refuse("a parameter cannot have this name", f"Use an identifier ({names.RULE}) that does not start with _og_.")
    if p.name == "out":
        refuse("the name 'out' is taken: calls pass the caller's memory as out=", "Choose another name.")
    if annotation is _UNSET:
        refuse("it has no annotation", 'Annotate it: og.Tensor["...", "hidden"], float, int, bool or an enum.')
    spec = _tensor_spec(annotation)
    if spec is not None:
        if p.default not in (_UNSET, None) or (p.default is None and not spec.optional):
            refuse(f"a tensor with default {p.default!r}", "Only None, with an annotation og.Tensor[...] | None.")
        if spec.mutable and spec.optional:
            refuse("a Mut tensor that may be None", "Make it a required parameter.")
        return Parameter(p.name, "tensor", spec, default=p.default, keyword=keyword)
    if annotation is float:
        if p.default is not _UNSET and (isinstance(p.default, bool) or not isinstance(p.default, (int, float))):
            refuse(f"a float with default {p.default!r}", "Give a number.")
        return Parameter(p.name, "scalar", default=p.default, keyword=keyword)
    kind, choices = _attribute_type(annotation)
    if not kind:
        refuse(
            f"the annotation {annotation!r} is not one that an op takes",
            "Use og.Tensor[...], float (a run-time scalar), or bool, int, Literal[...] or an enum (they specialise).",
        )
    result = Parameter(p.name, "attribute", None, kind, choices, p.default, keyword)
    if p.default is not _UNSET:
        try:
            result = replace(result, default=result.canonical(p.default))
        except ValueError as bad:
            refuse(f"its default is {p.default!r}; {bad}", "Change the default or the annotation.")
    return result


def _attribute_type(annotation: Any) -> tuple[str, tuple[Any, ...] | None]:
    if annotation in (bool, int):
        return annotation.__name__, None
    if typing.get_origin(annotation) is typing.Literal:
        values = typing.get_args(annotation)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = tuple(m.value for m in annotation)
    else:
        return "", None
    kinds = {type(v) for v in values}
    if len(kinds) == 1 and kinds <= {str, int, bool}:
        return kinds.pop().__name__, values
    return "", None
