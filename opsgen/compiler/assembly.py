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
        "fma", "fmod", "log", "log10", "log1p", "log2", "nearbyint", "pow", "rint", "round", "sin", "sincos", "sinh",
        "sqrt", "tan", "tanh", "trunc",
    )
    for suffix in ("", "f")
)  # fmt: skip

_LABEL = re.compile(r"^([.\w$]+):")
_REGISTER = re.compile(r"%([xyz])mm\d+")
_FRAME = re.compile(r"^movq\s+%rsp, %(rbp|rbx)$")
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

    def instructions(self) -> list[str]:
        return [line for line in self.lines if not _LABEL.match(line)]

    def stack(self) -> re.Pattern[str]:
        """What an operand on the stack looks like. rbp is a register like others unless it is made the frame's."""
        frames = [m[1] for line in self.lines if (m := _FRAME.match(re.sub(r"\s+", " ", line)))]
        return re.compile(rf"-?\d*\(%(?:{'|'.join(['rsp', *frames])})\)")


def clean(text: str) -> str:
    """Assembly without directives, debug sections and labels that nothing refers to."""
    lines: list[str] = []
    inside = True
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].rstrip()
        stripped = line.strip()
        if stripped.startswith((".section", ".text", ".data")):
            # TVM puts conversions of halves, which every object carries, in a section of their own.
            inside = ".text" in stripped and ".text.tvm" not in stripped
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
        moves = _moves(body, function.stack())
        loops.append(Loop(name, len(body), _fma(body), _registers(body), *moves, _calls(body)))
    return loops


def summary(text: str) -> dict[str, Any]:
    """What a kernel's cleaned assembly is made of.

    Returns:
        instructions; registers (instructions that name an xmm, ymm, zmm register, by the widest that they name); fma;
        stack_stores and stack_loads (moves of vector registers to and from the stack, spills among them); libm (calls,
        by function); loops (innermost, with the busiest first: most FMAs, then most vector instructions).
    """
    parts = functions(text)
    body = [line for f in parts for line in f.instructions()]
    moves = [_moves(f.instructions(), f.stack()) for f in parts]
    calls = Counter(_calls(body))
    loops = [loop for f in parts for loop in innermost_loops(f)]
    loops.sort(key=lambda loop: (-loop.fma, -sum(loop.registers.values())))
    return {
        "instructions": len(body),
        "registers": _registers(body),
        "fma": _fma(body),
        "stack_stores": sum(stores for stores, _ in moves),
        "stack_loads": sum(loads for _, loads in moves),
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


def _moves(body: list[str], stack: re.Pattern[str]) -> tuple[int, int]:
    """Vector moves to the stack, and instructions with a vector operand from it."""
    stores = loads = 0
    for line in body:
        if not stack.search(line) or not _REGISTER.search(line):
            continue
        if stack.search(line.rsplit(",", 1)[-1]):
            stores += 1
        else:
            loads += 1
    return stores, loads


def _calls(body: list[str]) -> list[str]:
    return [m[1] for line in body if (m := _CALL.match(line))]
