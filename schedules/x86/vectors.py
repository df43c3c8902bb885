"""Vector loops on x86: how wide, and how a loop of any length is cut into vectors and a tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import Group
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import Concat, Map, Tensor, walk
from opsgen.lowering.statements import Code, Expr, add, i64, mul, sub, truncdiv

REGISTER_FLOATS = {"avx2": 8, "avx512": 16}

# Functions that become one libm call a lane: TVM cannot vectorise a loop that holds a call and a bind.
_SCALAR_FLOAT64 = frozenset({"exp", "exp2", "log", "log1p", "tanh", "erf", "sigmoid", "sin", "cos"})


def vectorizable(roots: tuple[Tensor, ...]) -> bool:
    """Whether everything that the values are computed from has a vector form."""
    bad: list[Tensor] = []

    def visit(node: Tensor) -> None:
        if isinstance(node, Concat):
            bad.append(node)
        elif isinstance(node, Map):
            wide = compute_type(node.dtype).name == "float64" and node.op in _SCALAR_FLOAT64
            if wide or (node.op == "pow" and node.args[1].children()):
                bad.append(node)

    walk(roots, visit)
    return not bad


def widths(arch: str, group: Group, registers: int) -> tuple[int, ...]:
    """Vector lengths to use one after the other for a long loop: several registers at once, one register, single
    elements.
    """
    if not vectorizable((*group.stored, *group.reductions)):
        return (1,)
    lanes = REGISTER_FLOATS[arch]
    return (lanes * registers, lanes, 1) if registers > 1 else (lanes, 1)


Body = Callable[[Code, Expr, str, int, int], None]
"""``body(code, position, loop kind, width, stage)``: emits one step of ``width`` elements starting at ``position``;
``stage`` counts
the widths from 0."""


def strips(code: Code, start: Expr, length: Expr, steps: tuple[int, ...], body: Body) -> None:
    """Covers [start, start + length) with vectors of each width in turn, the last being 1."""
    done: Expr = i64(0)
    for stage, width in enumerate(steps):
        turns = code.bind(truncdiv(sub(length, done), width), "turns")
        with code.loop(turns, "step") as (i, inner):
            at = inner.bind(add(start, add(done, mul(i, i64(width)))), "at")
            body(inner, at, "vectorized" if width > 1 else "serial", width, stage)
        done = code.bind(add(done, mul(turns, i64(width))), "done")


def fold(
    code: Code, buffers: list[Any], steps: tuple[int, ...], combine: Callable[[Expr, Expr], Expr], name: str = "total"
) -> Expr:
    """All partial results as one: each vector is folded in halves down to the next narrower one's width, and added to
    that. ``buffers`` has one vector for each of ``steps``, the last being a single element."""
    for i, width in enumerate(steps[:-1]):
        target = steps[i + 1]
        while width > target:
            width //= 2
            with code.loop(width, "lane", "vectorized" if width > 1 else "serial") as (lane, body):
                low, high = (tirx.BufferLoad(buffers[i], [add(lane, i64(at))]) for at in (0, width))
                body.store(buffers[i], combine(low, high), lane)
        with code.loop(target, "lane", "vectorized" if target > 1 else "serial") as (lane, body):
            merged = combine(tirx.BufferLoad(buffers[i + 1], [lane]), tirx.BufferLoad(buffers[i], [lane]))
            body.store(buffers[i + 1], merged, lane)
    return code.bind(tirx.BufferLoad(buffers[-1], [i64(0)]), name)
