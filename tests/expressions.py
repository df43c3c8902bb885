"""Numeric expressions of Python functions in a normal form, so that copies are found under other names and spellings.

Local variables are replaced by what they stand for, casts are left out, and methods, numpy's and torch's functions of
one name are the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

Tree = tuple[Any, ...]

_CASTS = {
    "asarray", "array", "astype", "float64", "float32", "double", "float", "numpy", "copy", "detach",
    "ascontiguousarray", "contiguous", "to", "tensor", "from_numpy", "clone", "as_tensor", "require", "cpu",
}  # fmt: skip
_REDUCTIONS = {"sum", "mean", "max", "min", "prod", "amax", "amin", "var", "std", "cumsum", "argmax", "argmin"}
_SAME = {
    "amax": "max", "amin": "min", "dot": "matmul", "absolute": "abs", "swapaxes": "transpose", "dim": "axis",
    "keepdim": "keepdims",
}  # fmt: skip
_MODULES = {"np", "numpy", "torch", "math", "functional", "F", "special"}
_NO_MATTER = {"dtype", "initial", "out", "copy", "device"}
_MOST = 3000  # nodes of one tree: what grows beyond is a leaf


def values(function: ast.FunctionDef | ast.Module) -> Iterator[tuple[int, Tree]]:
    """Each expression of a function, whole, with the line that it is on."""
    yield from _block(function.body, {})


def _block(body: list[ast.stmt], known: dict[str, Tree]) -> Iterator[tuple[int, Tree]]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue  # those are functions of their own
        value = getattr(statement, "value", None)
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and isinstance(value, ast.expr):
            tree = normal(value, known)
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(statement, ast.AugAssign):
                tree = (type(statement.op).__name__, normal(statement.target, known), tree)
            if isinstance(target, ast.Name):
                known[target.id] = tree if _size(tree) <= _MOST else ("name", target.id)
            yield statement.lineno, tree
            continue
        for expression in (n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.expr)):
            yield statement.lineno, normal(expression, known)
        if isinstance(statement, ast.With):
            yield from _block(statement.body, known)
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, None)
            if isinstance(inner, list) and not isinstance(statement, ast.With):
                yield from _block(inner, dict(known))


def normal(node: ast.expr, known: Mapping[str, Tree]) -> Tree:
    """An expression in normal form; ``known`` is what local variables stand for."""

    def go(inner: ast.expr) -> Tree:
        return normal(inner, known)

    match node:
        case ast.Name(id=name):
            return known.get(name, ("name", name))
        case ast.Constant(value=value):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return ("constant", float(value) if number else value)
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return ("matmul", go(left), go(right))
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as operator, right=right):
            return (type(operator).__name__, *sorted((go(left), go(right)), key=fingerprint))
        case ast.BinOp(left=left, op=operator, right=right):
            return (type(operator).__name__, go(left), go(right))
        case ast.UnaryOp(op=operator, operand=operand):
            return (type(operator).__name__, go(operand))
        case ast.Compare(left=left, ops=operators, comparators=others):
            return ("compare", *(type(o).__name__ for o in operators), go(left), *map(go, others))
        case ast.Attribute(value=inner, attr="T" | "mT"):
            return ("transpose", go(inner))
        case ast.Call(func=function, args=arguments, keywords=keywords):
            return _call(function, arguments, keywords, known)
        case ast.Subscript(value=inner, slice=place):
            return ("element", go(inner), ("place", ast.unparse(place)))
        case ast.IfExp(body=one, orelse=other):
            return ("choice", go(one), go(other))
        case ast.Attribute():
            return ("name", ast.unparse(node))
    inside = [n for n in ast.walk(node) if n is not node and isinstance(n, ast.expr)]
    direct = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.Lambda)):
        direct = [node.body if isinstance(node, ast.Lambda) else node.elt]
    return ("group", *map(go, direct)) if inside else ("name", ast.unparse(node))


def _call(
    function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword], known: Mapping[str, Tree]
) -> Tree:
    given = [normal(a, known) for a in arguments]
    if isinstance(function, ast.Attribute):
        name = function.attr
        module = isinstance(function.value, ast.Name) and function.value.id in _MODULES
        if not module:
            given = [normal(function.value, known), *given]
    else:
        name = function.id if isinstance(function, ast.Name) else ast.unparse(function)
    if name in _CASTS and given:
        return given[0]
    name = _SAME.get(name, name)
    named = {
        _SAME.get(k.arg or "**", k.arg or "**"): normal(k.value, known) for k in keywords if k.arg not in _NO_MATTER
    }
    if name in _REDUCTIONS and len(given) > 1:
        named["axis"] = given.pop(1)
    if name == "transpose":
        given, named = given[:1], {}
    return (name, *given, *((f"{k}=", v) for k, v in sorted(named.items())))


def operations(tree: Tree) -> int:
    """How many operations a tree has."""
    if tree[0] in ("name", "constant", "place"):
        return 0
    own = 0 if tree[0] in ("element", "group", "choice") or str(tree[0]).endswith("=") else 1
    return own + sum(operations(t) for t in tree[1:] if isinstance(t, tuple))


def subtrees(tree: Tree) -> Iterator[Tree]:
    """A tree and all that are in it."""
    yield tree
    for inner in tree[1:]:
        if isinstance(inner, tuple):
            yield from subtrees(inner)


def fingerprint(tree: Tree) -> str:
    """The same for trees that differ in the names of what they begin with."""
    seen: dict[str, int] = {}

    def go(inner: Tree) -> str:
        if inner[0] == "name":
            return f"v{seen.setdefault(inner[1], len(seen))}"
        return f"({' '.join(go(t) if isinstance(t, tuple) else repr(t) for t in inner)})"

    return go(tree)


def _size(tree: Tree) -> int:
    return 1 + sum(_size(t) for t in tree[1:] if isinstance(t, tuple))
