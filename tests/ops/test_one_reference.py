"""The reference of an op is the one in its file: tests and benchmarks take `op.expected`, and hold no second copy.

A copy is a function with the op's name and arguments, or an expression that equals a large part of a reference or a
peer, whatever its variables are called. One that has to be there says why, in a comment on its line or the one above:
``# independent: why``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from opsgen.ops import all_ops
from tests import expressions

ROOT = Path(__file__).resolve().parents[2]
LARGE = 5
"""Operations that two expressions share only where one is a copy of the other: softmax has five."""

MARK = re.compile(r"#.*\bindependent: \S+")
AFFIXES = ("", "reference", "ref", "numpy", "torch", "expected", "wanted", "naive")


def functions(text: str) -> Iterator[ast.FunctionDef | ast.Module]:
    """Those of a source, inner ones and methods too, and the module; not ops, whose definitions are no numpy."""
    tree = ast.parse(text)
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not any(is_op(d) for d in node.decorator_list):
            yield node


def is_op(decorator: ast.expr) -> bool:
    return (ast.unparse(decorator).partition("(")[0]).rpartition(".")[2] == "op"


def large_parts(function: ast.FunctionDef | ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the fingerprint of each large expression in a function."""
    for line, tree in expressions.values(function):
        for part in expressions.subtrees(tree):
            if part[0] not in ("group", "choice") and expressions.operations(part) >= LARGE:
                yield line, expressions.fingerprint(part)


def references() -> dict[str, str]:
    """The large expressions of all op files, with the places that they are in."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "opsgen" / "ops").glob("*.py")):
        for function in functions(path.read_text(encoding="utf-8")):
            if isinstance(function, ast.FunctionDef):
                for _, part in large_parts(function):
                    found.setdefault(part, f"{function.name} of opsgen/ops/{path.name}")
    return found


def names() -> dict[str, tuple[str, set[str]]]:
    """Names that a second copy would have, with the op's and its arguments."""
    found = {}
    for name, op in all_ops().items():
        for affix in AFFIXES:
            for text in {f"{name}_{affix}".strip("_"), f"{affix}_{name}".strip("_")}:
                found[text] = (name, {p.name for p in op.parameters})
    return found


def copies(text: str, parts: Mapping[str, str], called: Mapping[str, tuple[str, set[str]]]) -> list[str]:
    """What a source holds twice, by line."""
    lines = text.splitlines()

    def marked(line: int) -> bool:
        return any(MARK.search(lines[i]) for i in (line - 1, line - 2) if 0 <= i < len(lines))

    found: dict[int, str] = {}
    for function in functions(text):
        for line, part in large_parts(function):
            if part in parts and not marked(line):
                found.setdefault(line, f"an expression of {parts[part]}")
        if isinstance(function, ast.FunctionDef):
            op, arguments = called.get(function.name.strip("_"), ("", set()))
            taken = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
            if op and taken and taken <= arguments and not marked(function.lineno):
                found.setdefault(function.lineno, f"a function like the op {op}")
    return [f"line {line}: {what}" for line, what in sorted(found.items())]


def test_tests_and_benchmarks_hold_no_second_reference() -> None:
    parts, called = references(), names()
    found = [
        f"{path.relative_to(ROOT)}, {copy}: take op.expected, or say why: # independent: ..."
        for folder in ("tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for copy in copies(path.read_text(encoding="utf-8"), parts, called)
    ]
    assert not found, "\n".join(found)


SOFTMAX = """
def rows(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
"""
ONE_LINE = "np.exp(a - np.max(a, -1, keepdims=True)) / np.exp(a - np.max(a, -1, keepdims=True)).sum(-1, keepdims=True)"
COPIES = {
    "other names": SOFTMAX,
    "in one line": f"def f(a):\n    return {ONE_LINE}\n",
    "in a lambda": f"CASES = {{'a': lambda a: {ONE_LINE}}}\n",
    "in torch": SOFTMAX.replace("np.", "torch.").replace("scores -", "scores.double() -").replace("axis", "dim"),
    "in a test": "def test():\n    for x in xs:\n        e = np.exp(x - x.max(-1, keepdims=True))\n"
    "        assert f(x) == e / e.sum(-1, keepdims=True)\n",
    "by name": "def rms_norm(x, weight, eps):\n    return compute(x)\n",
    "by name and purpose": "def reference_rms_norm(x, weight):\n    return compute(x)\n",
}
NO_COPIES = {
    "over another dim": SOFTMAX.replace("-1", "0"),
    "said why": SOFTMAX.replace("    return", "    # independent: of the shortcut that softmax takes\n    return"),
    "an op": "@og.op\ndef rms_norm(x, weight):\n    return x\n",
    "an op by a call": "@og.op(name='rms_norm')\ndef rms_norm(x, weight):\n    return x\n",
    "a helper of that name": "def add(what, seconds):\n    rows.append(what)\n",
    "the op's own": "def test(x):\n    return softmax.expected(x) - rms_norm.expected(x, w, eps=1e-5)\n",
}


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_found(kind: str) -> None:
    assert copies(COPIES[kind], references(), names())


@pytest.mark.parametrize("kind", NO_COPIES)
def test_what_is_none_is_left_alone(kind: str) -> None:
    assert copies(NO_COPIES[kind], references(), names()) == []


def test_a_mark_says_why() -> None:
    unsaid = SOFTMAX.replace("    return", "    # independent:\n    return")
    assert copies(unsaid, references(), names())
