"""How an online chain with few rows is cut into shares on x86, and the memory between its two kernels (see
split_chain.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.fusion import FusedChain, ValueLink
from opsgen.dsl.extent import Extent
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Code, Expr, ceildiv, i64, mul
from opsgen.lowering.to_tir import Memory
from opsgen.schedules.common.positions import product_of

from .chain_passes import FLOAT32

HEADS = 4
"""Positions along the last batch dim in a task, at most."""

SHARES = 16
"""Into how many shares the chain's dim is cut at most."""

LEAST_SHARE = 256
"""Positions in a share, if it is not the only one: merging one costs about as much as eight of them."""

WHOLE = 16
"""Shares and tiles are so many positions or a multiple."""

TASKS = 64
"""Shares are made until there are so many tasks."""

CHUNKS = 256
"""Into how many pieces the tasks are cut at most; each has memory of its own for packed rows."""

_CHUNK, _BATCH, _SHARE, _LINK, _ROW, _K, _COLUMN = (
    "(chunk)", "(batch)", "(share)", "(link)", "(row)", "(k)", "(column)",
)  # fmt: skip


@dataclass
class Shares:
    """How a call's work is cut, as expressions in one kernel: ``blocks`` of neighbours along the last batch dim, each
    with ``count`` shares of ``length`` positions, done in tiles of ``tile``. No positions are no shares.
    It depends on the dims alone, never on the threads."""

    rows: Expr
    heads: Expr
    blocks: Expr
    outer: Expr
    count: Expr
    length: Expr
    tile: Expr

    @staticmethod
    def of(code: Code, fused: FusedChain, extents: dict[str, Expr], tile: int) -> Shares:
        # Through memory: TVM 0.27 puts what a variable is bound to in its place while it analyses divisions, and copies
        # of divisions in divisions take it 40 s.
        heads = code.bind_apart(extents[fused.batch[-1]] if fused.batch else i64(1), "heads")
        blocks = code.bind_apart(ceildiv(heads, HEADS), "blocks")
        outer = code.bind_apart(product_of(extents, fused.batch[:-1]), "outer")
        groups = code.bind_apart(tirx.Max(mul(outer, blocks), i64(1)), "groups")
        wanted = tirx.Min(tirx.truncdiv(i64(TASKS - 1) + groups, groups), i64(SHARES))
        n = extents[fused.over]
        most = code.bind_apart(tirx.Max(tirx.Min(wanted, tirx.truncdiv(n, i64(LEAST_SHARE))), i64(1)), "most")
        length = code.bind_apart(_whole(code, n, most), "length")
        tiles = code.bind_apart(ceildiv(length, tile), "tiles")
        count = code.bind_apart(tirx.truncdiv(n + length - i64(1), length), "shares")
        rows = code.bind_apart(product_of(extents, fused.rows), "m")
        return Shares(rows, heads, blocks, outer, count, length, code.bind_apart(_whole(code, length, tiles), "tile"))


def _whole(code: Code, n: Expr, parts: Expr) -> Expr:
    """The length of so many equal parts, in whole vectors; at least one."""
    each = code.bind_apart(tirx.truncdiv(n + parts - i64(1), parts), "each")
    return tirx.Max(ceildiv(each, WHOLE), i64(1)) * i64(WHOLE)


class Spaces:
    """The memory between the two kernels: of each share and row, the running value of each row link, and a row of
    columns of each contraction link."""

    def __init__(self, kernel: Kernel, fused: FusedChain, index: int, few: int) -> None:
        graph = kernel.graph
        rows = cost.elements(graph, fused.rows)
        # 1 where rows < few, else 0: other calls need no memory here. It is of the outermost dim, which no stride has.
        used = (Extent.const(few) // (rows + 1) + (few - 1)) // few
        shares = {_BATCH: used * cost.elements(graph, fused.batch), _SHARE: Extent.const(SHARES)}
        self.links = kernel.workspace(
            f"links{index}", {**shares, _LINK: Extent.const(len(fused.row_links)), _ROW: rows}, FLOAT32
        )
        self.values = {
            id(v.link): kernel.workspace(
                f"shares{index}_{i}", {**shares, _ROW: rows, _COLUMN: cost.elements(graph, fused.columns)}, FLOAT32
            )
            for i, v in enumerate(fused.value_links)
        }
        heads = {_CHUNK: used * CHUNKS, _BATCH: Extent.const(HEADS)}
        self.packed_dims = {**heads, _ROW: rows, _K: cost.elements(graph, fused.score.over)}
        self.packed_name = f"few{index}"

    def packed(self, kernel: Kernel) -> Memory:
        """Of each chunk of tasks: the operand's rows."""
        return kernel.workspace(self.packed_name, self.packed_dims, FLOAT32)

    @staticmethod
    def packed_start(packed: Memory, chunk: Expr) -> Expr:
        """Where the rows of a chunk of tasks start."""
        return packed.offset({_CHUNK: chunk, _BATCH: i64(0), _ROW: i64(0), _K: i64(0)})

    def link(self, batch: Expr, share: Expr, number: int, row: Expr) -> Expr:
        return self.links.offset({_BATCH: batch, _SHARE: share, _LINK: i64(number), _ROW: row})

    def value(self, v: ValueLink, batch: Expr, share: Expr, row: Expr) -> Expr:
        """Where a row of columns starts."""
        return self.values[id(v.link)].offset({_BATCH: batch, _SHARE: share, _ROW: row, _COLUMN: i64(0)})
