"""Which contractions the tensor cores of an architecture are given."""

from __future__ import annotations

from opsgen.analysis.exact import stored_type
from opsgen.analysis.groups import Group, factors, is_transpose
from opsgen.dsl.dtypes import DType
from opsgen.dsl.tensor import Input, Tensor
from opsgen.schedules.common.operands import Problem

HALVES = frozenset({"bfloat16", "float16"})
_MOST_LAYERS = 3
"""Of an operand or the result: TMA takes five dims."""


def operand(node: Tensor, group: Group) -> Tensor | None:
    """What a factor is read from, maybe with its dims in another order: a parameter, or what another group stores; None
    where it is computed.
    """
    while is_transpose(node):
        (node,) = node.children()
    stored = any(s is node for g in group.after for s in g.stored)
    return node if isinstance(node, Input) or stored else None


def operand_type(node: Tensor) -> DType:
    """The type in memory of what `operand` found."""
    return node.dtype if isinstance(node, Input) else stored_type(node)


class Dims:
    """A contraction's dims as a kernel has them: one each of a matrix product, and layers, of which an operand may lack
    some.
    """

    def __init__(self, problem: Problem) -> None:
        *rows, self.row = problem.rows
        *columns, self.column = problem.columns
        (self.sum,) = problem.summed
        self.layers = (*problem.batch, *rows, *columns)

    def layers_of(self, dims: tuple[str, ...]) -> tuple[int, ...]:
        """Which layers a tensor has, as TMA wants them: innermost first."""
        return tuple(self.layers.index(d) for d in reversed(dims) if d in self.layers)


def by_wgmma(group: Group, arch: str) -> bool:
    """Whether `wgmma` serves a group: factors that lie in memory in one half type, a sum over one dim."""
    if arch != "sm_90a" or group.pattern != "contraction" or factors(group.reductions[0]) is None:
        return False
    problem = Problem(group)
    left, right = operand(problem.left, group), operand(problem.right, group)
    if left is None or right is None or operand_type(left) != operand_type(right):
        return False
    if operand_type(left).name not in HALVES:
        return False
    if len(problem.summed) != 1 or not problem.rows or not problem.columns:
        return False
    dims = Dims(problem)
    contiguous = left.dims[-1] in (dims.sum, dims.row) and right.dims[-1] in (dims.sum, dims.column)
    return contiguous and all(
        len(dims.layers_of(d)) <= _MOST_LAYERS for d in (left.dims, right.dims, problem.node.dims)
    )
