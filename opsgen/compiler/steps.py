"""What the builders of all kinds of target share: how they report, and what they give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class Steps(Protocol):
    """Told what is being done: once a step, and ``again`` of a step that goes on."""

    def __call__(self, what: str, again: bool = False) -> None: ...


@dataclass(frozen=True)
class Built:
    """A shared object, the versions of the tools that made it, and the least version of a driver that runs it."""

    elf: bytes
    tools: dict[str, str] = field(default_factory=dict)
    driver: str | None = None
