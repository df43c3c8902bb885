"""Whether two kernels of a library claim the same calls, found when it is loaded rather than when such a call comes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, combinations, product

from opsgen.errors import error
from opsgen.runtime.expressions import Expression
from opsgen.runtime.selection import Candidate

Point = tuple[int, ...]

_SIZES = range(65)
_FEW_SIZES = (0, 1, 2, 3, 64)
_MOST_POINTS = 4096  # sampled for one pair
_ALL_POINTS = 20_000  # sampled for one group: a library of 30 kernels loads in milliseconds
_LEAST_POINTS = 64


def refuse_ambiguity(candidates: Iterable[Candidate]) -> None:
    """Check kernels that agree in op, dtypes, packed inputs, attributes, absent tensors, kind, arch and bound dims.

    Their regions must exclude each other at every sampled point: dims from 0 to 64, and around each constant of the
    regions. The check is not a proof; a call that two kernels still claim is refused when it is made.

    Raises:
        CallError: E4015 names two kernels.
    """
    groups: dict[object, list[Candidate]] = defaultdict(list)
    for item in candidates:
        kernel = item.kernel
        attributes = tuple(sorted((name, repr(value)) for name, value in kernel.attributes.items()))
        bound = tuple(sorted(item.bound.items()))
        absent = tuple(sorted(kernel.absent))
        packed = tuple(spec.packed is not None for spec in kernel.inputs)
        groups[kernel.op, item.kind, item.dtypes, packed, attributes, absent, item.level, bound].append(item)
    for group in groups.values():
        if len(group) > 1:
            _refuse_overlap(group)


def _refuse_overlap(group: Sequence[Candidate]) -> None:
    """E4015 if two regions of the group hold at one of the sampled points."""
    names = sorted({name for item in group for condition in item.region for name in condition.names})
    bound = group[0].bound
    whole = [Expression(" and ".join(f"({text})" for text in item.kernel.region) or "1 == 1", names) for item in group]
    budget = min(_MOST_POINTS, max(_LEAST_POINTS, _ALL_POINTS // (len(group) * (len(group) - 1) // 2)))
    anywhere = _draw([_sizes(name, bound, _SIZES, whole) for name in names], budget // 2)
    for (one, first), (other, second) in combinations(zip(group, whole), 2):
        every = [_sizes(name, bound, _SIZES, (first, second)) for name in names]
        if _count(every) <= budget:
            points: Iterable[Point] = product(*every)
        else:
            edges = [_sizes(name, bound, _FEW_SIZES, (first, second)) for name in names]
            points = chain(product(*edges) if _count(edges) <= budget // 2 else _draw(edges, budget // 2), anywhere)
        if any(_holds(first, point) and _holds(second, point) for point in points):
            symbols = {"first": one.kernel.symbol, "second": other.kernel.symbol}
            raise error("E4015", path=other.path, op=other.kernel.op, **symbols)


def _sizes(name: str, bound: dict[str, int], plain: Iterable[int], conditions: Iterable[Expression]) -> list[int]:
    """The sizes of a dim to try: the one that it is bound to, or ``plain`` and those around each constant."""
    if name in bound:
        return [bound[name]]
    near = {value + step for condition in conditions for value in condition.constants for step in (-1, 0, 1)}
    return sorted({*plain, *(size for size in near if size >= 0)})


def _count(sizes: Sequence[Sequence[int]]) -> int:
    count = 1
    for choices in sizes:
        count *= len(choices)
    return count


def _draw(sizes: Sequence[Sequence[int]], count: int) -> list[Point]:
    """Points with each dim's size drawn from its choices; the same every time."""
    draw = random.Random(0)
    return [tuple(draw.choice(choices) for choices in sizes) for _ in range(count)]


def _holds(region: Expression, point: Point) -> bool:
    try:
        return bool(region(*point))
    except ZeroDivisionError:
        return False
