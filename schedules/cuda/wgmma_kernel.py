# ruff: noqa: F821, F823, F841, SIM102
# A TIRx script: annotations declare variables, inline functions assign to those around them, and a condition on what is
# known here cannot be joined with one on run-time values.
# mypy: disable-error-code="no-untyped-def, misc"
"""The kernel of the tensor-core contraction on sm_90a, in TIRx: C = epilogue(A · B), sums in float32.

TMA brings tiles of both operands into a ring of stages in shared memory, wgmma multiplies from there. The grid is
persistent: blocks take tiles in turn. Extents are run-time values; what lies past them comes as zeros from TMA and is
clipped by TMA when stored, so that only loads of the epilogue need their positions clamped.

Registers hold sums as wgmma leaves them: of a box of 64 rows and 64 columns, thread t has rows t/32·16 + t%32/4 and 8
below, and of each 8 columns the two from t%4·2 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.backend.cuda.lang.pipeline import MBarrier, TMABar
from tvm.script import tirx as T

from opsgen.lowering.statements import Expr

from . import hopper
from .tiles import BOX, Form

LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group"
MATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16"
_SHORT = {"bfloat16": "bf16", "float16": "f16"}

Results = Callable[[Sequence[Expr], Sequence[Expr], Sequence[Expr], Expr], Sequence[Expr]]
"""The results at two rows and two columns side by side, row after row: of their sums, the layers, the rows and the
first column."""
Write = Callable[[Sequence[Expr], Sequence[Expr], Sequence[Expr], Expr], None]
"""Stores the results; arguments as for `Results`."""


@dataclass(frozen=True)
class Operands:
    """What a kernel works on; maps are kernel parameters, extents int64 expressions.

    ``across``: whether an operand is contiguous along its rows (columns, of the right one) rather than along the sum.
    """

    left: Any
    right: Any
    result: Any
    m: Expr
    n: Expr
    k: Expr
    dtype: str
    result_dtype: str
    left_across: bool = False
    right_across: bool = False
    layers: tuple[Expr, ...] = ()
    """Extents of what else there are products for: a batch, or further rows that only the left operand has."""
    left_layers: tuple[int, ...] = ()
    """Which of the layers the left operand has, in the order of its map."""
    right_layers: tuple[int, ...] = ()
    result_layers: tuple[int, ...] = ()


def _unflatten(position: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The coordinates of a position in row-major order."""
    found = []
    for extent in reversed(extents[1:]):
        found.append(position % extent)
        position = position // extent
    return [position, *reversed(found)]


def _assign(buffer: Any, values: Sequence[Expr]) -> None:
    for i, value in enumerate(values):
        T.buffer_store(buffer, value, [i])


def contraction(form: Form, operands: Operands, epilogue: Results | None, write: Write) -> Any:
    """The kernel's body. Parameters are its free variables.

    Results go through shared memory and TMA, as ``epilogue`` gives them; without it ``write`` stores them one by one.
    """
    own, consumers, stages, depth, cluster = form.own, form.consumers, form.stages, form.depth, form.cluster
    left, right, result = operands.left, operands.right, operands.result
    left_across, right_across = operands.left_across, operands.right_across
    rows, columns, mine, boxes, slots = form.rows, form.columns, form.mine, form.boxes, form.slots
    high = mine // BOX  # boxes one below the other: they come first, for what they read of the same columns
    per_row = columns // 2  # accumulators of 64 rows
    count = form.accumulators
    paired = count // 2
    by_tma = epilogue is not None
    held = 16 if own else paired
    parts = 1 if own else 2  # of a box, whose loads are in flight together
    store = STORE.format(2 + len(operands.result_layers))
    everyone = (1 << cluster) - 1
    right_part = columns // cluster
    short = _SHORT[operands.dtype]
    multiply = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{short}.{short}"
    steps = depth // 16
    # In units of 16 bytes, which descriptors of wgmma count in: a step of 16 along the sum, and 64 rows down.
    left_step, left_down = (16 * 8, depth * 8) if left_across else (2, BOX * 8)
    right_step = 16 * 8 if right_across else 2
    left_lead, right_lead = (depth * 8 if across else 1 for across in (left_across, right_across))
    workers = 1 if own else consumers  # that read a stage
    dims = len(operands.layers)
    # Of 504 for three warpgroups; with clusters the loading one needs more.
    less, more = (40, 232) if cluster > 1 else (24, 240)
    layers = [tirx.Cast("int32", extent) for extent in operands.layers]
    matrices = math.prod(layers)

    def copy(to: Expr, source: Any, place: Sequence[Expr], barrier: Expr, shared: bool) -> Any:
        """Starts a copy into shared memory: this block's, or that of all blocks of the cluster."""
        load = LOAD.format(len(place))
        given = [to, T.address_of(source), *place, barrier]
        return T.ptx[load + ".multicast::cluster"](*given, T.uint16(everyone)) if shared else T.ptx[load](*given)

    @hopper.script
    def kernel():
        T.device_entry()
        block = T.cta_id([cluster << 16])  # whatever the grid: an extent of 1 would make it 0
        if cluster > 1:
            T.cta_id_in_cluster([cluster])
        tx = T.thread_id([form.threads])
        if tx == 32:
            hopper.prefetch_map(left)
            hopper.prefetch_map(right)
            if by_tma:
                hopper.prefetch_map(result)
        pool = T.SMEMPool()
        s_left = pool.alloc((stages, rows * depth), "uint16", align=1024)
        s_right = pool.alloc((stages, columns * depth), "uint16", align=1024)
        s_result = pool.alloc((consumers, slots * BOX * BOX), "uint16", align=1024)
        full = TMABar(pool, stages, leader=tx == 0)
        empty = MBarrier(pool, stages, leader=tx == 0)
        pool.commit()
        full.init(1)
        empty.init(workers * cluster)
        if cluster > 1:
            hopper.fence_init()
        T.ptx.fence.proxy.async_.shared__cta()
        if cluster > 1:
            hopper.cluster_sync()
        else:
            T.cuda.cta_sync()
        m: T.let[T.int32] = T.Cast("int32", operands.m)
        n: T.let[T.int32] = T.Cast("int32", operands.n)
        k_tiles: T.let[T.int32] = (T.Cast("int32", operands.k) + (depth - 1)) // depth
        m_tiles: T.let[T.int32] = (m + (rows * cluster - 1)) // (rows * cluster)
        n_tiles: T.let[T.int32] = (n + (columns - 1)) // columns
        layer: T.let[T.int32] = m_tiles * n_tiles
        total: T.let[T.int32] = layer * matrices
        band: T.let[T.int32] = form.band * n_tiles
        in_cluster: T.let[T.int32] = block % cluster
        my_part: T.let[T.int32] = in_cluster * right_part
        turn: T.let[T.int32] = hopper.grid() // cluster
        tile: T.int32 = block // cluster
        stage: T.int32 = 0
        phase: T.int32 = 0
        row = T.alloc_local((1,), "int32")
        column = T.alloc_local((1,), "int32")
        at = T.alloc_local((max(dims, 1),), "int32")

        @T.inline
        def find():
            """Where the tile lies: down a band of rows of tiles, then right."""
            rest: T.let[T.int32] = tile % layer if dims > 0 else tile
            first: T.let[T.int32] = rest // band * form.band
            deep: T.let[T.int32] = T.min(form.band, m_tiles - first)
            row[0] = ((first + rest % band % deep) * cluster + in_cluster) * rows
            column[0] = rest % band // deep * columns
            if dims > 0:
                _assign(at, _unflatten(tile // layer, layers))

        @T.inline
        def bring(buffer, source, across, own_layers, k, first, offset, count, shared):
            """``count`` rows (or columns) from ``offset`` on of the tile that starts at ``first``."""
            if across:
                for j in T.unroll(count // BOX):
                    here: T.let[T.int32] = offset + j * BOX
                    place = T.meta_var([first + here, k * depth, *[at[d] for d in own_layers]])
                    copy(buffer.ptr_to([stage, here * depth]), source, place, full.ptr_to([stage]), shared)
            else:
                place = T.meta_var([k * depth, first + offset, *[at[d] for d in own_layers]])
                copy(buffer.ptr_to([stage, offset * depth]), source, place, full.ptr_to([stage]), shared)

        @T.inline
        def advance():
            stage = stage + 1
            if stage == stages:
                stage = 0
                phase = phase ^ 1

        group: T.let[T.int32] = hopper.uniform(tx // 128)
        if group == 0:
            if consumers == 2:
                T.ptx["setmaxnreg.dec.sync.aligned.u32"](less)
            if tx == 0:
                while tile < total:
                    find()
                    for k in T.serial(k_tiles):
                        empty.wait(stage, phase ^ 1)
                        full.arrive(stage, form.stage_bytes)
                        bring(s_left, left, left_across, operands.left_layers, k, row[0], 0, rows, False)
                        bring(
                            s_right,
                            right,
                            right_across,
                            operands.right_layers,
                            k,
                            column[0],
                            my_part,
                            right_part,
                            cluster > 1,
                        )
                        advance()
                    tile = tile + turn
        else:
            if consumers == 2:
                T.ptx["setmaxnreg.inc.sync.aligned.u32"](more)
            me: T.let[T.int32] = group - 1
            lead: T.let[T.bool] = tx % 128 == 0
            acc = T.alloc_local((count,), "float32")
            packed = T.alloc_local((held,), "uint32")
            a0: T.uint64
            b0: T.uint64
            a = T.alloc_local((1,), "uint64")
            b = T.alloc_local((1,), "uint64")
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(a0), s_left.ptr_to([0, 0 if own else me * mine * depth]), left_lead, 64, 3
            )
            T.cuda.wgmma.encode_matrix_descriptor(T.address_of(b0), s_right.ptr_to([0, 0]), right_lead, 64, 3)
            matrix_row: T.let[T.int32] = tx % 128 // 32 * 16 + tx % 32 // 8 % 2 * 8 + tx % 8
            matrix: T.let[T.int32] = tx % 32 // 16
            my_row: T.let[T.int32] = (0 if own else me * mine) + tx % 128 // 32 * 16 + tx % 32 // 4
            my_column: T.let[T.int32] = tx % 4 * 2

            @T.inline
            def release(s):
                if cluster > 1:
                    if tx % 128 < cluster:
                        hopper.arrive_at(empty.ptr_to([s]), tx % 128)
                else:
                    if lead:
                        empty.arrive(s)

            @T.inline
            def products(k):
                """One stage's products, as one group."""
                full.wait(stage, phase)
                hopper.hold(acc, count)
                T.ptx.wgmma.fence.sync.aligned()
                # Through uint32: sign extensions cost registers and instructions.
                a[0] = a0 + T.Cast("uint64", T.Cast("uint32", stage * (rows * 8)))
                b[0] = b0 + T.Cast("uint64", T.Cast("uint32", stage * (columns * 8)))
                for s in T.unroll(steps):
                    for h in T.unroll(high):
                        T.ptx[multiply](*[acc[h * per_row + i] for i in range(per_row)],
                                        a[0] + T.Cast("uint64", h * left_down + s * left_step),
                                        b[0] + T.Cast("uint64", s * right_step), T.Or(k > 0, s > 0), 1, 1,
                                        int(left_across), int(right_across))  # fmt: skip
                T.ptx.wgmma.commit_group.sync.aligned()

            @T.inline
            def finish(box, into):
                """The results of a box, two in a register."""
                down: T.let[T.int32] = row[0] + my_row + box % high * BOX
                across: T.let[T.int32] = column[0] + my_column + box // high * BOX
                for part in T.unroll(parts):
                    T.cuda.warp_sync()  # loads stay behind it: ptxas would start those of all boxes, and spill
                    for q in T.unroll(8 // parts):
                        eight = T.meta_var(part * (8 // parts) + q)
                        i = T.meta_var(box % high * per_row + (box // high * 8 + eight) * 4)
                        values = T.meta_var(
                            epilogue(
                                [acc[i + j] for j in range(4)],
                                [at[d] for d in range(dims)],
                                [down, down + 8],
                                across + eight * 8,
                            )
                        )
                        to = T.meta_var(into * 16 + eight * 2)
                        packed[to] = hopper.pack(values[0], values[1], operands.result_dtype)
                        packed[to + 1] = hopper.pack(values[2], values[3], operands.result_dtype)

            @T.inline
            def put(box):
                """Stores a box from registers."""
                down: T.let[T.int32] = row[0] + my_row + box % high * BOX
                across: T.let[T.int32] = column[0] + my_column + box // high * BOX
                for q in T.unroll(8):
                    i = T.meta_var(box % high * per_row + (box // high * 8 + q) * 4)
                    write(
                        [acc[i + j] for j in range(4)],
                        [at[d] for d in range(dims)],
                        [down, down + 8],
                        across + q * 8,
                    )

            @T.inline
            def send(box, source, first, left_most, to):
                """Stores a box: registers, swizzled shared memory, TMA."""
                slot = T.meta_var(box % slots * (BOX * BOX))
                if lead:
                    T.ptx.cp.async_.bulk.wait_group.read(slots - 1)
                T.ptx.bar.sync(T.Cast("uint32", 8 + me), T.uint32(128))
                for q in T.unroll(4):
                    T.ptx[MATRIX](
                        s_result.ptr_to([me, slot + matrix_row * BOX + T.bitwise_xor(q * 2 + matrix, tx % 8) * 8]),
                        *[packed[source * 16 + q * 4 + i] for i in range(4)],
                    )
                T.ptx.fence.proxy.async_.shared__cta()
                T.ptx.bar.sync(T.Cast("uint32", 8 + me), T.uint32(128))
                if lead:
                    T.ptx[store](T.address_of(result), left_most + box // high * BOX,
                                 first + (0 if own else me * mine) + box % high * BOX,
                                 *[to[d] for d in operands.result_layers], s_result.ptr_to([me, slot]))  # fmt: skip
                    T.ptx.cp.async_.bulk.commit_group()

            if own:
                whole: T.let[T.int32] = k_tiles // stages
                part: T.let[T.int32] = k_tiles % stages

                @T.inline
                def pass_over():
                    """Past the stages of the other consumer's tile."""
                    stage = stage + part
                    phase = phase ^ (whole % 2)
                    if stage >= stages:
                        stage = stage - stages
                        phase = phase ^ 1

                before: T.int32 = 0
                if consumers == 2:
                    if me == 1:
                        pass_over()
                        tile = tile + turn
                        T.ptx.bar.arrive(T.uint32(1), T.uint32(256))
                while tile < total:
                    find()
                    # In turns: a consumer several uses of a stage ahead would take an older phase for its own.
                    if consumers == 2:
                        T.ptx.bar.sync(T.Cast("uint32", 1 + me), T.uint32(256))
                    for k in T.serial(k_tiles):
                        products(k)
                        T.ptx.wgmma.wait_group.sync.aligned(1)
                        if k > 0:
                            release(before)
                        before = stage
                        advance()
                    if consumers == 2:
                        T.ptx.bar.arrive(T.Cast("uint32", 2 - me), T.uint32(256))
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    hopper.hold(acc, count)
                    release(before)
                    for box in T.unroll(boxes):
                        if by_tma:
                            finish(box, 0)
                            send(box, 0, row[0], column[0], at)
                        else:
                            put(box)
                    if consumers == 2:
                        pass_over()
                    tile = tile + consumers * turn
            else:
                last_row: T.int32 = 0
                last_column: T.int32 = 0
                stored: T.int32 = 1
                last = T.alloc_local((max(dims, 1),), "int32")

                @T.inline
                def step(k, box):
                    products(k)
                    if by_tma and box >= 0:
                        if stored == 0:
                            send(box, box, last_row, last_column, last)
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    release(stage)
                    advance()

                while tile < total:
                    find()
                    step(0, 0)
                    for box in T.unroll(1, boxes):
                        if box < k_tiles:
                            step(box, box)
                    for k in T.serial(boxes, k_tiles):
                        step(k, -1)
                    if by_tma:
                        for box in T.unroll(1, boxes):
                            if T.And(box >= k_tiles, stored == 0):
                                send(box, box, last_row, last_column, last)
                    hopper.hold(acc, count)
                    if by_tma:
                        for box in T.unroll(boxes):
                            finish(box, box)
                        # Above the next tile's products: the compiler would pack where the boxes are stored.
                        hopper.hold(packed, paired)
                        last_row = row[0]
                        last_column = column[0]
                        _assign(last, [at[d] for d in range(dims)])
                        stored = 0
                    else:
                        for box in T.unroll(boxes):
                            put(box)
                    tile = tile + turn
                if by_tma:
                    if stored == 0:
                        for box in T.unroll(boxes):
                            send(box, box, last_row, last_column, last)
            if lead:
                T.ptx.cp.async_.bulk.wait_group.read(0)
        if cluster > 1:
            hopper.cluster_sync()

    return kernel
