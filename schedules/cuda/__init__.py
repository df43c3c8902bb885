"""Schedules for NVIDIA GPUs: one file a pattern."""

from opsgen.schedules.common.schedule import Schedule


def schedules() -> tuple[Schedule, ...]:
    """All schedules of the target. Imports TVM."""
    from . import (
        contraction,
        dp4a,
        grouped_contraction,
        grouped_wgmma,
        map,
        mma,
        row_reduction,
        scan,
        scatter,
        update,
        wgmma,
    )

    return (
        map.SCHEDULE,
        row_reduction.SCHEDULE,
        contraction.SCHEDULE,
        dp4a.SCHEDULE,
        mma.SCHEDULE,
        wgmma.SCHEDULE,
        grouped_contraction.SCHEDULE,
        grouped_wgmma.SCHEDULE,
        scan.SCHEDULE,
        scatter.SCHEDULE,
        update.SCHEDULE,
    )
