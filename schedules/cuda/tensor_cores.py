"""Which contractions the tensor cores of an architecture are given."""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.analysis.exact import stored_type
from opsgen.analysis.groups import Group, factors, is_transpose
from opsgen.dsl.dtypes import DType
from opsgen.dsl.tensor import Input, Tensor
from opsgen.schedules.common.operands import Problem

HALVES = frozenset({"bfloat16", "float16"})
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2"})
_SHORT = {
    "bfloat16": "bf16", "float16": "f16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8",
    "float32": "tf32",
}  # fmt: skip
"""PTX's names of the types that wgmma multiplies; float32 as tf32, with 10 bits of mantissa."""
MOST_LAYERS = 3
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


@dataclass(frozen=True)
class Product:
    """What wgmma multiplies: the operands' types."""

    left: DType
    right: DType

    @property
    def sums(self) -> str:
        """The type of the registers that hold sums; those of integers are int32 in them."""
        return "float32" if self.left.kind == "float" else "uint32"

    @property
    def depth(self) -> int:
        """Elements of a sum that one instruction takes: 32 bytes."""
        return 32 // self.left.bytes

    def instruction(self, columns: int) -> str:
        sums = {"float32": "f32", "uint32": "s32"}[self.sums]
        names = f"{_SHORT[self.left.name]}.{_SHORT[self.right.name]}"
        return f"wgmma.mma_async.sync.aligned.m64n{columns}k{self.depth}.{sums}.{names}"

    def flags(self, left_across: bool, right_across: bool) -> tuple[int, ...]:
        """The instruction's last operands: signs, of floats, and which operands lie across the sum, of halves."""
        if self.sums == "uint32":
            return ()
        return (1, 1, int(left_across), int(right_across)) if self.left.bytes == 2 else (1, 1)


def product_of(left: DType, right: DType, tf32: bool) -> Product | None:
    """How the tensor cores multiply elements of two types, if they do."""
    names = {left.name, right.name}
    halves = left == right and left.name in HALVES
    floats = left == right and left.name == "float32" and tf32
    known = halves or floats or names <= FLOAT8 or names <= {"int8", "uint8"}
    return Product(left, right) if known else None


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
    if left is None or right is None:
        return False
    product = product_of(operand_type(left), operand_type(right), group.float32_products == "tf32")
    if product is None:
        return False
    if len(problem.summed) != 1 or not problem.rows or not problem.columns:
        return False
    dims = Dims(problem)
    # wgmma takes operands across the sum of halves alone.
    across = (dims.row, dims.column) if product.left.bytes == 2 else (dims.sum, dims.sum)
    contiguous = left.dims[-1] in (dims.sum, across[0]) and right.dims[-1] in (dims.sum, across[1])
    return contiguous and all(len(dims.layers_of(d)) <= MOST_LAYERS for d in (left.dims, right.dims, problem.node.dims))


def grouped_by_wgmma(group: Group, arch: str) -> bool:
    """Whether `grouped_wgmma` serves a group: as `by_wgmma`, the left operand contiguous along the sum."""
    if arch != "sm_90a" or group.segments is None:
        return False
    problem = Problem(group)
    left, right = operand(problem.left, group), operand(problem.right, group)
    if left is None or right is None or operand_type(left) != operand_type(right):
        return False
    if operand_type(left).name not in HALVES or len(problem.batch) != 1:
        return False
    if len(problem.summed) != 1 or len(problem.columns) != 1:
        return False
    dims = Dims(problem)
    return left.dims[-1] == dims.sum and right.dims[-1] in (dims.sum, dims.column)


def by_mma(group: Group, arch: str) -> bool:
    """Whether `mma` serves a group: sums of a half type, with rows and columns, that `wgmma` leaves."""
    if group.pattern != "contraction" or factors(group.reductions[0]) is None or by_wgmma(group, arch):
        return False
    problem = Problem(group)
    halves = problem.node.dtype.name in HALVES
    return halves and bool(problem.rows) and bool(problem.columns)
