"""What the builders of all kinds of target share: how they report, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Steps = Callable[[str], None]
"""Called with what is being done, once a step."""


@dataclass(frozen=True)
class Built:
    """A shared object, the versions of the tools that made it, and the least version of a driver that runs it."""

    elf: bytes
    tools: dict[str, str] = field(default_factory=dict)
    driver: str | None = None
