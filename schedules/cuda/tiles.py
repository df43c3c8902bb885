"""Forms of the tensor-core contraction on sm_90a: how a tile is cut and who works on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

SHARED_MEMORY = 232448
"""What a block of sm_90 can use, in bytes."""
BOX = 64
"""Rows and columns of a box: what one swizzled TMA store moves, 64 rows of 128 bytes."""
WARPGROUP = 128
MOST_REGISTERS = 192
"""Of a thread, for sums and results: 40 are needed for all else."""


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
    promoted: bool = False
    """Sums of a step are added to others in float32: the tensor cores' own sums of 8-bit floats have fewer bits."""
    split: bool = False
    """A cluster, of as many blocks as the launch says, has a tile: each block sums a part of the sum, and when all are
    done each finishes a share of the tile. Partial sums are added in the order of the blocks."""

    def __post_init__(self) -> None:
        assert self.consumers == 2 or self.own or self.split, "a shared tile has two consumers"
        assert not self.split or (not self.own and self.cluster == 1 and self.partial_bytes <= self.operand_bytes)
        assert self.mine % BOX == 0 and self.columns % BOX == 0 and self.columns <= 256
        assert (self.columns // self.cluster) % 8 == 0, "a swizzled part has whole groups of 8 rows"
        assert self.registers <= MOST_REGISTERS, "more do not fit"
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
    def registers(self) -> int:
        """Of a thread, that hold sums, those of a step among them where they are apart."""
        return self.accumulators * (2 if self.promoted else 1)

    @property
    def can_wait(self) -> bool:
        """Whether a tile's results, of a half type, fit in registers beside the sums of the next tile."""
        return not self.own and not self.split and self.registers + self.accumulators // 2 <= MOST_REGISTERS

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
"""1.02 to 1.12 at 8192³, 1.02 at 4096³, 1.10 at 16384×4096×1024, 1.06 at 16384×1024×1024, 1.03 at 4096×11008×4096;
where rows begin in the middle of lines 1.04 to 1.05 (3000×11000×4104, 16000×4000×1000; 0.80 and 0.84 without the
pair)."""
ALTERNATING = Form(128, 128, stages=5, own=True, slots=4)
"""With an epilogue at 16384×4096×1024: bias 1.07, bias and residual 1.45 (1.22 where each thread loads what it needs of
the residual), GELU 1.39, with tanh 1.41 (to eager torch); float32 results 1.17 there and 1.00 at 4096³ (to torch.mm
with out_dtype). Not better with GELU: 64×256 in pairs 1.29 and 1.30, 128×192 in pairs 1.29, six stages 1.36."""
ALTERNATING_PAIR = replace(ALTERNATING, cluster=2)
"""Bias and residual at 16000×4000×1000: 1.08 (0.83 without the pair); 0.98 at 4000×4104×4160 (0.87)."""
SMALL = Form(64, 128, stages=8, own=True, consumers=1, cluster=2)
"""0.97 to 1.03 at 1000³, 1.00 at 768³ and 500×2000×2000, 0.92 at 256×4096×14336."""
SMALL_ALONE = replace(SMALL, cluster=1)
"""1.04 at 128×4096×4096 (0.94 in pairs), 1.21 at 256×4096×4096 (1.00), 0.97 at 32×14336×4096, 1.01 at 64×14336×4096."""
SPLIT = Form(64, 64, stages=6, consumers=1, split=True, slots=1)
"""0.81 to 1.05 at 512×512×4096 (0.73 to 0.77 with SMALL)."""
FETCHING = replace(SHARED, stages=3, slots=4)
"""SHARED for what the epilogue reads for each sum, with boxes for that. Bias and residual: 1.26 at 16300×4040×1048,
1.14 at 8000×4104×1160, 1.27 at 12345×3000×1000 (1.12, 1.11, 1.12 by pairs of ALTERNATING), 1.30 at 16384×4096×1024."""

FORMS = {
    "shared": SHARED,
    "alternating": ALTERNATING,
    "alternating_pair": ALTERNATING_PAIR,
    "small_alone": SMALL_ALONE,
    "small": SMALL,
    "split": SPLIT,
}
"""The forms that are built, one kernel each."""

_APART = Form(128, 192, stages=5, slots=1, band=16, promoted=True)
APART = {
    "shared": _APART,
    "shared_pair": replace(_APART, cluster=2),
    "square": Form(128, 128, stages=6, band=16, promoted=True),
    "small": replace(SMALL, promoted=True),
    "split": replace(SPLIT, promoted=True),
}
"""With sums apart: two consumers take turns on a tile, one adding while the other multiplies.

H200, float8_e4m3fn, ratios to torch._scaled_mm (use_fast_accum=False; torch 2.11, CUDA 13), cold cache: at 8192³ 0.96
to 0.98 (square 0.87 to 0.89; with half of the columns multiplied at a time, so that results can wait in registers, 0.86
to 0.90), at 4096³ 0.87 (square 0.88), at 2048³ 0.69 (square 0.86), at 1024³ 0.63 (square 0.78, small 0.84). Where rows
begin in the middle of lines: pairs 1.01 at 8000×8208×8080 (0.82 alone), 1.00 at 4000×4112×4176 (0.90), 0.95 at
16300×4048×1040 (0.87)."""


def forms(size: int, integers: bool, promoted: bool, fetching: bool = False) -> dict[str, Form]:
    """The forms for operands whose elements have so many bytes. ``fetching``: TMA brings what the epilogue reads.

    Of other types than halves a shared tile without sums apart beats no alternating one (H200, at 8192³ and 4096³, to
    torch: float8 with fast sums 0.97 and 1.02 to 1.04 and 1.06; int8 1.72 and 1.69 to 1.74 and 1.80, of torch._int_mm;
    tf32 1.01 and 1.02 both). Sums of integers are not split: parts are exchanged as floats.
    """
    found = APART if promoted else {**FORMS, "shared": FETCHING} if fetching else FORMS
    left_out = {"split"} if integers else set()
    if size != 2 and not promoted:
        left_out.add("shared")
    return {name: replace(form, size=size) for name, form in found.items() if name not in left_out}
