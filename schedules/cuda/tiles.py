"""Forms of the tensor-core contraction on sm_90a: how a tile is cut and who works on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

SHARED_MEMORY = 232448
"""What a block of sm_90 can use, in bytes."""
BOX = 64
"""Rows and columns of a box: what one swizzled TMA store moves, 64 rows of 128 bytes."""
WARPGROUP = 128


@dataclass(frozen=True)
class Form:
    """How a kernel is cut.

    A block has a warpgroup that loads, and ``consumers`` that multiply. ``own`` (ping-pong): each consumer has tiles of
    its own, so that the epilogue of one runs under the products of the other. Otherwise both share a tile, each with
    half of its rows, and a finished tile of half-precision results is stored under the next one's products.
    """

    rows: int
    columns: int
    stages: int
    own: bool = False
    consumers: int = 2
    slots: int = 2
    """Boxes of results in shared memory, a consumer."""
    band: int = 8
    """Rows of tiles (of clusters) walked together, so that the right operand's tiles stay in the second cache."""
    cluster: int = 1
    """Blocks one below the other that load the right operand's tile once, together."""
    size: int = 2
    """Bytes of an operand's element."""
    split: bool = False
    """A cluster, of as many blocks as the launch says, has a tile: each block sums a part of the sum, and when all are
    done each finishes a share of the tile. Partial sums are added in the order of the blocks."""

    def __post_init__(self) -> None:
        assert self.consumers == 2 or self.own or self.split, "a shared tile has two consumers"
        assert not self.split or (not self.own and self.cluster == 1 and self.partial_bytes <= self.operand_bytes)
        assert self.mine % BOX == 0 and self.columns % BOX == 0 and self.columns <= 256
        assert (self.columns // self.cluster) % 8 == 0, "a swizzled part has whole groups of 8 rows"
        assert self.accumulators <= 128, "more do not fit beside what is stored meanwhile"
        assert self.shared_memory <= SHARED_MEMORY, self.shared_memory

    @property
    def depth(self) -> int:
        """Elements of a stage along the sum: 128 bytes, the width of a swizzled row."""
        return 128 // self.size

    @property
    def mine(self) -> int:
        """Rows of a tile that one consumer multiplies."""
        return self.rows if self.own else self.rows // self.consumers

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has room for."""
        return SHARED_MEMORY // (self.shared_memory + 1024)

    @property
    def patches(self) -> int:
        """Of 64 rows and 64 columns, of one consumer."""
        return self.mine // BOX * (self.columns // BOX)

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums."""
        return self.mine * self.columns // WARPGROUP

    @property
    def threads(self) -> int:
        return WARPGROUP * (1 + self.consumers)

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * 128

    @property
    def operand_bytes(self) -> int:
        """Of the ring of stages, where a split tile's partial sums lie when it has been used."""
        return self.stages * self.stage_bytes

    @property
    def partial_bytes(self) -> int:
        return self.rows * self.columns * 4

    @property
    def shared_memory(self) -> int:
        """In bytes: operands, boxes, barriers."""
        return self.operand_bytes + self.stages * 16 + self.consumers * self.slots * BOX * 128 + 64


# H200, bfloat16, ratios to cuBLAS (torch 2.11, CUDA 13) in interleaved rounds with a cold cache, run-time shapes.
SHARED = Form(128, 256, stages=4, band=16, cluster=2)
ALTERNATING = Form(128, 128, stages=5, own=True, slots=4)
ALTERNATING_PAIR = replace(ALTERNATING, cluster=2)
SMALL = Form(64, 128, stages=8, own=True, consumers=1, cluster=2)
SPLIT = Form(64, 64, stages=6, consumers=1, split=True, slots=1)
