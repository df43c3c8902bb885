"""What scans are made of on every target: what is carried along, and which way vectors run."""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis.groups import Group
from opsgen.dsl.tensor import Scan, walk
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.statements import Expr, constant
from opsgen.lowering.to_tir import compute_name

LOWEST = {"int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63), "uint8": 0}
HIGHEST = {"int8": 2**7 - 1, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1, "uint8": 2**8 - 1}


def value_type(scan: Scan) -> str:
    """The type in which neighbours are taken together."""
    return compute_name(scan.dtype)


def carry_type(scan: Scan) -> str:
    """The type of what is carried along: float64 for sums and products of float32, whose roundings would add up."""
    name = value_type(scan)
    return "float64" if name == "float32" and scan.op in ("sum", "prod") else name


def nothing(scan: Scan, dtype: str) -> Expr:
    """What a scan holds before the first element."""
    if scan.op in ("sum", "prod"):
        return constant(0 if scan.op == "sum" else 1, dtype)
    if dtype.startswith("float"):
        return constant(float("-inf") if scan.op == "max" else float("inf"), dtype)
    return constant((LOWEST if scan.op == "max" else HIGHEST)[dtype], dtype)


def as_type(x: Expr, dtype: str) -> Expr:
    return x if x.ty.dtype == dtype else tirx.Cast(dtype, x)


def along_columns(kernel: Kernel, group: Group) -> str | None:
    """The dim along which most of what a scan group reads and writes is contiguous, if it is not the scan's own."""
    votes: dict[str, int] = {}
    (over,) = group.over

    def vote(dims: tuple[str, ...]) -> None:
        if over in dims:
            votes[dims[-1]] = votes.get(dims[-1], 0) + 1

    seen: set[int] = set()

    def visit(node: object) -> None:
        memory = kernel.memory(node)  # type: ignore[arg-type]
        if memory is not None and id(memory) not in seen:
            seen.add(id(memory))
            vote(memory.dims)

    walk(tuple(group.stored), visit)
    for node in group.stored:
        for place in kernel.destinations(node):
            vote(place.dims)
    # A dim that an operand has under another name than the group is none of the group's.
    best = max((d for d in votes if d != over and d in group.space), key=lambda d: votes[d], default=None)
    return best if best is not None and votes[best] > votes.get(over, 0) else None
