"""Plans: which schedule runs each group of a problem, the kernels in order, and the memory between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opsgen.targets.names import Target

from ..analysis.groups import Group, Partition
from ..analysis.partition import partition
from ..errors import InternalError, error
from ..lowering.kernel import Launch, Workspace
from .problem import Problem

if TYPE_CHECKING:
    from opsgen.schedules.common.schedule import Schedule


@dataclass(frozen=True)
class Step:
    """One group: its schedule, the configuration, and the kernels."""

    group: Group
    schedule: Schedule
    config: dict[str, int]
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that a call of one problem on one target does."""

    problem: Problem
    target: Target
    symbol: str
    partition: Partition
    steps: tuple[Step, ...]
    spaces: tuple[Workspace, ...]

    def slots(self) -> list[list[Workspace]]:
        """Workspaces that share memory: each is last used before the next is first used."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for i, launch in enumerate(self.launches):
            for p in launch.params:
                if p.kind == "workspace":
                    first.setdefault(p.name, i)
                    last[p.name] = i
        slots: list[list[Workspace]] = []
        for space in sorted(self.spaces, key=lambda s: first[s.name]):
            for slot in slots:
                if last[slot[-1].name] < first[space.name]:
                    slot.append(space)
                    break
            else:
                slots.append([space])
        return slots

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(launch for step in self.steps for launch in step.launches)


def schedules_for(target: Target) -> tuple[Schedule, ...]:
    """The schedules of a kind of target."""
    if target.kind == "x86":
        from opsgen.schedules.x86 import schedules

        return schedules()
    raise InternalError(f"no schedules for {target.kind}")


def choose(problem: Problem, group: Group, target: Target) -> Schedule:
    """The one schedule that serves a group.

    Raises:
        CompileError: E3004, none does.
        InternalError: several do.
    """
    found = [s for s in schedules_for(target) if s.pattern == group.pattern and s.serves(group, target.arch)]
    if not found:
        raise error(
            "E3004", op=problem.op.name, target=target, pattern=group.pattern, group=group.index, found="no region fits",
            fix="Cast to a floating type, or compile for another target.",
        )  # fmt: skip
    if len(found) > 1:
        raise InternalError(f"schedules {[s.name for s in found]} all claim a {group.pattern} group")
    return found[0]


def make_plan(problem: Problem, target: Target, configs: dict[str, dict[str, int]] | None = None) -> Plan:
    """The plan of a problem; ``configs`` replaces a schedule's default configuration by its name."""
    from opsgen.schedules.common.schedule import Context

    parts = partition(problem.graph)
    symbol = f"{problem.op.name}_{problem.hash()[:10]}_{target.arch}"
    spaces: dict[str, Workspace] = {}
    steps: list[Step] = []
    for group in parts.groups:
        schedule = choose(problem, group, target)
        config: dict[str, Any] = {**schedule.default(group, target.arch), **(configs or {}).get(schedule.name, {})}
        context = Context(parts, group, f"{symbol}_g{group.index}", target.arch, spaces)
        steps.append(Step(group, schedule, config, tuple(schedule.build(context, config))))
    return Plan(problem, target, symbol, parts, tuple(steps), tuple(spaces.values()))
