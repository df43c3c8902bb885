"""The state of one tracing: the extents of dims, the constraints met, and how a called op's dim names map to its
caller's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..errors import InternalError, error
from . import names as allowed
from .extent import Extent
from .location import user_line

ROWS = "rows"
"""What the leading dims written ``"..."`` are called where they need a name: flattened, they are one dim."""


@dataclass(frozen=True)
class Constraint:
    """A condition on dims that every call must meet: a Python expression, and what to tell the caller."""

    expr: str
    message: str


@dataclass(frozen=True)
class Check:
    """A condition on the elements of an input that a call must meet: ``kind`` is ``"offsets"`` (they start at 0, never
    fall, and end at the extent of ``dim``) or ``"lengths"`` (each lies in [0, extent of ``dim``]).
    """

    kind: str
    input: str
    dim: str


@dataclass
class Frame:
    """The dim names of one op being traced and what the graph calls them; ``lead`` is what its ``"..."`` stands for."""

    names: dict[str, str] = field(default_factory=dict)
    lead: tuple[str, ...] = ()
    leading: bool = False
    """Whether the op has ``"..."``, which may stand for no dim."""


@dataclass
class Trace:
    """The state of one tracing: the op asked for, and a frame for it and each op that it calls."""

    op: str
    extents: dict[str, Extent] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    shared: dict[tuple[object, ...], tuple[object, ...]] = field(default_factory=dict)
    """Nodes that functions of the language made for given operands, to be used again for the same ones."""

    def fresh(self, name: str) -> str:
        """``name``, or the first of name_2, name_3, … that no dim has yet."""
        candidate, n = name, 1
        while candidate in self.extents:
            n += 1
            candidate = f"{name}_{n}"
        return candidate

    def resolve(self, name: object) -> str:
        """The graph's name of a dim that the op being traced calls ``name``.

        Raises:
            DefinitionError: E1001, there is no such dim.
        """
        actual = self.lookup(name)
        if actual is None:
            raise error("E1001", where=user_line(), found=name, known=sorted(self.frames[-1].names))
        return actual

    def lookup(self, name: object) -> str | None:
        """Like `resolve`, with None for a dim that is not there."""
        return self.frames[-1].names.get(name) if isinstance(name, str) else None

    def declare(self, name: str, extent: Extent) -> str:
        """A new dim of the op being traced; its name in the graph.

        Raises:
            DefinitionError: E1007, the op has a dim of this name with another extent; E1010, no dim can have it.
        """
        if not allowed.dim(name):
            raise error(
                "E1010",
                where=user_line(),
                function=self.op,
                found=f"{name!r} is no dim name",
                fix=f"Dims are identifiers ({allowed.RULE}, min or max).",
            )
        names = self.frames[-1].names
        if name in names:
            if self.extents[names[name]] == extent:
                return names[name]
            raise error(
                "E1007",
                where=user_line(),
                found=name,
                what=f"this op, with extents {self.extents[names[name]]} and {extent}",
            )
        actual = self.fresh(name)
        names[name] = actual
        self.extents[actual] = extent
        return actual

    def require(self, expr: str, message: str) -> None:
        """Adds a condition on dims that every call must meet; ``message`` tells the caller what is wanted.

        Raises:
            DefinitionError: E1010, extents that are fixed break it.
        """
        holds = _decided(expr)
        if holds is not None:
            if not holds:
                raise error(
                    "E1010",
                    where=user_line(),
                    function=self.op,
                    found=f"the condition {expr} never holds",
                    fix=f"Extents that are fixed break it: {message}.",
                )
            return
        constraint = Constraint(expr, message)
        if constraint not in self.constraints:
            self.constraints.append(constraint)


def _decided(expr: str) -> bool | None:
    """Whether a condition holds that has no dims in it; None for one that has."""
    tree = ast.parse(expr, mode="eval")
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"min", "max"}
    if names:
        return None
    try:
        return bool(eval(compile(tree, "<condition>", "eval"), {"__builtins__": {}, "min": min, "max": max}))
    except ZeroDivisionError:
        return False


_current: ContextVar[Trace | None] = ContextVar("opsgen_trace", default=None)


def active() -> Trace | None:
    """The tracing under way, if there is one."""
    return _current.get()


def current() -> Trace:
    """The tracing under way.

    Raises:
        InternalError: there is none; DSL functions check their operands first, and operands exist only in a tracing.
    """
    trace = _current.get()
    if trace is None:
        raise InternalError("no op is being traced")
    return trace


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Makes ``trace`` the current one."""
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)
