# ruff: noqa: F821, F823, F841, SIM102
# A TIRx script: annotations declare variables, inline functions assign to those around them, and a condition on what is
# known here cannot be joined with one on run-time values.
# mypy: disable-error-code="no-untyped-def, no-redef, misc"
"""The kernel of the tensor-core contraction on sm_90a, in TIRx: C = epilogue(A · B), sums in float32.

TMA brings tiles of both operands into a ring of stages in shared memory, wgmma multiplies from there. The grid is
persistent: blocks take tiles in turn. Extents are run-time values; what lies past them comes as zeros from TMA and is
clipped by TMA when stored, so that only loads of the epilogue need their positions clamped. How sums lie in registers
and results are stored is in wgmma_boxes.py.
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
from .tensor_cores import Product
from .tiles import BOX, WARPGROUP, Form
from .wgmma_boxes import REGISTERS, Boxes, Destination, Results, Write, boxes_of_patch, slots_in_turn

LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
_LINE = 64
"""Two-byte words of a row of a stage: 128 bytes."""
_LONGEST = 224
"""Columns of one product of integers: TVM 0.27 knows no longer ones."""
_PATCH = 32
"""Sums of a thread in 64 rows and 64 columns."""


@dataclass(frozen=True)
class Runs:
    """Of a grouped contraction, whose only layer is that of the groups: the first row of a group, and the first of its
    tiles among those of all groups, for a group's number; as int32. Behind the last group come the ends of both.
    """

    row: Callable[[Expr], Expr]
    tile: Callable[[Expr], Expr]
    groups: Expr


@dataclass(frozen=True)
class Operands:
    """What a kernel works on; maps are kernel parameters, extents int64 expressions.

    ``across``: whether an operand is contiguous along its rows (columns, of the right one) rather than along the sum.
    """

    left: Any
    right: Any
    results: tuple[Destination, ...]
    m: Expr
    n: Expr
    k: Expr
    product: Product
    left_across: bool = False
    right_across: bool = False
    layers: tuple[Expr, ...] = ()
    """Extents of what else there are products for: a batch, or further rows that only the left operand has."""
    left_layers: tuple[int, ...] = ()
    """Which of the layers the left operand has, in the order of its map."""
    right_layers: tuple[int, ...] = ()
    residual: bool = False
    """Whether the epilogue reads something for each sum."""
    fetched: Destination | None = None
    """That, where TMA brings it into the boxes that the results leave from (`can_fetch`)."""
    clipped: bool = False
    """Whether the left operand's boxes have no more rows than there are."""
    runs: Runs | None = None


def _unflatten(position: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The coordinates of a position in row-major order."""
    found = []
    for extent in reversed(extents[1:]):
        found.append(position % extent)
        position = position // extent
    return [position, *reversed(found)]


def _prefetch(maps: Sequence[Any]) -> None:
    for each in maps:
        T.evaluate(hopper.prefetch_map(each))


def _assign(buffer: Any, values: Sequence[Expr]) -> None:
    for i, value in enumerate(values):
        T.buffer_store(buffer, value, [i])


def deferred(form: Form, operands: Operands) -> bool:
    """Whether a tile's results wait in registers while the next tile is multiplied: there is room for those of one
    value of a half type, and none for the addresses of what is read for each sum.
    """
    return form.can_wait and [d.half for d in operands.results] == [True] and not operands.residual


def can_fetch(form: Form, results: Sequence[Destination]) -> bool:
    """Whether what the epilogue reads of a half type for each sum can come by TMA: there is a box for each patch, which
    nobody needs while the tile is multiplied.
    """
    return not form.split and form.slots >= form.patches and [d.half for d in results] == [True]


def contraction(form: Form, operands: Operands, epilogue: Results, write: Write) -> Any:
    """The kernel's body. Parameters are its free variables.

    Results go through shared memory and TMA, as ``epilogue`` gives them; where there are no destinations for that,
    ``write`` stores them one by one.
    """
    own, consumers, stages, depth, cluster = form.own, form.consumers, form.stages, form.depth, form.cluster
    left, right, results = operands.left, operands.right, operands.results
    left_across, right_across = operands.left_across, operands.right_across
    rows, columns, mine, patches, split = form.rows, form.columns, form.mine, form.patches, form.split
    high = mine // BOX  # patches one below the other: they come first, for what they read of the same columns
    per_row = columns // 2  # accumulators of 64 rows
    count = form.accumulators
    by_tma = len(results) > 0
    defer = deferred(form, operands)
    fetched: Any = operands.fetched
    assert fetched is None or can_fetch(form, results)
    registers = boxes_of_patch(results) * REGISTERS  # that hold a patch's results
    # Patches one below the other that are finished together: what depends on columns alone is computed once for them.
    # With what TMA brought they would take more registers than there are.
    deep = high if own and fetched is None and boxes_of_patch(results) == 1 else 1
    held = patches * registers if defer else max(deep * registers, 1)
    parts = 2 if defer else 1  # of a patch, whose loads are in flight together
    slots = slots_in_turn(form.slots, 1 if split else patches * boxes_of_patch(results))
    everyone = (1 << cluster) - 1
    # Boxes of an operand that is contiguous along its columns are 64 columns wide, and cannot be shared out in less.
    multicast = cluster > 1 and not (right_across and columns // cluster % BOX)
    right_part = columns // cluster if multicast else columns
    product, promoted = operands.product, form.promoted
    long = columns // 2 if product.sums == "uint32" and columns > _LONGEST else columns
    multiply = product.instruction(long)
    flags = product.flags(left_across, right_across)
    steps = depth // product.depth
    # In units of 16 bytes, which descriptors of wgmma count in: a step of 16 along the sum, and 64 rows down.
    left_step, left_down = (16 * 8, _LINE * 8) if left_across else (2, BOX * 8)
    right_step = 16 * 8 if right_across else 2
    left_lead, right_lead = (_LINE * 8 if across else 1 for across in (left_across, right_across))
    workers = 1 if own else consumers  # that read a stage
    dims = len(operands.layers)
    # Of 504 for three warpgroups; with clusters the loading one needs more.
    less, more = (40, 232) if cluster > 1 or split else (24, 240)
    layers = [tirx.Cast("int32", extent) for extent in operands.layers]
    matrices = math.prod(layers)
    runs: Any = operands.runs
    assert runs is None or (dims == 1 and by_tma and not split)

    def copy(to: Expr, source: Any, place: Sequence[Expr], barrier: Expr, shared: bool) -> Any:
        """Starts a copy into shared memory: this block's, or that of all blocks of the cluster."""
        load = LOAD.format(len(place))
        given = [to, T.address_of(source), *place, barrier]
        return T.ptx[load + ".multicast::cluster"](*given, T.uint16(everyone)) if shared else T.ptx[load](*given)

    def partial(ring: Any, consumer: Expr, sum: Expr, thread: Expr) -> Any:
        """Where a consumer's sums from number ``sum`` on lie in the ring, which is one piece of two-byte elements:
        fours, those of the threads side by side.
        """
        return ring.ptr_to([0, (consumer * count + sum) * (WARPGROUP * 2) + thread % WARPGROUP * 8])

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
            _prefetch([d.map for d in results])
            if fetched is not None:
                hopper.prefetch_map(fetched.map)
        pool = T.SMEMPool()
        s_left = pool.alloc((stages, rows * _LINE), "uint16", align=1024)
        s_right = pool.alloc((stages, columns * _LINE), "uint16", align=1024)
        s_result = pool.alloc((consumers, form.slots * BOX * BOX), "uint16", align=1024)
        full = TMABar(pool, stages, leader=tx == 0)
        empty = MBarrier(pool, stages, leader=tx == 0)
        if fetched is not None:
            landed = TMABar(pool, consumers, leader=tx == 0)
        pool.commit()
        full.init(1)
        empty.init(workers * cluster)
        if fetched is not None:
            landed.init(1)
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
        total: T.let[T.int32] = runs.tile(runs.groups) * n_tiles if runs is not None else layer * matrices
        band: T.let[T.int32] = form.band * n_tiles
        together: T.let[T.int32] = hopper.cluster_size() if split else cluster
        in_cluster: T.let[T.int32] = hopper.cluster_rank() if split else block % cluster
        my_part: T.let[T.int32] = in_cluster * right_part if multicast else 0
        # Which part of the sum is this block's.
        k_first: T.let[T.int32] = k_tiles * in_cluster // together if split else 0
        k_mine: T.let[T.int32] = k_tiles * (in_cluster + 1) // together - k_first if split else k_tiles
        turn: T.let[T.int32] = hopper.grid() // together
        tile: T.int32 = block // together
        stage: T.int32 = 0
        phase: T.int32 = 0
        # What lies below them in a stage is of no use, and neither are the sums of it.
        left_rows: T.let[T.int32] = T.min(m, rows) if operands.clipped else rows
        row = T.alloc_local((1,), "int32")
        column = T.alloc_local((1,), "int32")
        at = T.alloc_local((max(dims, 1),), "int32")
        member: T.int32 = 0
        end: T.int32 = 0x7FFFFFFF  # the row behind the last that is stored; TMA clips what lies past the result

        @T.inline
        def find_in_runs():
            """Where the tile lies in the rows of its group: groups one after the other, each as `find` goes."""
            while runs.tile(member + 1) * n_tiles <= tile:
                member = member + 1
            rest: T.let[T.int32] = tile - runs.tile(member) * n_tiles
            first: T.let[T.int32] = rest // band * form.band
            deep: T.let[T.int32] = T.min(form.band, runs.tile(member + 1) - runs.tile(member) - first)
            row[0] = runs.row(member) + ((first + rest % band % deep) * cluster + in_cluster) * rows
            column[0] = rest % band // deep * columns
            at[0] = member
            end = runs.row(member + 1)

        @T.inline
        def find():
            """Where the tile lies: down a band of rows of tiles, then right."""
            rest: T.let[T.int32] = tile % layer if dims > 0 else tile
            first: T.let[T.int32] = rest // band * form.band
            deep: T.let[T.int32] = T.min(form.band, m_tiles - first)
            down: T.let[T.int32] = first + rest % band % deep
            row[0] = (down if split else down * cluster + in_cluster) * rows
            column[0] = rest % band // deep * columns
            if dims > 0:
                _assign(at, _unflatten(tile // layer, layers))

        @T.inline
        def locate():
            if runs is not None:
                find_in_runs()
            else:
                find()

        @T.inline
        def bring(buffer, source, across, own_layers, k, first, offset, count, shared):
            """``count`` rows (or columns) from ``offset`` on of the tile that starts at ``first``."""
            if across:
                for j in T.unroll(count // BOX):
                    here: T.let[T.int32] = offset + j * BOX
                    place = T.meta_var([first + here, k * depth, *[at[d] for d in own_layers]])
                    copy(buffer.ptr_to([stage, here * _LINE]), source, place, full.ptr_to([stage]), shared)
            else:
                place = T.meta_var([k * depth, first + offset, *[at[d] for d in own_layers]])
                copy(buffer.ptr_to([stage, offset * _LINE]), source, place, full.ptr_to([stage]), shared)

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

            @T.inline
            def load():
                """A tile's stages."""
                locate()
                for step in T.serial(k_mine):
                    k: T.let[T.int32] = k_first + step
                    empty.wait(stage, phase ^ 1)
                    full.arrive(stage, (left_rows + columns) * 128)
                    bring(s_left, left, left_across, operands.left_layers, k, row[0], 0, rows, False)
                    bring(s_right, right, right_across, operands.right_layers, k, column[0], my_part, right_part,
                          multicast)  # fmt: skip
                    advance()

            if split:
                while tile < total:
                    if tx == 0:
                        load()
                    hopper.cluster_barrier()
                    hopper.cluster_barrier()
                    tile = tile + turn
            else:
                if tx == 0:
                    while tile < total:
                        load()
                        tile = tile + turn
        else:
            if consumers == 2:
                T.ptx["setmaxnreg.inc.sync.aligned.u32"](more)
            me: T.let[T.int32] = group - 1
            lead: T.let[T.bool] = tx % 128 == 0
            acc = T.alloc_local((count,), product.sums)
            apart = T.alloc_local((count if promoted else 1,), "float32")
            sums = T.meta_var(apart if promoted else acc)
            packed = T.alloc_local((held,), "uint32")
            brought = T.alloc_local((REGISTERS if fetched is not None else 1,), "uint32")
            a0: T.uint64
            b0: T.uint64
            a = T.alloc_local((1,), "uint64")
            b = T.alloc_local((1,), "uint64")
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(a0), s_left.ptr_to([0, 0 if own else me * mine * _LINE]), left_lead, 64, 3
            )
            T.cuda.wgmma.encode_matrix_descriptor(T.address_of(b0), s_right.ptr_to([0, 0]), right_lead, 64, 3)
            boxes = T.meta_var(Boxes(results, s_result, slots, me, tx, lead))
            my_row: T.let[T.int32] = tx % 128 // 32 * 16 + tx % 32 // 4
            my_column: T.let[T.int32] = tx % 4 * 2
            my_rows: T.let[T.int32] = 0 if own else me * mine  # of a tile

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
                    adds = T.meta_var(s > 0 if promoted else T.Or(k > 0, s > 0))
                    for h in T.unroll(high):
                        for part in T.unroll(columns // long):
                            T.ptx[multiply](*[acc[h * per_row + part * (long // 2) + i] for i in range(long // 2)],
                                            a[0] + T.Cast("uint64", h * left_down + s * left_step),
                                            b[0] + T.Cast("uint64", part * (long * 8) + s * right_step), adds,
                                            *flags)  # fmt: skip
                T.ptx.wgmma.commit_group.sync.aligned()

            @T.inline
            def clear():
                """Before a tile's first step."""
                if promoted:
                    for i in T.unroll(count):
                        apart[i] = T.float32(0)

            @T.inline
            def settle():
                """Waits for a step's products, and adds their sums to those of earlier steps where these are apart."""
                T.ptx.wgmma.wait_group.sync.aligned(0)
                release(stage)
                if promoted:
                    hopper.hold(acc, count)
                    for i in T.unroll(count):
                        apart[i] = apart[i] + acc[i]

            @T.inline
            def finish(sums, first, down, across, into):
                """The results of patches one below the other, whose sums are from ``first`` on, packed into registers
                from ``into`` on."""
                for part in T.unroll(parts):
                    T.cuda.warp_sync()  # loads stay behind it: ptxas would start those of all patches, and spill
                    for q in T.unroll(8 // parts):
                        eight = T.meta_var(part * (8 // parts) + q)
                        values = T.meta_var(
                            epilogue(
                                [sums[first + d * per_row + eight * 4 + j] for d in range(deep) for j in range(4)],
                                [at[d] for d in range(dims)],
                                [down + d * BOX + my_row + i * 8 for d in range(deep) for i in range(2)],
                                across + my_column + eight * 8,
                                [brought[eight * 2 + i] for i in range(2 if fetched is not None else 0)],
                            )
                        )
                        boxes.pack(packed, into, eight, values)

            @T.inline
            def put(sums, first, down, across):
                """Stores a patch from registers."""
                for q in T.unroll(8):
                    write(
                        [sums[first + q * 4 + j] for j in range(4)],
                        [at[d] for d in range(dims)],
                        [down + my_row, down + my_row + 8],
                        across + my_column + q * 8,
                    )

            @T.inline
            def finish_all():
                """Stores all patches of a tile."""
                for several in T.unroll(patches // deep):
                    patch = T.meta_var(several * deep)
                    first = T.meta_var(patch % high * per_row + patch // high * _PATCH)
                    down: T.let[T.int32] = row[0] + my_rows + patch % high * BOX
                    across: T.let[T.int32] = column[0] + patch // high * BOX
                    if by_tma:
                        if fetched is not None:
                            boxes.take(brought, patch)
                        finish(sums, first, down, across, 0)
                        for d in T.unroll(deep):
                            boxes.send(patch + d, packed, d * registers, down + d * BOX, across,
                                       [at[e] for e in range(dims)], end)  # fmt: skip
                    else:
                        put(sums, first, down, across)

            fetches: T.int32 = 0

            @T.inline
            def fetch():
                """Starts to bring what the epilogue reads into the boxes, once the last tile's are stored."""
                fetches = fetches + 1
                if lead:
                    T.ptx.cp.async_.bulk.wait_group.read(0)
                    landed.arrive(me, patches * BOX * 128)
                    for patch in T.unroll(patches):
                        across: T.let[T.int32] = column[0] + patch // high * BOX
                        down: T.let[T.int32] = row[0] + my_rows + patch % high * BOX
                        place = T.meta_var([across, down, *[at[d] for d in fetched.layers]])
                        copy(s_result.ptr_to([me, patch * (BOX * BOX)]), fetched.map, place, landed.ptr_to([me]),
                             False)  # fmt: skip

            @T.inline
            def finish_tile():
                """Stores all patches, when there is what they read."""
                if fetched is not None:
                    landed.wait(me, (fetches + 1) % 2)
                finish_all()

            before: T.int32 = 0

            @T.inline
            def multiply_all(steps_of_tile):
                """A tile's steps, one behind the other; without promotion the last is still under way."""
                clear()
                for k in T.serial(steps_of_tile):
                    products(k)
                    if promoted:
                        settle()
                    else:
                        T.ptx.wgmma.wait_group.sync.aligned(1)
                        if k > 0:
                            release(before)
                        before = stage
                    advance()

            @T.inline
            def last_step():
                """Waits for what `multiply_all` left under way."""
                if promoted:
                    hopper.hold(apart, count)
                else:
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    hopper.hold(acc, count)
                    release(before)

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

                if consumers == 2:
                    if me == 1:
                        pass_over()
                        tile = tile + turn
                        T.ptx.bar.arrive(T.uint32(1), T.uint32(256))
                while tile < total:
                    locate()
                    if fetched is not None:
                        fetch()
                    # In turns: a consumer several uses of a stage ahead would take an older phase for its own.
                    if consumers == 2:
                        T.ptx.bar.sync(T.Cast("uint32", 1 + me), T.uint32(256))
                    multiply_all(k_tiles)
                    if consumers == 2:
                        T.ptx.bar.arrive(T.Cast("uint32", 2 - me), T.uint32(256))
                    last_step()
                    finish_tile()
                    if consumers == 2:
                        pass_over()
                    tile = tile + consumers * turn
            elif split:
                all_sums = T.alloc_local((_PATCH,), "float32")
                while tile < total:
                    locate()
                    multiply_all(k_mine)
                    last_step()
                    T.ptx.bar.sync(T.uint32(1), T.uint32(WARPGROUP * consumers))  # all have read their last stage
                    for four in T.unroll(count // 4):
                        hopper.store_four(partial(s_left, me, four * 4, tx), T.address_of(sums[four * 4]))
                    hopper.cluster_barrier()
                    mine_first: T.let[T.int32] = in_cluster * consumers + me
                    workers_of_tile: T.let[T.int32] = together * consumers
                    shares: T.let[T.int32] = (consumers * patches - mine_first + workers_of_tile - 1) // workers_of_tile
                    for number in T.serial(shares):
                        share: T.let[T.int32] = mine_first + number * workers_of_tile
                        owner: T.let[T.int32] = share % consumers
                        patch: T.let[T.int32] = share // consumers
                        first: T.let[T.int32] = patch % high * per_row + patch // high * _PATCH
                        for i in T.unroll(_PATCH):
                            all_sums[i] = T.float32(0)
                        for rank in T.serial(together):
                            hopper.add_remote(all_sums, _PATCH, partial(s_left, owner, first, tx), WARPGROUP * 16, rank)
                        down: T.let[T.int32] = row[0] + owner * mine + patch % high * BOX
                        across: T.let[T.int32] = column[0] + patch // high * BOX
                        if by_tma:
                            finish(all_sums, 0, down, across, 0)
                            boxes.send(0, packed, 0, down, across, [at[d] for d in range(dims)])
                        else:
                            put(all_sums, 0, down, across)
                    T.ptx.fence.proxy.async_.shared__cta()  # TMA writes next what was read here
                    hopper.cluster_barrier()
                    tile = tile + turn
            else:
                last_row: T.int32 = 0
                last_column: T.int32 = 0
                last_end: T.int32 = 0
                stored: T.int32 = 1
                last = T.alloc_local((max(dims, 1),), "int32")

                @T.inline
                def send(patch):
                    """Stores a patch of the tile before."""
                    boxes.send(
                        patch,
                        packed,
                        patch * REGISTERS,
                        last_row + my_rows + patch % high * BOX,
                        last_column + patch // high * BOX,
                        [last[d] for d in range(dims)],
                        last_end,
                    )

                @T.inline
                def step(k, patch):
                    products(k)
                    if defer and patch >= 0:
                        if stored == 0:
                            send(patch)
                    settle()
                    advance()

                while tile < total:
                    locate()
                    clear()
                    step(0, 0)
                    if fetched is not None:
                        fetch()
                    for patch in T.unroll(1, patches):
                        if patch < k_tiles:
                            step(patch, patch)
                    for k in T.serial(patches, k_tiles):
                        step(k, -1)
                    if defer:
                        for patch in T.unroll(1, patches):
                            if T.And(patch >= k_tiles, stored == 0):
                                send(patch)
                    hopper.hold(sums, count)
                    if defer:
                        for patch in T.unroll(patches):
                            first = T.meta_var(patch % high * per_row + patch // high * _PATCH)
                            down: T.let[T.int32] = row[0] + my_rows + patch % high * BOX
                            across: T.let[T.int32] = column[0] + patch // high * BOX
                            finish(sums, first, down, across, patch * REGISTERS)
                        # Above the next tile's products: the compiler would pack where the boxes are stored.
                        hopper.hold(packed, held)
                        last_row = row[0]
                        last_column = column[0]
                        last_end = end
                        _assign(last, [at[d] for d in range(dims)])
                        stored = 0
                    else:
                        finish_tile()
                    tile = tile + turn
                if defer:
                    if stored == 0:
                        for patch in T.unroll(patches):
                            send(patch)
            if lead:
                T.ptx.cp.async_.bulk.wait_group.read(0)
        if cluster > 1:
            hopper.cluster_sync()

    return kernel
