"""A small reader of JSON that names the field which is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from opsgen.runtime.expressions import Expression, ExpressionError, expression

T = TypeVar("T")
_MISSING: Any = object()
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SchemaError(ValueError):
    """A field breaks the schema. The message is ``"<path of the field>: <what is wrong>"``."""


class Node:
    """One JSON value with the path that leads to it, such as ``kernels[3].inputs[0].dtype``.

    Every method that reads a value raises `SchemaError` when it is of another type.
    """

    __slots__ = ("_seen", "path", "value")

    def __init__(self, value: Any, path: str = "") -> None:
        self.value = value
        self.path = path
        self._seen: set[str] = set()

    def fail(self, problem: str) -> SchemaError:
        """The error that says ``problem`` of this field."""
        return SchemaError(f"{self.path or 'the top level'}: {problem}")

    def _is(self, kind: type[T], name: str) -> T:
        if not isinstance(self.value, kind) or (isinstance(self.value, bool) and kind is not bool):
            raise self.fail(f"{_short(self.value)} is not {name}")
        return self.value

    def text(self) -> str:
        return self._is(str, "a string")

    def boolean(self) -> bool:
        return self._is(bool, "true or false")

    def integer(self, least: int | None = None) -> int:
        value = self._is(int, "an integer")
        if least is not None and value < least:
            raise self.fail(f"{value} is less than {least}")
        return value

    def number(self) -> float:
        if isinstance(self.value, int):
            return float(self.integer())
        return self._is(float, "a number")

    def identifier(self) -> str:
        value = self.text()
        if not _IDENTIFIER.match(value):
            raise self.fail(f"{_short(value)} is not an identifier")
        return value

    def choice(self, known: Collection[str], what: str) -> str:
        value = self.text()
        if value not in known:
            raise self.fail(f"{_short(value)} is not {what}")
        return value

    def expression(self, names: Collection[str]) -> str:
        """The text of an expression over ``names``; a plain integer is one too."""
        text = str(self.integer()) if isinstance(self.value, int) else self.text()
        try:
            compiled: Expression = expression(text)
        except ExpressionError as problem:
            raise self.fail(str(problem)) from None
        unknown = [name for name in compiled.names if name not in names]
        if unknown:
            raise self.fail(f"{_short(text)} uses the unknown dim {unknown[0]!r}")
        return text

    def items(self) -> list[Node]:
        return [Node(value, f"{self.path}[{i}]") for i, value in enumerate(self._is(list, "a list"))]

    def each(self, read: Callable[[Node], T]) -> tuple[T, ...]:
        """The elements of a list, each read by ``read``."""
        return tuple(read(item) for item in self.items())

    def identifiers(self) -> tuple[str, ...]:
        """A list of identifiers without repetition."""
        names = self.each(Node.identifier)
        if len(set(names)) != len(names):
            raise self.fail(f"{list(names)} names something twice")
        return names

    def fields(self) -> dict[str, Node]:
        """Every member of an object, by name."""
        prefix = f"{self.path}." if self.path else ""
        return {name: Node(value, prefix + name) for name, value in self._is(dict, "an object").items()}

    def get(self, name: str, default: Any = _MISSING) -> Node:
        """The member ``name``; `SchemaError` when it is missing and has no default."""
        members = self._is(dict, "an object")
        self._seen.add(name)
        path = f"{self.path}.{name}" if self.path else name
        if name in members:
            return Node(members[name], path)
        if default is _MISSING:
            raise SchemaError(f"{path}: it is missing")
        return Node(default, path)

    def has(self, name: str) -> bool:
        return name in self._is(dict, "an object")

    def optional(self, read: Callable[[Node], T]) -> T | None:
        """None for ``null``, else what ``read`` makes of it."""
        return None if self.value is None else read(self)

    def done(self) -> None:
        """Refuse members that were never asked for: a misspelt field must not be ignored."""
        unknown = sorted(set(self._is(dict, "an object")) - self._seen)
        if unknown:
            raise self.fail(f"unknown field {unknown[0]!r}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
