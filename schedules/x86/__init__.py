"""Schedules for x86: one file a pattern. `SCHEDULES` lists them."""

from opsgen.schedules.common.schedule import Schedule


def schedules() -> tuple[Schedule, ...]:
    """All schedules of the target. Imports TVM."""
    from . import contraction, grouped_contraction, map, online_chain, row_reduction, scan, scatter, update

    return (
        map.SCHEDULE,
        row_reduction.SCHEDULE,
        contraction.SCHEDULE,
        grouped_contraction.SCHEDULE,
        online_chain.SCHEDULE,
        scan.SCHEDULE,
        scatter.SCHEDULE,
        update.SCHEDULE,
    )
