"""Groups: the parts into which an op's graph falls, each computed by one schedule.

A group has one of these patterns, found from its expressions and never from an op's name:

    map            elementwise values, broadcasts and gathers
    row_reduction  reductions over the same dims, and the maps before, between and after them
    contraction    a sum over a product whose factors each lack dims of the other (GEMM-like), with prologue and
    epilogue
    grouped_contraction  a contraction whose right factor is another one for each run of rows (mixture of experts)
    scan           running sums (products, extremes) along one dim, and the maps before and after them
    scatter        a reduction at each of the positions that its elements go to, and the maps after it
    update         elements of a parameter that sources with computed positions overwrite
    online_chain   a contraction and the chain of reductions over its result, one of which may be a contraction too

What one group hands to another is stored (workspace); everything else is computed where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..dsl.dtypes import int32
from ..dsl.op import Graph
from ..dsl.tensor import At, Input, Map, Reduce, Scan, Tensor

if TYPE_CHECKING:
    from .fusion import FusedChain
    from .scatter import Scatter
    from .segments import Segments
    from .updates import Update

TRANSCENDENTAL = frozenset({"exp", "exp2", "log", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "pow"})


@dataclass(eq=False)
class Group:
    """``space``: the dims of the stored results; ``over``: the dims that its reductions run over."""

    index: int
    pattern: str
    space: tuple[str, ...]
    over: tuple[str, ...] = ()
    reductions: list[Reduce] = field(default_factory=list)
    members: dict[int, Tensor] = field(default_factory=dict)
    stored: list[Tensor] = field(default_factory=list)
    after: list[Group] = field(default_factory=list)
    fused: FusedChain | None = None
    """Of an online chain: its parts."""
    segments: Segments | None = None
    """Of a grouped contraction: its parts."""
    scans: list[Scan] = field(default_factory=list)
    """Of a scan group: its scans, all along the same dim in the same direction, none of which needs another."""
    scatter: Scatter | None = None
    """Of a scatter: its parts."""
    update: Update | None = None
    """Of an update: its parts."""
    float32_products: str = "float32"
    """How a contraction may multiply float32 operands: "tf32" allows tensor cores to take 10 bits of their mantissa."""
    float8_sums: str = "float32"
    """How a contraction of float8 operands may sum: "fast" allows the tensor cores' own sums."""

    def needs(self, other: Group) -> bool:
        """Whether this group runs after ``other``, directly or not."""
        return any(g is other or g.needs(other) for g in self.after)

    def holds(self, node: Tensor) -> bool:
        return id(node) in self.members

    def store(self, node: Tensor) -> None:
        if all(s is not node for s in self.stored):
            self.stored.append(node)


@dataclass(frozen=True)
class Partition:
    """The groups in an order in which they can run. ``home`` gives the group of a stored node by id."""

    graph: Graph
    groups: tuple[Group, ...]
    home: dict[int, Group]

    def read_from(self, group: Group, node: Tensor) -> Group | None:
        """The other group whose stored value ``group`` reads for the node; see `read_from`."""
        return read_from(self.home, group, node)

    def contents(self, group: Group) -> tuple[list[Tensor], list[Tensor]]:
        """The nodes that a group computes, children first, and those that it reads: inputs and what others store."""
        own: list[Tensor] = []
        read: list[Tensor] = []
        seen: set[int] = set()
        stack: list[tuple[Tensor, bool]] = [(n, False) for n in reversed(group.stored)]
        while stack:
            node, done = stack.pop()
            if done:
                own.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                if isinstance(node, Input) or self.read_from(group, node) is not None:
                    read.append(node)
                    continue
                stack.append((node, True))
                stack.extend((c, False) for c in reversed(node.children()))
        return own, read


def read_from(home: dict[int, Group], group: Group, node: Tensor) -> Group | None:
    """The other group whose stored value ``group`` reads for the node; None where it computes the node itself.

    A free value that became a result is stored by a group of its own, which others do not wait for: they compute it
    again.
    """
    owner = home.get(id(node))
    if owner is None or owner is group or owner not in group.after:
        return None
    return owner if any(s is node for s in owner.stored) else None


def is_transpose(node: Tensor) -> bool:
    """Whether the node is its source with the dims in another order: the same value at the same named position."""
    return isinstance(node, At) and not node.coords


def factors(node: Tensor) -> tuple[Tensor, Tensor] | None:
    """The two factors of a contraction, or None if the reduction is none.

    A contraction sums products of floats, or of 8-bit integers in int32; each factor has all summed dims, and dims that
    the other lacks: values are reused, which is what its schedules live on. A product with a vector has no such reuse
    and is a row reduction.
    """
    if not isinstance(node, Reduce) or node.op != "sum":
        return None
    if node.dtype.kind != "float" and node.dtype != int32:  # other integers are summed in int64
        return None
    product = node.arg
    if not isinstance(product, Map) or product.op != "mul" or len(product.args) != 2:
        return None
    a, b = product.args
    summed = set(node.over)
    if not (summed <= set(a.dims) and summed <= set(b.dims)):
        return None
    if set(a.dims) - set(b.dims) and set(b.dims) - set(a.dims):
        return a, b
    return None


def expensive(node: Tensor) -> bool:
    """Whether a map is worth keeping rather than computing again."""
    return isinstance(node, Map) and node.op in TRANSCENDENTAL
