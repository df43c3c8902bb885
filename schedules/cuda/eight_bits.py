"""Which contractions of 8-bit integers have dp4a, which multiplies four elements and sums them."""

from __future__ import annotations

from opsgen.analysis.groups import Group, factors, is_transpose
from opsgen.dsl.tensor import Input, Tensor
from opsgen.schedules.common.operands import Problem

from .tensor_cores import by_wgmma


def parameter(node: Tensor) -> Input | None:
    """The parameter that a factor is, maybe with its dims in another order."""
    while is_transpose(node):
        (node,) = node.children()
    return node if isinstance(node, Input) else None


def by_dp4a(group: Group, arch: str) -> bool:
    """Whether both operands are parameters of int8 or uint8, contiguous along the one dim of the sum, that tensor cores
    do not get."""
    if group.pattern != "contraction" or factors(group.reductions[0]) is None or by_wgmma(group, arch):
        return False
    problem = Problem(group)
    if len(problem.summed) != 1 or not problem.rows or not problem.columns:
        return False
    found = [parameter(x) for x in (problem.left, problem.right)]
    return all(x is not None and x.dtype.name in ("int8", "uint8") and x.dims[-1] in problem.summed for x in found)
