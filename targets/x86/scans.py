"""Scans of a register on x86, as functions in LLVM IR: each lane gets what the lanes before it (or behind it) hold.

``prefix_of`` and ``suffix_of`` scan by shifts of 1, 2, 4, … lanes. ``prefix_before`` and ``suffix_before`` shift by one
lane, so that each lane has what comes before it.
"""

from __future__ import annotations

_TYPES = {"float32": "float", "float64": "double", "int64": "i64", "int32": "i32"}
_LENGTHS = (8, 16)
_NOTHING = {
    "float32": {"sum": "0.0", "prod": "1.0", "max": "0xFFF0000000000000", "min": "0x7FF0000000000000"},
    "float64": {"sum": "0.0", "prod": "1.0", "max": "0xFFF0000000000000", "min": "0x7FF0000000000000"},
    "int64": {"sum": "0", "prod": "1", "max": str(-(2**63)), "min": str(2**63 - 1)},
    "int32": {"sum": "0", "prod": "1", "max": str(-(2**31)), "min": str(2**31 - 1)},
}


def _combine(op: str, dtype: str, kind: str, lanes: int, number: int, a: str, b: str) -> tuple[str, list[str]]:
    """The lines that take two vectors together, and where the result is."""
    to, floating = f"%c{number}", dtype.startswith("float")
    if op in ("sum", "prod"):
        name = {"sum": "add", "prod": "mul"}[op]
        return to, [f"  {to} = {'f' if floating else ''}{name} {kind} {a}, {b}"]
    if floating:
        name = {"max": "maximum", "min": "minimum"}[op]
        return to, [f"  {to} = call {kind} @opsgen_{name}_{dtype}x{lanes}({kind} {a}, {kind} {b})"]
    test = {"max": "sgt", "min": "slt"}[op]
    return to, [
        f"  %t{number} = icmp {test} {kind} {a}, {b}",
        f"  {to} = select <{lanes} x i1> %t{number}, {kind} {a}, {kind} {b}",
    ]


def _shift(kind: str, each: str, nothing: str, lanes: int, by: int, reverse: bool, to: str, x: str) -> str:
    """Lane i gets lane i - by (in reverse i + by); lanes that there are none for get nothing."""
    sources = [i + by if reverse else i - by for i in range(lanes)]
    mask = ", ".join(f"i32 {s if 0 <= s < lanes else lanes}" for s in sources)
    filled = "<" + ", ".join([f"{each} {nothing}"] * lanes) + ">"
    return f"  {to} = shufflevector {kind} {x}, {kind} {filled}, <{lanes} x i32> <{mask}>"


def _function(op: str, dtype: str, lanes: int, reverse: bool) -> str:
    each, nothing = _TYPES[dtype], _NOTHING[dtype][op]
    kind, way = f"<{lanes} x {each}>", "suffix" if reverse else "prefix"
    lines = [f"define {kind} @opsgen_{way}_of_{op}_{dtype}x{lanes}({kind} %x) {{"]
    found, by, number = "%x", 1, 0
    while by < lanes:
        lines.append(_shift(kind, each, nothing, lanes, by, reverse, f"%s{number}", found))
        found, more = _combine(op, dtype, kind, lanes, number, f"%s{number}", found)
        lines += more
        by, number = 2 * by, number + 1
    lines += [f"  ret {kind} {found}", "}"]
    lines.append(f"define {kind} @opsgen_{way}_before_{op}_{dtype}x{lanes}({kind} %x) {{")
    lines += [_shift(kind, each, nothing, lanes, 1, reverse, "%r", "%x"), f"  ret {kind} %r", "}"]
    return "\n".join(lines)


def functions() -> str:
    """All of them; those of floats call what gives the larger of two."""
    return "\n".join(
        _function(op, dtype, lanes, reverse)
        for dtype in _TYPES
        for op in ("sum", "prod", "max", "min")
        for lanes in _LENGTHS
        for reverse in (False, True)
    )
