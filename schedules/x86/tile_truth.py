"""What a mask is over a whole tile: nowhere true, everywhere true, or neither is known.

It is told by the intervals of what the mask compares.

A tile in which a mask is nowhere true adds nothing and is skipped; one in which it is everywhere true needs no mask
code. What depends on rows alone, such as the bounds of the sequence that a row is in, is bounded once for a task by
looking at its rows; what depends on positions alone by looking at the tile's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from opsgen.dsl.tensor import At, Const, Index, Map, Tensor
from opsgen.lowering.statements import Code, Expr, add, constant, i64
from opsgen.lowering.to_tir import Scope
from opsgen.schedules.common.positions import unflatten

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq"})


@dataclass(frozen=True)
class Truth:
    """``may``: whether it is true somewhere; ``must``: whether it is everywhere. ``known`` says which are more than
    the constants True and False."""

    may: Expr
    must: Expr
    known: tuple[bool, bool]


@contextmanager
def where_visible(code: Code, truth: Truth | None) -> Iterator[Code]:
    """Code that runs unless the mask is nowhere true."""
    if truth is None or not truth.known[0]:
        yield code
    else:
        with code.when(truth.may) as visible:
            yield visible


def with_and_without_mask(code: Code, truth: Truth | None) -> Iterator[tuple[Code, bool]]:
    """Code to be written twice where it is worth it: ``(code, True)`` runs where the mask is everywhere true."""
    if truth is None or not truth.known[1]:
        yield code, False
    else:
        with code.either(truth.must) as (everywhere, somewhere):
            yield everywhere, True
            yield somewhere, False


class TileTruth:
    """For the rows ``first`` to ``first + count - 1`` of a task, whose batch dims ``scope`` has positions for."""

    def __init__(
        self, scope: Scope, rows: tuple[str, ...], over: str, extents: dict[str, Expr], first: Expr, count: Expr
    ) -> None:
        self.scope = scope
        self.rows = rows
        self.over = over
        self.extents = extents
        self.first = first
        self.count = count
        self.of_rows: dict[int, tuple[Expr, Expr]] = {}

    def over_tile(self, mask: Tensor, code: Code, start: Expr, count: Expr) -> Truth | None:
        """The mask over ``count`` positions from ``start`` on; None where nothing is known."""
        return _Tile(self, code, start, count).truth(mask)

    def bounds_of_rows(self, node: Tensor) -> tuple[Expr, Expr]:
        """The least and the greatest value over the task's rows; bools count as 0 and 1. Found before the tiles."""
        if id(node) not in self.of_rows:
            code = self.scope.code

            def row(inner: Code, i: Expr) -> Scope:
                return self.scope.inner(inner, unflatten(inner, add(self.first, i), self.rows, self.extents))

            self.of_rows[id(node)] = _extremes(code, self.count, row, node)
        return self.of_rows[id(node)]


class _Tile:
    def __init__(self, task: TileTruth, code: Code, start: Expr, count: Expr) -> None:
        self.task = task
        self.code = code
        self.start = start
        self.count = count
        self.scope = task.scope.inner(code, {})

    def varies(self, node: Tensor) -> tuple[bool, bool]:
        """Whether it has a value for each row, and for each position."""
        return any(d in self.task.rows for d in node.dims), self.task.over in node.dims

    def bounds(self, node: Tensor) -> tuple[Expr, Expr] | None:
        """The least and the greatest value of an int over the tile."""
        if node.dtype.kind not in ("int", "uint"):
            return None
        by_row, by_position = self.varies(node)
        if not by_row and not by_position:
            value = self.integer(node)
            return value, value
        if isinstance(node, Index):
            if by_position:
                return self.start, self.start + self.count - i64(1)
            if len(self.task.rows) == 1:
                return self.task.first, self.task.first + self.task.count - i64(1)
        found = self.bounds_of_map(node) if isinstance(node, Map) else None
        if found is not None:
            return found
        return self.task.bounds_of_rows(node) if not by_position else None

    def integer(self, node: Tensor) -> Expr:
        value = self.scope.value(node)
        return value if value.ty.dtype == "int64" else tirx.Cast("int64", value)

    def bounds_of_map(self, node: Map) -> tuple[Expr, Expr] | None:
        if node.op == "cast":
            return self.bounds(node.args[0])
        if node.op not in ("add", "sub", "max", "min", "mul", "floordiv"):
            return None
        if node.op in ("mul", "floordiv"):
            other = node.args[1]
            if not isinstance(other, Const) or int(other.value) < 1 or isinstance(node.args[0], Const):
                return None
        a, b = (self.bounds(x) for x in node.args)
        if a is None or b is None:
            return None
        if node.op == "sub":
            return a[0] - b[1], a[1] - b[0]
        if node.op == "floordiv":  # rounds down, where the CPU's division rounds towards 0: bounds on the safe side
            low, high = tirx.truncdiv(a[0], b[0]), tirx.truncdiv(a[1], b[1])
            return self.code.bind(tirx.Select(a[0] < i64(0), low - i64(1), low)), self.code.bind(high)
        form: dict[str, Callable[[Expr, Expr], Expr]] = {
            "add": lambda x, y: x + y,
            "mul": lambda x, y: x * y,
            "max": tirx.Max,
            "min": tirx.Min,
        }
        return self.code.bind(form[node.op](a[0], b[0])), self.code.bind(form[node.op](a[1], b[1]))

    def truth(self, node: Tensor) -> Truth | None:
        if node.dtype.name != "bool":
            return None
        by_row, by_position = self.varies(node)
        if not by_row and not by_position:
            value = self.scope.value(node)
            return Truth(value, value, (True, True))
        if isinstance(node, Map):
            found = self.truth_of_map(node)
            if found is not None:
                return found
        if not by_position:
            return self.of_numbers(*self.task.bounds_of_rows(node))
        if not by_row:
            return self.of_numbers(*_extremes(self.code, self.count, self.at_position, node))
        return self.gathered(node) if isinstance(node, At) and not node.exact else None

    def of_numbers(self, low: Expr, high: Expr) -> Truth:
        return Truth(high > i64(0), low > i64(0), (True, True))

    def at_position(self, code: Code, i: Expr) -> Scope:
        return self.scope.inner(code, {self.task.over: code.bind(add(self.start, i), "key")})

    def truth_of_map(self, node: Map) -> Truth | None:
        if node.op == "not":
            inner = self.truth(node.args[0])
            return inner and Truth(tirx.Not(inner.must), tirx.Not(inner.may), (inner.known[1], inner.known[0]))
        if node.op in ("and", "or"):
            return self.both(node.op, *(self.truth(a) for a in node.args))
        if node.op not in _COMPARISONS:
            return None
        a, b = (self.bounds(x) for x in node.args)
        if a is None or b is None:
            return None
        if node.op in ("gt", "ge"):
            a, b = b, a
        if node.op == "eq":
            same = tirx.And(tirx.EQ(a[0], a[1]), tirx.And(tirx.EQ(b[0], b[1]), tirx.EQ(a[0], b[0])))
            return Truth(tirx.And(a[0] <= b[1], b[0] <= a[1]), same, (True, True))
        if node.op in ("lt", "gt"):
            return Truth(a[0] < b[1], a[1] < b[0], (True, True))
        return Truth(a[0] <= b[1], a[1] <= b[0], (True, True))

    def both(self, op: str, a: Truth | None, b: Truth | None) -> Truth | None:
        known = [t for t in (a, b) if t is not None]
        if len(known) < 2:
            if not known:
                return None
            (t,) = known
            true, false = constant(True, "bool"), constant(False, "bool")
            return Truth(t.may, false, (t.known[0], False)) if op == "and" else Truth(true, t.must, (False, t.known[1]))
        first, second = known
        join = tirx.And if op == "and" else tirx.Or
        either = (first.known[0] and second.known[0], first.known[1] and second.known[1])
        some = (first.known[0] or second.known[0], first.known[1] or second.known[1])
        return Truth(
            join(first.may, second.may),
            join(first.must, second.must),
            (some[0], either[1]) if op == "and" else (either[0], some[1]),
        )

    def gathered(self, node: At) -> Truth | None:
        """Of a read at computed positions: all elements between the least and the greatest of them."""
        source = node.source
        spans: dict[str, tuple[Expr, Expr]] = {}
        for dim, position in node.coords.items():
            found = self.bounds(position)
            if found is None:
                return None
            last = self.scope.env.extent(dim) - i64(1)
            low, high = (tirx.Max(tirx.Min(x, last), i64(0)) for x in found)
            spans[dim] = self.code.bind(low, "low"), self.code.bind(high, "high")
        others = [d for d in source.dims if d not in spans]
        if any(d in self.task.rows or d == self.task.over for d in others):
            return None
        low, high = _counters(self.code)

        def visit(code: Code, dims: list[str], coords: dict[str, Expr]) -> None:
            if dims:
                start, end = spans[dims[0]]
                with code.loop(code.bind(end - start + i64(1), "span"), dims[0]) as (i, inner):
                    visit(inner, dims[1:], {**coords, dims[0]: inner.bind(start + i, dims[0])})
                return
            value = self.scope.inner(code, coords).value(source, coords)
            _note(code, low, high, _number(value))

        visit(self.code, list(spans), {d: self.scope.coords[d] for d in others})
        return self.of_numbers(*_found(self.code, low, high))


def _number(value: Expr) -> Expr:
    if value.ty.dtype == "bool":
        return tirx.Select(value, i64(1), i64(0))
    return value if value.ty.dtype == "int64" else tirx.Cast("int64", value)


def _counters(code: Code) -> tuple[Any, Any]:
    """The least and the greatest value so far."""
    low, high = code.local("int64", 1, "low"), code.local("int64", 1, "high")
    code.store(low, i64(2**62), i64(0))
    code.store(high, i64(-(2**62)), i64(0))
    return low, high


def _note(code: Code, low: Any, high: Any, value: Expr) -> None:
    value = code.bind(value)
    code.store(low, tirx.Min(tirx.BufferLoad(low, [i64(0)]), value), i64(0))
    code.store(high, tirx.Max(tirx.BufferLoad(high, [i64(0)]), value), i64(0))


def _found(code: Code, low: Any, high: Any) -> tuple[Expr, Expr]:
    return code.bind(tirx.BufferLoad(low, [i64(0)]), "low"), code.bind(tirx.BufferLoad(high, [i64(0)]), "high")


def _extremes(code: Code, count: Expr, at: Callable[[Code, Expr], Scope], node: Tensor) -> tuple[Expr, Expr]:
    """The least and the greatest of ``count`` values of a node."""
    low, high = _counters(code)
    with code.loop(count, "i") as (i, inner):
        _note(inner, low, high, _number(at(inner, i).value(node)))
    return _found(code, low, high)
