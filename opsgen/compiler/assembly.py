"""x86 assembly as data: what registers a kernel uses, where its loops are, and what is spilled in them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

LIBM = frozenset(
    name + suffix
    for name in (
        "acos", "asin", "atan", "atan2", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor",
        "fma", "fmod", "log", "log10", "log1p", "log2", "nearbyint", "pow", "rint", "round", "sin", "sincos", "sinh", "sqrt",
        "tan", "tanh", "trunc",
    )
    for suffix in ("", "f")
)  # fmt: skip

_LABEL = re.compile(r"^([.\w$]+):")
_REGISTER = re.compile(r"%([xyz])mm\d+")
_STACK = re.compile(r"-?(?:0x[\da-f]+|\d+)?\(%r[sb]p\)")
_JUMP = re.compile(r"^j\w+\s+(\.?[\w$]+)")
_CALL = re.compile(r"^(?:callq?|jmp)\s+([A-Za-z_][\w$]*)@PLT")
_FMA = re.compile(r"^vfn?m(?:add|sub|addsub|subadd)\d*")


@dataclass
class Loop:
    """A loop that has no other inside: its first label, and what its instructions are."""

    label: str
    instructions: int
    fma: int
    registers: dict[str, int]
    stack_stores: int
    stack_loads: int
    calls: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class Function:
    """The lines of one function, without directives: labels and instructions."""

    name: str
    lines: list[str]


def clean(text: str) -> str:
    """Assembly without directives, debug sections and labels that nothing refers to."""
    lines: list[str] = []
    inside = True
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].rstrip()
        stripped = line.strip()
        if stripped.startswith((".section", ".text", ".data")):
            inside = stripped.startswith(".text") or ".text" in stripped
        if not inside or not stripped or (stripped.startswith(".") and not _LABEL.match(stripped)):
            continue
        if re.match(r"\.L(?:tmp|func_|cfi|debug)", stripped):
            continue
        lines.append(line)
    body = "\n".join(lines)
    used = set(re.findall(r"[.\w$]+", "\n".join(line for line in lines if not _LABEL.match(line))))
    kept = [ln for ln in lines if not (m := _LABEL.match(ln)) or not m[1].startswith(".L") or m[1] in used]
    return "\n".join(kept) + "\n" if body else ""


def functions(text: str) -> list[Function]:
    """The functions of cleaned assembly."""
    found: list[Function] = []
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label and not label[1].startswith("."):
            found.append(Function(label[1], []))
        elif found:
            found[-1].lines.append(line.strip())
    return found


def innermost_loops(function: Function) -> list[Loop]:
    """Loops without a loop inside: from a label to the last jump back to it."""
    labels: dict[str, int] = {}
    ends: dict[str, int] = {}
    for i, line in enumerate(function.lines):
        label, jump = _LABEL.match(line), _JUMP.match(line)
        if label:
            labels[label[1]] = i
        elif jump and jump[1] in labels:
            ends[jump[1]] = i
    spans = sorted((labels[name], end, name) for name, end in ends.items())
    loops: list[Loop] = []
    for start, end, name in spans:
        if any(start <= s and e <= end and (s, e) != (start, end) for s, e, _ in spans):
            continue
        body = [ln for ln in function.lines[start : end + 1] if not _LABEL.match(ln)]
        loops.append(Loop(name, len(body), _fma(body), _registers(body), *_stack(body), _calls(body)))
    return loops


def summary(text: str) -> dict[str, Any]:
    """What a kernel's cleaned assembly is made of.

    Returns:
        instructions; registers (instructions that name an xmm, ymm, zmm register, by the widest that they name); fma;
        stack_stores and stack_loads (moves of vector registers to and from the stack, spills among them); libm (calls,
        by function); loops (innermost, with the busiest first: most FMAs, then most vector instructions).
    """
    parts = functions(text)
    body = [line for f in parts for line in f.lines if not _LABEL.match(line)]
    stores, loads = _stack(body)
    calls = Counter(_calls(body))
    loops = [loop for f in parts for loop in innermost_loops(f)]
    loops.sort(key=lambda loop: (-loop.fma, -sum(loop.registers.values())))
    return {
        "instructions": len(body),
        "registers": _registers(body),
        "fma": _fma(body),
        "stack_stores": stores,
        "stack_loads": loads,
        "libm": {name: n for name, n in sorted(calls.items()) if name in LIBM},
        "loops": [loop.to_json() for loop in loops],
    }


def _fma(body: list[str]) -> int:
    return sum(1 for line in body if _FMA.match(line))


def _registers(body: list[str]) -> dict[str, int]:
    found = {"xmm": 0, "ymm": 0, "zmm": 0}
    for line in body:
        widths = _REGISTER.findall(line)
        if widths:
            found[max(widths) + "mm"] += 1
    return found


def _stack(body: list[str]) -> tuple[int, int]:
    """Vector moves to the stack, and instructions with a vector operand from it."""
    stores = loads = 0
    for line in body:
        if not _STACK.search(line) or not _REGISTER.search(line):
            continue
        if _STACK.search(line.rsplit(",", 1)[-1]):
            stores += 1
        else:
            loads += 1
    return stores, loads


def _calls(body: list[str]) -> list[str]:
    return [m[1] for line in body if (m := _CALL.match(line))]
