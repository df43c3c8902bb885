"""Plans: which schedule runs each group of a problem, the kernels in order, and the memory between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opsgen.targets.names import Target

from ..analysis.groups import Group, Partition
from ..analysis.partition import partition
from ..errors import InternalError, error
from ..lowering.kernel import Launch, Workspace
from .problem import Problem

if TYPE_CHECKING:
    from opsgen.schedules.common.schedule import Context, Packing, Schedule

Configs = Mapping[str, Mapping[str, int]]


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
    packings: tuple[Packing, ...]
    """How each input that the caller gives packed is packed."""

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
    if target.kind == "cuda":
        from opsgen.schedules.cuda import schedules as cuda_schedules

        return cuda_schedules()
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
            "E3004",
            op=problem.op.name,
            target=target,
            pattern=group.pattern,
            group=group.index,
            found="no region fits",
            fix="Cast to a floating type, or compile for another target.",
        )
    if len(found) > 1:
        raise InternalError(f"schedules {[s.name for s in found]} all claim a {group.pattern} group")
    return found[0]


def make_plans(problem: Problem, target: Target, configs: Configs | None = None) -> list[Plan]:
    """The plan of a problem, and where it has weights that can be packed beforehand, the one that takes them packed."""
    plan = make_plan(problem, target, configs)
    names = frozenset(p.input for p in _packings(plan))
    return [plan, make_plan(problem, target, configs, names)] if names else [plan]


def make_plan(
    problem: Problem, target: Target, configs: Configs | None = None, packed: frozenset[str] = frozenset()
) -> Plan:
    """The plan of a problem; ``configs`` replaces parts of a schedule's default configuration, by its name."""
    parts = partition(problem.graph, chains=any(s.pattern == "online_chain" for s in schedules_for(target)))
    symbol = f"{problem.op.name}_{problem.hash()[:10]}_{target.arch}" + ("_packed" if packed else "")
    spaces: dict[str, Workspace] = {}
    steps: list[Step] = []
    for group in parts.groups:
        group.float32_products, group.float8_sums = problem.allowed.float32_products, problem.allowed.float8_sums
        schedule = choose(problem, group, target)
        config = _config(schedule, group, target, (configs or {}).get(schedule.name, {}))
        context = _context(parts, group, symbol, target, spaces, packed)
        steps.append(Step(group, schedule, config, tuple(schedule.build(context, config))))
    # A schedule asks for memory before it knows which of its kernels the bound dims leave.
    used = {p.name for step in steps for launch in step.launches for p in launch.params if p.kind == "workspace"}
    plan = Plan(problem, target, symbol, parts, tuple(steps), tuple(s for s in spaces.values() if s.name in used), ())
    return replace(plan, packings=_packings(plan)) if packed else plan


def _config(schedule: Schedule, group: Group, target: Target, wanted: Mapping[str, int]) -> dict[str, int]:
    """The default configuration with some knobs replaced.

    Raises:
        CompileError: E3013, the schedule has no such knob.
    """
    config = dict(schedule.default(group, target.arch))
    for knob, value in wanted.items():
        if knob not in config:
            raise error("E3013", schedule=schedule.name, found=knob, known=sorted(config))
        config[knob] = value
    return config


def _context(
    parts: Partition, group: Group, symbol: str, target: Target, spaces: dict[str, Workspace], packed: frozenset[str]
) -> Context:
    from opsgen.schedules.common.schedule import Context

    return Context(parts, group, f"{symbol}_g{group.index}", target.arch, spaces, packed)


def _packings(plan: Plan) -> tuple[Packing, ...]:
    """The packings that the plan's groups offer, one an input."""
    found: dict[str, Packing] = {}
    for step in plan.steps:
        context = _context(plan.partition, step.group, plan.symbol, plan.target, {}, frozenset())
        packing = step.schedule.packing(context, step.config)
        if packing is not None:
            found[packing.input] = packing
    return tuple(found.values())
