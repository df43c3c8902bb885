"""Forms of the tensor-core contraction on sm_90a: how a tile is cut and who works on it."""

from __future__ import annotations

from dataclasses import dataclass

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
    half of its rows, and a finished tile is stored under the next one's products.
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

    def __post_init__(self) -> None:
        assert self.consumers == 2 or self.own, "a shared tile has two consumers"
        assert self.mine % BOX == 0 and self.columns % BOX == 0 and self.columns <= 256
        assert (self.columns // self.cluster) % BOX == 0
        assert self.accumulators <= 128, "more do not fit beside what is stored meanwhile"
        assert self.shared_memory <= SHARED_MEMORY, self.shared_memory

    @property
    def depth(self) -> int:
        """Elements of a stage along the sum: 128 bytes, the width of a swizzled row."""
        return 128 // self.size

    @property
    def mine(self) -> int:
        """Rows of a tile that one consumer multiplies."""
        return self.rows if self.own else self.rows // 2

    @property
    def boxes(self) -> int:
        """Boxes of results of one consumer."""
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
    def shared_memory(self) -> int:
        """In bytes: operands, boxes, barriers."""
        return self.stages * (self.stage_bytes + 16) + self.consumers * self.slots * BOX * 128 + 64


# H200, bfloat16, ratios to cuBLAS (torch 2.11, CUDA 13) in interleaved rounds with a cold cache, run-time shapes.
SHARED = Form(128, 256, stages=4, band=16)
"""1.03 to 1.04 at 8192³ and 4096³, 1.13 at 16384×4096×1024, 1.07 at 16384×1024×1024, 1.05 at 4096×11008×4096."""
ALTERNATING = Form(128, 128, stages=5, own=True, slots=4)
"""1.01 at 2048³, 1.08 at 2176×1920×2240 (0.66 with SHARED: 136 tiles are two waves); with an epilogue at
16384×4096×1024: bias 1.09, bias and residual 1.22, GELU 1.33, with tanh 1.40 (to eager torch)."""
SMALL = Form(64, 128, stages=8, own=True, consumers=1, cluster=2)
"""1.00 at 1000³ (0.83 without the cluster, 0.85 with ALTERNATING)."""
