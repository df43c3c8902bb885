"""Which source stays at each position of an update, on NVIDIA GPUs: the last one.

A few sources are compared with all that follow them, where their rows are written. More of them go through a table that
is as long as there are positions: each puts -1 where it goes, and then, in another kernel, its number if that is
larger. Nothing else of the table is touched, and the largest number is the same in whatever order threads come by.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.analysis.updates import Update
from opsgen.lowering.kernel import Comparison, Launch
from opsgen.lowering.statements import Code, Expr, constant, i64
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.scatters import destination
from opsgen.schedules.common.schedule import Config, Context
from opsgen.schedules.common.updates import winners, wins

from .kernels import DeviceKernel, strided


def launches(context: Context, config: Config, when: tuple[Comparison, ...]) -> list[Launch]:
    """The kernels that fill the table, in order."""
    return [_fill(context, config, part, when) for part in ("clear", "claim")]


def _fill(context: Context, config: Config, part: str, when: tuple[Comparison, ...]) -> Launch:
    update = context.group.update
    assert update is not None
    kernel = DeviceKernel(context, part, config["threads"])
    dims = (*update.scatter.batch, update.source)
    extents = {d: kernel.extent(d) for d in dims}
    table = winners(kernel, update)
    with kernel.thread_tasks(product_of(extents, dims)) as (task, body):
        here = Scope(kernel, body, unflatten(body, task, dims, extents))
        place, valid = destination(here, update.scatter)
        with body.when(valid) as inside:
            if part == "clear":
                table.store(inside, {**here.coords, **place}, i64(-1))
            else:
                _raise(inside, table, table.offset({**here.coords, **place}), here.coords[update.source])
    count = cost.elements(kernel.graph, dims)
    blocks = (count + (kernel.threads - 1)) // kernel.threads
    return kernel.launch_on(blocks, when, per_sm=config["per_sm"])


def _raise(code: Code, table: Memory, place: Expr, number: Expr) -> None:
    """Makes an element of memory the larger of itself and a number, whoever else does."""
    address = tirx.address_of(tirx.BufferLoad(table.buffer, [place]))
    code.call("opsgen_raise", address, number)


def stays(scope: Scope, update: Update, place: dict[str, Expr], valid: Expr, few: bool) -> Expr:
    """Whether the source at hand, which goes to ``place``, writes its row: an int32 that is not 0 if it does.

    ``few``: there is no table.
    """
    kernel, code = scope.env, scope.code
    assert isinstance(kernel, DeviceKernel)
    number = scope.coords[update.source]
    flag = code.local("int32", 1, "stays")
    code.store(flag, constant(0, "int32"), i64(0))
    with code.when(valid) as inside:
        here = scope.inner(inside, {})
        if not few:
            found = tirx.Cast("int32", wins(here, winners(kernel, update), place, number))
            inside.store(flag, found, i64(0))
        else:
            inside.store(flag, constant(1, "int32"), i64(0))
            first = inside.bind(number + i64(1), "next")
            with strided(inside, first, kernel.extent(update.source), i64(1), "later") as (later, body):
                other = here.inner(body, {update.source: later})
                its_place, goes = destination(other, update.scatter)
                for d, at in its_place.items():
                    goes = tirx.And(goes, tirx.EQ(at, place[d]))
                with body.when(goes) as same:
                    same.store(flag, constant(0, "int32"), i64(0))
    return code.bind(tirx.BufferLoad(flag, [i64(0)]), "stays")
