"""The expression language of the manifest: integers over dim names, and nothing else.

Python syntax with names, integers, ``+ - * // %``, comparisons, ``and or not`` and calls of ``min`` and ``max``. Every
node is checked before anything is compiled, so an expression of a library file cannot reach Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import cast

_LONGEST = 2000  # characters: enough for any kernel's bytes, and a bound on the parser's recursion
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_UNARY = (ast.UAdd, ast.USub, ast.Not)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CALLS = {"min": min, "max": max}


class ExpressionError(ValueError):
    """The text is not an expression of the language; the message says why."""


class Expression:
    """A checked and compiled expression.

    Attributes:
        text: as written.
        names: the dim names that a call takes: those in the text, in order of first appearance.
        constants: the integers in it.
    """

    __slots__ = ("_function", "constants", "names", "text")

    def __init__(self, text: str, order: Sequence[str] = ()) -> None:
        """Parse ``text``; a call takes the sizes of the dims ``order`` first, whether it has them or not.

        Raises:
            ExpressionError: it is not an expression of the language.
        """
        if len(text) > _LONGEST:
            raise ExpressionError(f"an expression of {len(text)} characters (at most {_LONGEST})")
        try:
            tree = ast.parse(text, mode="eval")
            names: dict[str, None] = dict.fromkeys(order)
            constants: set[int] = set()
            _check(tree.body, names, constants)
            arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
            function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, tree.body)))
            code = compile(function, "<dim expression>", "eval")
        except ExpressionError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            reason = problem.msg if isinstance(problem, SyntaxError) else str(problem)
            raise ExpressionError(f"{text!r} is not an expression ({reason})") from None
        self.text = text
        self.names = tuple(names)
        self.constants = frozenset(constants)
        self._function = cast(Callable[..., int], eval(code, {"__builtins__": {}, **_CALLS}))

    def __call__(self, *values: int) -> int:
        """The value for the dims' sizes in the order of `names`. ZeroDivisionError where a divisor is 0."""
        return self._function(*values)

    def over(self, dims: Mapping[str, int]) -> int:
        """The value for dims by name. KeyError where one is missing, ZeroDivisionError where a divisor is 0."""
        return self._function(*[dims[name] for name in self.names])

    def holds(self, dims: Mapping[str, int]) -> bool:
        """Whether the condition is true; one that divides by a dim of size 0 is not."""
        try:
            return bool(self.over(dims))
        except ZeroDivisionError:
            return False

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _check(node: ast.expr, names: dict[str, None], constants: set[int]) -> None:
    """Refuse every node outside the language; collect names and constants."""
    children: list[ast.expr]
    match node:
        case ast.Name(id=name):
            if name in _CALLS:
                raise ExpressionError(f"{name} is a function, not a dim")
            names[name] = None
            return
        case ast.Constant(value=value):
            if type(value) is not int:
                raise ExpressionError(f"the constant {value!r} is not an integer")
            constants.add(value)
            return
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
            children = [left, right]
        case ast.UnaryOp(op=unary, operand=operand) if isinstance(unary, _UNARY):
            children = [operand]
        case ast.BoolOp(values=values):
            children = values
        case ast.Compare(left=left, ops=ops, comparators=others) if all(isinstance(op, _COMPARISONS) for op in ops):
            children = [left, *others]
        case ast.Call(func=ast.Name(id=called), args=arguments, keywords=[]) if called in _CALLS and len(arguments) > 1:
            children = arguments
        case _:
            raise ExpressionError(
                f"{ast.unparse(node)!r} is not allowed; only + - * // %, comparisons, and/or/not, min, max"
            )
    for child in children:
        _check(child, names, constants)


@lru_cache(maxsize=4096)
def expression(text: str) -> Expression:
    """The compiled expression of ``text``, made once.

    Raises:
        ExpressionError: it is not one.
    """
    return Expression(text)
