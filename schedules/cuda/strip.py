"""Elements that lie side by side, moved 16 bytes at a time.

A strip is ``width`` positions along a dim that begin at a multiple of it. Where it lies within the dim, and all the
memory that it is read from and written to is aligned (which is seen when the kernel runs), operands come in one move
into registers, and results leave so. Elsewhere its elements are computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import reduce
from typing import Any

from tvm import tirx

from opsgen.analysis.groups import is_transpose
from opsgen.dsl.tensor import At, Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, add, i64, mul
from opsgen.lowering.to_tir import Memory, Scope

from .kernels import call
from .registers import Emit, Registers, address, bytes_of

Element = Callable[[Scope, Emit], None]
"""Computes one element, in a scope that has its position."""


def readable(
    kernel: Kernel,
    roots: Sequence[Tensor],
    dim: str,
    dims: set[str],
    at_hand: Container[int] = (),
) -> dict[int, Memory]:
    """What the roots are computed from at their own position, and lies contiguous along ``dim``: memory by node id.

    ``dims`` have positions; ``at_hand``: nodes by id that need not be computed.
    """
    found: dict[int, Memory] = {}
    stack, seen = list(roots), set[int]()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if id(n) in at_hand:
            continue
        memory = kernel.memory(n)
        if memory is not None:
            if memory.dims[-1:] == (dim,) and set(memory.dims) <= dims:
                found[id(n)] = memory
        elif not isinstance(n, At) or is_transpose(n):
            stack.extend(n.children())
    return found


def width_for(memories: Sequence[Memory]) -> int:
    """Elements of a strip: 16 bytes of the narrowest floats, and no more than 32 of the widest type."""
    if not memories:
        return 1
    sizes = [bytes_of(m) for m in memories]
    return max(min(16 // min(sizes), 32 // max(sizes), 8), 1)


def alignment(memory: Memory, width: int) -> int:
    """What the address of a strip has to be a multiple of."""
    return min(width * bytes_of(memory), 16)


def aligned(code: Code, memories: Sequence[Memory], width: int) -> Expr:
    """Whether strips of all the memories can be moved at once: their addresses, and the steps from row to row."""
    wrong: Expr = i64(0)
    for m in {id(m): m for m in memories}.values():
        first = call("int64", "opsgen_address", address(m.buffer, i64(0)))
        steps = [mul(m.strides[d], i64(bytes_of(m))) for d in m.dims[:-1]]
        together = reduce(lambda a, b: a | b, steps, first)
        bad = together & i64(alignment(m, width) - 1)
        wrong = bad if isinstance(wrong, tirx.IntImm) else wrong | bad
    return code.bind(tirx.Cast("int32", tirx.EQ(wrong, i64(0))), "aligned")


def move(code: Code, to: Any, to_at: Expr, source: Any, source_at: Expr, nbytes: int, size: int) -> None:
    """``nbytes`` from one buffer to another, whose elements have ``size`` bytes."""
    piece = min(nbytes, 16)
    for start in range(0, nbytes, piece):
        step = i64(start // size)
        places = (address(b, add(at, step)) for b, at in ((to, to_at), (source, source_at)))
        code.call(f"opsgen_move{piece}", *places)


class Strips:
    """Strips along ``dim`` of a kernel's values; ``loads``: what comes in one move, by node id."""

    def __init__(self, kernel: Kernel, dim: str, width: int, flag: Expr | None, loads: Mapping[int, Memory]) -> None:
        self.kernel = kernel
        self.dim = dim
        self.width = width
        self.flag = flag
        self.loads = dict(loads)

    def run(self, scope: Scope, start: Expr, end: Expr, element: Element) -> None:
        """Positions ``start`` to ``start + width - 1`` of the dim, without those from ``end`` on."""
        dim, width, code = self.dim, self.width, scope.code
        if width == 1 or self.flag is None:
            with code.loop(width, "lane") as (lane, body):
                position = body.bind(add(start, lane), dim)
                if width == 1:
                    self._single(scope, body, position, element)
                else:
                    with body.when(position < end) as inside:
                        self._single(scope, inside, position, element)
            return
        whole = tirx.And(tirx.NE(self.flag, tirx.IntImm("int32", 0)), start + i64(width) <= end)
        with code.either(whole) as (full, rest):
            self._at_once(scope, full, start, element)
            left = rest.bind(tirx.Min(i64(width), end - start), "left")
            with rest.loop(left, "lane") as (lane, body):
                self._single(scope, body, body.bind(start + lane, dim), element)

    def _single(self, scope: Scope, code: Code, position: Expr, element: Element) -> None:
        inside = scope.inner(code, {self.dim: position}, {})
        element(inside, lambda place, value: place.store(inside.code, inside.coords, value))

    def _at_once(self, scope: Scope, code: Code, start: Expr, element: Element) -> None:
        registers = Registers(self.kernel, code, self.dim, self.width, 1, self.loads)
        registers.fetch(code, i64(0), {**scope.coords, self.dim: start})
        registers.run(scope.inner(code, {}), i64(0), start, lambda here, emit, _: element(here, emit))
