"""What is timed beside a kernel: the op's peers in torch, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .cases import Case
from .timing import Call

COMPILED = "torch.compile"


def calls(
    case: Case, arguments: Sequence[Mapping[str, Any]], torch: Any, compiled: bool
) -> tuple[dict[str, list[Call]], list[str]]:
    """Each peer's call with each of several sets of arguments by name; and why one is left out.

    Args:
        compiled: the peer called "torch" through torch.compile too, for these very sizes. Seconds each.
    """
    found: dict[str, list[Call]] = {}
    why: list[str] = []
    if torch is None or case.definition is None:
        return found, why
    functions = dict(case.definition.peers)
    if compiled and "torch" in functions:
        torch.compiler.reset()  # what was compiled for other sizes would count against a limit of torch's
        functions[COMPILED] = torch.compile(functions["torch"], dynamic=False)
    for name, function in functions.items():
        reason = _refusal(function, arguments[0])
        if reason is None:
            found[name] = [_call(function, given) for given in arguments]
        elif reason:
            why.append(f"{name}: {reason}")
    return found, why


def _refusal(function: Callable[..., Any], given: Mapping[str, Any]) -> str | None:
    """Why a peer does not take a call; None if it does, empty if it says so itself."""
    try:
        return "" if function(**given) is NotImplemented else None
    except Exception as refused:  # torch raises classes of its own, and its compiler others
        return f"{type(refused).__name__}: {str(refused).strip().splitlines()[0][:200] if str(refused).strip() else ''}"


def _call(function: Callable[..., Any], given: Mapping[str, Any]) -> Call:
    return lambda: function(**given)
