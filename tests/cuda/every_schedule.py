"""A few small problems for every schedule, and calls that run every kernel of them: what compute-sanitizer is given
(sanitized.py), and what is compiled to see that no kernel spills (test_every_schedule.py).

Each part names the files of schedules/cuda that build its kernels. Imports no TVM: libraries are made beforehand.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import opsgen as og
from opsgen.compiler import Variant
from opsgen.dsl.op import Op
from opsgen.ops import all_ops
from tests import arrays, grouped_inputs, integer_products, scans_and_scatters

if TYPE_CHECKING:
    from opsgen.compiler.plan import Plan

OPS = all_ops()
Call = tuple[Op, dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """``schedules``: who builds the kernels, compiled for ``target`` (None: the GPU at hand, or sm_90a)."""

    schedules: frozenset[str]
    items: tuple[Op | Variant, ...]
    calls: Callable[[], Iterator[Call]]
    dtype: str = "bfloat16"
    target: str | None = None
    configs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Precisions, as `opsgen.compile` takes them."""
    kernels: str = ""
    """A pattern of the names of those that the calls run, all of them; others belong to other parts."""


# -- ops ---------------------------------------------------------------------------------------------------------------
@og.op
def planes(x: og.Tensor["b", "n", "m"]) -> og.Tensor:
    """Rows over two dims."""
    return x - og.max(x, over=("n", "m"))


@og.op
def downwards(x: og.Tensor["n", "m"]) -> og.Tensor:
    """A reduction of what is contiguous along the result."""
    return og.sum(x * x, over="n")


GELU = og.variant(OPS["gelu"], approximate="none")
NORM = og.variant(OPS["layer_norm"], absent=["residual"])
PLAIN = og.variant(OPS["linear"], absent=["bias", "residual"], activation="none")
FULL = og.variant(OPS["linear"], absent=[], activation="gelu")
FLOAT8 = og.variant(OPS["fp8_linear"], absent=["x_scale", "weight_scale", "bias"])
GROUPED = og.variant(OPS["grouped_linear"], absent=[], activation="gelu")
SETS = (scans_and_scatters.rows_set, scans_and_scatters.set_and_read)
SOFTMAX = OPS["softmax"]
BFLOAT16 = arrays.numpy_dtype("bfloat16")


# -- calls -------------------------------------------------------------------------------------------------------------
def made(op: Op, dtype: str, shapes: Mapping[str, tuple[int, ...]], **more: Any) -> Call:
    """A call with N(0, 1) of these shapes."""
    rng = np.random.default_rng([len(shapes), *next(iter(shapes.values()))])
    return op, {**{n: arrays.values(rng, shape, dtype) for n, shape in shapes.items()}, **more}


def linear(item: Variant, dtype: str, *sizes: tuple[int, int, int]) -> Iterator[Call]:
    """Rows, columns, length of the sum."""
    for rows, columns, summed in sizes:
        dims = {"in_features": summed, "out_features": columns}
        given = arrays.arguments(item.op, item.absent or frozenset(), (rows,), dims, dtype)
        yield item.op, {**given, **item.attributes}


def int_mm(*sizes: tuple[int, int, int]) -> Iterator[Call]:
    for m, n, k in sizes:
        yield made(integer_products.int_mm, "int8", {"x": (m, k), "w": (n, k)})


def tf32(*sizes: tuple[int, int, int]) -> Iterator[Call]:
    """Numbers that 10 bits of mantissa hold."""
    for op, given in linear(PLAIN, "float32", *sizes):
        yield op, {**given, **{n: given[n].astype(BFLOAT16).astype(np.float32) for n in ("x", "weight")}}


def grouped(dtype: str, *calls: tuple[list[int], int, int]) -> Iterator[Call]:
    """Offsets, columns, length of the sum."""
    for offsets, columns, summed in calls:
        yield GROUPED.op, {**grouped_inputs.arguments(offsets, columns, summed, dtype), **GROUPED.attributes}


def maps() -> Iterator[Call]:
    ids = np.array([[0, 4, 2], [1, 1, 3]])
    for n in (64, 7, 0):
        yield made(GELU.op, "bfloat16", {"x": (5, n)}, **GELU.attributes)
        yield made(OPS["embedding"], "bfloat16", {"table": (5, n)}, ids=ids)


def rows() -> Iterator[Call]:
    """A part of a warp, a warp, a block or a cluster has a row, or each of many blocks a part of one."""
    for n in (64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 7):
        yield made(SOFTMAX, "bfloat16", {"x": (3, n)})
        yield made(NORM.op, "bfloat16", {"x": (3, n), "weight": (n,), "bias": (n,)}, eps=1e-5)
    for shape in ((2, 262145), (3, 262145)):
        yield made(SOFTMAX, "bfloat16", {"x": shape})
        yield made(NORM.op, "bfloat16", {"x": shape, "weight": shape[1:], "bias": shape[1:]}, eps=1e-5)
    for shape in ((3, 5, 7), (2, 40, 65)):
        yield made(planes, "bfloat16", {"x": shape})


def columns() -> Iterator[Call]:
    for shape in ((3, 5), (65, 33), (1300, 2), (0, 3)):
        yield made(downwards, "bfloat16", {"x": shape})


def scans() -> Iterator[Call]:
    for op, sizes in (
        (scans_and_scatters.rows, ((3, 17), (40, 1021), (2, 4097), (2, 20_001), (0, 3))),
        (scans_and_scatters.backwards, ((3, 17), (40, 1021), (2, 4097), (2, 20_001), (0, 3))),
        (scans_and_scatters.columns, ((5, 33), (33, 400), (33, 1300), (2, 9000))),
        (scans_and_scatters.middle, ((5, 33), (33, 400), (33, 1300), (2, 9000))),
    ):
        for lines, n in sizes:
            yield op, scans_and_scatters.scan_arguments(op.name, lines, n, "float32")


def scatters() -> Iterator[Call]:
    for op in scans_and_scatters.SCATTERS:
        for n, m, v in (*scans_and_scatters.SCATTER_SIZES, (40, 100, 7), (40, 300, 7), (40, 1000, 7)):
            yield op, scans_and_scatters.scatter_arguments(op.name, n, m, v, "float32")


def sets() -> Iterator[Call]:
    for op in SETS:
        for seed, (n, m, v) in enumerate(scans_and_scatters.SET_SIZES):
            yield op, scans_and_scatters.set_arguments(op, n, m, v, "float32", seed)


FEW = ((1, 5, 264), (4, 40, 1032), (8, 31, 512), (13, 40, 64), (30, 24, 72))
TILES = ((40, 72, 64), (130, 200, 136), (130, 200, 0), (65, 129, 17), (400, 392, 72))
UNEVEN = ([0, 37], [0, 0, 5, 5, 66, 66], [0, 131, 135, 400])


def of(*names: str) -> frozenset[str]:
    return frozenset(names)


ROWS = of("row_reduction", "held_rows", "split_rows", "long_rows")
COLUMNS = of("row_reduction", "columns")
FEW_ROWS = of("by_size", "few_rows", "split_sums")
CORES = of("contraction", "core_tiles", "few_rows_threads", "tile_kernel") | FEW_ROWS
MMA = of("mma", "mma_kernel", "few_rows_mma", "tile_kernel") | FEW_ROWS
WGMMA = of("wgmma", "wgmma_memory")
GROUPS = of("grouped_contraction", "segments", "tile_kernel") | ROWS
"""The group that a row is of is found as a row's other reductions are."""

PARTS: dict[str, Part] = {
    "maps": Part(of("map"), (GELU, OPS["embedding"]), maps),
    "rows": Part(
        ROWS, (SOFTMAX, NORM, planes), rows,
        configs={"cuda.row_reduction": {"few_rows": 2}},
    ),
    "columns": Part(COLUMNS, (downwards,), columns),
    "scans": Part(of("scan", "scan_rows", "scan_columns"), tuple(scans_and_scatters.SCANS[:4]), scans, "float32"),
    "scatters": Part(of("scatter", "scatter_lists"), tuple(scans_and_scatters.SCATTERS), scatters, "float32"),
    "sets": Part(of("update", "update_winners") | COLUMNS, SETS, sets, "float32"),
    "floats": Part(
        CORES, (FULL,), lambda: linear(FULL, "float32", *FEW, *TILES), "float32",
        configs={"cuda.contraction": {"multiprocessors": 4}},
    ),
    "mma": Part(
        MMA, (FULL,), lambda: linear(FULL, "bfloat16", *FEW, *TILES), target="cuda/compute_80",
        configs={"cuda.mma": {"multiprocessors": 4}},
    ),
    "dp4a": Part(
        CORES | of("dp4a"), (integer_products.int_mm,), lambda: int_mm(*FEW, *TILES), target="cuda/compute_80",
        kernels="dp4a|few_rows|small|any",
    ),
    "wgmma": Part(
        MMA | WGMMA, (PLAIN, FULL), lambda: chain(
            linear(PLAIN, "bfloat16", (70, 72, 64), (72, 72, 1000), (300, 130, 64)),
            linear(FULL, "bfloat16", (70, 72, 64), (72, 72, 1000), (300, 130, 64)),
            linear(PLAIN, "bfloat16", (1032, 1024, 264), (2056, 1536, 264), (1032, 1024, 2048)),
            linear(FULL, "bfloat16", (1032, 1024, 1000), (2056, 1536, 1000), (2048, 3072, 2048)),
        ), kernels="wgmma_",
    ),
    "wgmma_float8": Part(
        CORES | WGMMA, (FLOAT8,), lambda: linear(
            FLOAT8, "bfloat16", (70, 72, 128), (72, 72, 2048), (300, 130, 144), (264, 3072, 144), (2056, 1024, 144)
        ), kernels="wgmma_",
    ),
    "wgmma_int8": Part(
        CORES | WGMMA, (integer_products.int_mm,),
        lambda: int_mm((70, 72, 128), (300, 130, 144), (2056, 1536, 144), (1032, 1024, 512)), kernels="wgmma_",
    ),
    "wgmma_tf32": Part(
        CORES | WGMMA, (PLAIN,),
        lambda: tf32((70, 72, 64), (72, 72, 1000), (300, 130, 64), (264, 3072, 72), (1032, 1024, 1024)), "float32",
        allowed={"float32_products": "tf32"}, kernels="wgmma_",
    ),
    "grouped": Part(
        GROUPS | of("core_tiles"), (GROUPED,), lambda: grouped(
            "float32", *((o, *s) for o in UNEVEN for s in ((17, 33), (72, 64), (264, 40)))
        ), "float32", configs={"cuda.grouped_contraction": {"multiprocessors": 4}}, kernels="_g1_",
    ),
    "grouped_mma": Part(
        GROUPS | of("mma_kernel"), (GROUPED,), lambda: grouped(
            "bfloat16", *((o, *s) for o in UNEVEN for s in ((17, 33), (72, 64), (264, 40)))
        ), target="cuda/compute_80", configs={"cuda.grouped_contraction": {"multiprocessors": 4}}, kernels="_g1_",
    ),
    "grouped_wgmma": Part(
        GROUPS | of("grouped_wgmma", "wgmma_memory", "mma_kernel"), (GROUPED,), lambda: grouped(
            "bfloat16", *((o, *s) for o in UNEVEN for s in ((72, 64), (264, 136))), ([0, 0, 600, 700], 264, 72)
        ), kernels="wgmma_|segments",
    ),
}  # fmt: skip
"""wgmma's sizes are the smallest that choose each form."""


def write(name: str, path: Path, target: str) -> None:
    """Compiles a part's library. Imports TVM."""
    from opsgen.compiler.compile import build
    from opsgen.compiler.precision import Precision

    part = PARTS[name]
    build(
        part.items, path, part.target or target, [part.dtype], configs=part.configs, allowed=Precision(**part.allowed)
    )


def plans(name: str, target: str) -> "list[Plan]":
    """The plan of each of a part's problems on one target. Imports TVM."""
    from opsgen.compiler.plan import make_plan
    from opsgen.compiler.precision import Precision
    from opsgen.compiler.problem import enumerate_problems
    from opsgen.targets.names import parse

    part = PARTS[name]
    problems = enumerate_problems(part.items, [part.dtype], {}, Precision(**part.allowed))
    return [make_plan(p, parse([target])[0], part.configs) for p in problems]
