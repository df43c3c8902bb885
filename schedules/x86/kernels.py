"""A kernel of a group on x86: with the arch's own elementary functions."""

from __future__ import annotations

from opsgen.lowering.kernel import Kernel
from opsgen.schedules.common.schedule import Context

from . import elementary


def new_kernel(context: Context, part: str) -> Kernel:
    """The kernel that does one ``part`` of what the context's group needs."""
    name = f"{context.prefix}_{part}"
    return Kernel(name, context.partition, context.group, context.spaces, elementary.table(context.arch))
