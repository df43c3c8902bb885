"""The dims and operands of a contraction, by what they do."""

from __future__ import annotations

from opsgen.analysis.groups import Group, factors
from opsgen.dsl.tensor import Reduce, Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.to_tir import Memory


class Problem:
    """The dims of a contraction by what they do: batch (both factors and the result), rows (left), columns (right),
    summed.

    A grouped one is a batch of products too, whose first batch dim is that of the groups: group g has the rows of its
    segment (segments.py), and the left factor and the result do not have the dim.
    """

    def __init__(self, group: Group) -> None:
        self.node: Reduce = group.reductions[0]
        self.segments = group.segments
        pair = (group.segments.left, group.segments.right) if group.segments else factors(self.node)
        assert pair is not None
        self.left, self.right = pair
        left, right = set(self.left.dims), set(self.right.dims)
        free = self.node.dims
        self.batch = tuple(d for d in free if d in left and d in right)
        if self.segments is not None:
            self.batch = (self.segments.groups, *self.batch)
        self.rows = tuple(d for d in free if d in left and d not in right)
        self.columns = tuple(d for d in free if d in right and d not in left)
        self.summed = self.node.over


def contiguous(kernel: Kernel, operand: Tensor, dim: str) -> bool:
    """Whether all that the operand reads along the dim is contiguous there, and it reads something along it."""
    memories: list[Memory] = []
    stack: list[Tensor] = [operand]
    while stack:
        node = stack.pop()
        memory = kernel.memory(node)
        if memory is not None:
            memories.append(memory)
        else:
            stack.extend(node.children())
    along = [m for m in memories if dim in m.dims]
    return bool(along) and all(m.dims[-1] == dim for m in along)
