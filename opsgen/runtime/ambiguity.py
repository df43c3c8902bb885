"""Whether two kernels of a library claim the same calls, found when it is loaded rather than when such a call comes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, islice, product
from math import prod

from opsgen.errors import error
from opsgen.runtime.expressions import Expression
from opsgen.runtime.selection import Candidate

_SIZES = range(65)
_MOST_POINTS = 4096  # sampled for one pair; a library loads in milliseconds


def refuse_ambiguity(candidates: Iterable[Candidate]) -> None:
    """Check kernels that agree in op, dtypes, attributes, absent tensors, kind, arch and bound dims.

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
        groups[kernel.op, item.kind, item.dtypes, attributes, absent, item.level, bound].append(item)
    for group in groups.values():
        for one, other in combinations(group, 2):
            if _overlap(one, other):
                first, second = one.kernel.symbol, other.kernel.symbol
                raise error("E4015", path=other.path, first=first, second=second, op=other.kernel.op)


def _overlap(one: Candidate, other: Candidate) -> bool:
    if set(one.kernel.region) == set(other.kernel.region):
        return True
    conditions = [*one.region, *other.region]
    free = [name for name in dict.fromkeys(n for c in conditions for n in c.names) if name not in one.bound]
    return any(
        all(condition.holds(one.bound | dict(zip(free, sizes))) for condition in conditions)
        for sizes in _points(free, conditions)
    )


def _points(names: Sequence[str], conditions: Sequence[Expression]) -> Iterable[tuple[int, ...]]:
    """Sizes for ``names``: every combination where there are few, else a sample that is the same every time."""
    near = {value + step for c in conditions for value in c.constants for step in (-1, 0, 1) if value + step >= 0}
    sizes = sorted({*_SIZES, *near})
    if len(sizes) ** len(names) <= _MOST_POINTS:
        return product(sizes, repeat=len(names))
    few = sorted({0, 1, 2, 3, 64, *near})
    chosen = islice(product(few, repeat=len(names)), _MOST_POINTS // 2)
    draw = random.Random(0)
    count = min(_MOST_POINTS // 2, prod([len(sizes)] * len(names)))
    return [*chosen, *(tuple(draw.choice(sizes) for _ in names) for _ in range(count))]
