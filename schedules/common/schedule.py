"""A schedule: how a pattern runs on a target. Each states the region that it serves, its knobs, and builds launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsgen.analysis.groups import Group, Partition
from opsgen.dsl.dtypes import DType
from opsgen.dsl.extent import Extent
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.kernel import Launch, Workspace

Config = Mapping[str, int]


@dataclass
class Context:
    """What a schedule gets to build from: the group, where kernels' names start, the plan's workspaces (added to), and
    the inputs that
    the caller gives packed."""

    partition: Partition
    group: Group
    prefix: str
    arch: str
    spaces: dict[str, Workspace] = field(default_factory=dict)
    packed: frozenset[str] = frozenset()

    def computed(self) -> tuple[Tensor, ...]:
        """The nodes that the group computes."""
        return tuple(self.partition.contents(self.group)[0])


@dataclass(frozen=True)
class Packing:
    """A layout in which a schedule can take an input: packed once by `launch`, it saves the work of every call.

    ``layout`` names it exactly: equal names mean equal bytes. ``elements`` of ``dtype`` follow the header.
    """

    input: str
    layout: str
    elements: Extent
    dtype: DType
    launch: Launch


@dataclass(frozen=True)
class Schedule:
    """``serves`` says whether a group on an arch lies in the region; ``default`` gives a configuration that needs no
    tuning.
    """

    name: str
    target: str
    pattern: str
    region: str
    knobs: Mapping[str, tuple[int, ...]]
    serves: Callable[[Group, str], bool]
    default: Callable[[Group, str], Config]
    build: Callable[[Context, Config], list[Launch]]
    packing: Callable[[Context, Config], Packing | None] = lambda context, config: None

    def describe(self) -> dict[str, Any]:
        """For listings."""
        return {
            "name": self.name,
            "target": self.target,
            "pattern": self.pattern,
            "region": self.region,
            "knobs": dict(self.knobs),
        }
