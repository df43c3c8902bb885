"""Ops that scan and scatter in every way, and calls of them, for the tests of all targets."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import opsgen as og
from tests import arrays


@og.op
def rows(x: og.Tensor["...", "n"]) -> og.Tensor:
    """Two scans in one group, with maps before, between and after."""
    total = og.cumsum(x, over="n")
    before = og.cumsum(x * x, over="n", exclusive=True)
    return og.results(total=total, spread=before * 0.5 - x, both=og.tanh(total) + before)


@og.op
def backwards(x: og.Tensor["...", "n"]) -> og.Tensor:
    return og.results(
        high=og.cummax(x, over="n", reverse=True),
        low=og.cummin(x, over="n", reverse=True, exclusive=True),
        total=og.cumsum(x, over="n", reverse=True, exclusive=True),
        product=og.cumprod(x * 0.01 + 1.0, over="n", reverse=True),
    )


@og.op
def columns(x: og.Tensor["n", "m"]) -> og.Tensor:
    return og.cumsum(x, over="n")


@og.op
def middle(x: og.Tensor["a", "n", "b"], w: og.Tensor["b"]) -> og.Tensor:
    return og.results(
        total=og.cumsum(x * w, over="n", exclusive=True, reverse=True) + x, high=og.cummax(x, over="n", reverse=True)
    )


@og.op
def integers(x: og.Tensor["r", "n", og.int32]) -> og.Tensor:
    return og.results(
        total=og.cumsum(x, over="n"), product=og.cumprod(x % 3 - 1, over="n"), high=og.cummax(x, over="n")
    )


@og.op
def after_a_norm(x: og.Tensor["r", "n"]) -> og.Tensor:
    """A scan of what a reduction makes, and a reduction and a scan of what a scan makes."""
    p = og.cumsum(og.softmax(x, over="n"), over="n")
    return og.results(p=p, q=og.cumsum(p, over="n"), most=og.max(p, over="n"), shifted=p.at(n=og.index("n") // 2))


@og.op
def updated(x: og.Mut["r", "n"]) -> og.Tensor:
    return og.results(x=og.cumsum(x, over="n") + x)


@og.op
def spread(x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], t: og.Tensor["v", "m"]) -> og.Tensor:
    return og.results(
        total=og.scatter_add(x, i, over="n", into="v") * 0.5 + t,
        high=og.scatter_max(x, i, over="n", into="v"),
        count=og.scatter_add(1, i, over="n", into="v"),
        weight=og.scatter_add(1.0, i, over="n", into="v"),
    )


@og.op
def masked(
    x: og.Tensor["b", "n", "s"],
    i: og.Tensor["b", "n", "s", og.int32],
    keep: og.Tensor["b", "n", og.bool_],
    more: og.Tensor["n", "m", og.bool_],
    w: og.Tensor["n", "m"],
    t: og.Tensor["v"],
) -> og.Tensor:
    """Written out: batches, two source dims, conditions with the position and with dims of their own."""
    here = (i == og.index("v")) & keep
    return og.sum(og.where(here, og.where(more, x * w, 0), 0), over=("n", "s")) + t


@og.op
def two_positions(
    x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64], j: og.Tensor["n", og.int64], like: og.Tensor["p", "q"]
) -> og.Tensor:
    """Two destination dims; and a reduced dim that positions do not have, with the branches the other way around."""
    here = (i == og.index("p")) & (og.index("q") == j)
    inf = float("inf")
    return og.results(
        total=og.sum(og.where(here, x, 0), over="n"),
        least=og.min(og.where(i != og.index("p"), inf, og.where(x > 0, x, inf)), over=("n", "m")),
    )


@og.op
def cache(table: og.Mut["v", "m"], x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64]) -> og.Tensor:
    """An update in place by what is read of it elsewhere."""
    return og.results(table=table + og.scatter_add(x * table.at(v=i), i, over="n", into="v"))


SCANS = [rows, backwards, columns, middle, integers, after_a_norm]
SCATTERS = [spread, masked, two_positions]
UPDATES = [updated, cache]

LENGTHS = (0, 1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 257, 1021)


def scan_arguments(name: str, lines: int, n: int, dtype: str, seed: int = 0) -> dict[str, Any]:
    """``lines`` rows or columns of length n."""
    rng = np.random.default_rng([seed, lines, n])

    def r(*shape: int) -> Any:
        return arrays.values(rng, shape, dtype)

    if name == "columns":
        return {"x": r(n, lines)}
    if name == "middle":
        outer = 2 if lines % 2 == 0 else 1
        return {"x": r(outer, n, lines // outer), "w": r(lines // outer)}
    if name == "integers":
        return {"x": rng.integers(-9, 10, (lines, n)).astype(np.int32)}
    return {"x": r(lines, n)}


def scatter_arguments(name: str, n: int, m: int, v: int, dtype: str, seed: int = 0) -> dict[str, Any]:
    """n sources with m columns, for v destinations; some go nowhere."""
    rng = np.random.default_rng([seed, n, m, v])

    def r(*shape: int) -> Any:
        return arrays.values(rng, shape, dtype)

    if name == "spread":
        return {"x": r(n, m), "i": rng.integers(-1, v + 1, n), "t": r(v, m)}
    if name == "two_positions":
        return {"x": r(n, m), "i": rng.integers(-1, 4, n), "j": rng.integers(-1, v + 1, n), "like": r(3, v)}
    n = n // 4
    return {
        "x": r(2, n, 3), "i": rng.integers(-1, v + 1, (2, n, 3)).astype(np.int32), "keep": rng.random((2, n)) > 0.3,
        "more": rng.random((n, m)) > 0.3, "w": r(n, m), "t": r(v),
    }  # fmt: skip


def scan_calls(name: str, dtype: str, long: tuple[tuple[int, int], ...] = ()) -> Iterator[dict[str, Any]]:
    for k, n in enumerate(LENGTHS):
        yield scan_arguments(name, (1, 2, 3, 5, 40, 66, 0)[k % 7], n, dtype)
    for lines, n in long:
        yield scan_arguments(name, lines, n, dtype)


SCATTER_SIZES = (
    (0, 5, 3), (5, 0, 3), (40, 3, 0), (1, 1, 1), (3, 17, 5), (200, 130, 33), (300, 31, 2), (301, 33, 1), (100, 2050, 9),
    (700, 20, 1), (1300, 70, 2), (7, 9, 600),
)  # fmt: skip
"""Sources, columns, destinations: none, few columns and many, many sources of one destination."""
