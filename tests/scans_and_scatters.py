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


@og.op
def rows_set(cache: og.Mut["v", "h", "m"], x: og.Tensor["n", "h", "m"], i: og.Tensor["n", og.integer]) -> og.Tensor:
    return og.results(cache=og.scatter_set(cache, x, i, over="n", into="v"))


@og.op
def set_and_read(
    cache: og.Mut["b", "v", "m"], x: og.Tensor["b", "n", "m"], i: og.Tensor["b", "n", og.int64]
) -> og.Tensor:
    """In batches, of computed values; the new cache is read where it lies."""
    after = og.scatter_set(cache, og.tanh(x) * 2.0, i, over="n", into="v")
    return og.results(cache=after, total=og.sum(after, over="v"))


@og.op
def number_set(cache: og.Mut["v", "m", "w"], i: og.Tensor["n", og.int64]) -> og.Tensor:
    """A number at innermost positions."""
    return og.results(cache=og.scatter_set(cache, -1.0, i, over="n", into="w"))


@og.op
def two_set(
    k: og.Mut["p", "q", "m"],
    v: og.Mut["m", "p"],
    x: og.Tensor["n", "m"],
    i: og.Tensor["n", og.int64],
    j: og.Tensor["n", og.int64],
    keep: og.Tensor["n", og.bool_],
) -> og.Tensor:
    """Two destination dims and a condition, written out; a cache that reads what another one was; a transposed one."""
    here = (i == og.index("p")) & (j == og.index("q")) & keep
    last = og.max(og.where(here, og.index("n"), -(2**63)), over="n")
    first = og.sum(k.at(p=og.index("n") * 0), over="q")
    return og.results(
        k=og.where(last >= 0, x.at(n=last), k),
        v=og.scatter_set(v, x + first, i, over="n", into="p"),
        before=k * 1.0,
    )


@og.op
def set_from_itself(cache: og.Mut["v", "m"], i: og.Tensor["n", og.int64]) -> og.Tensor:
    """Rows that come from the cache: none must be overwritten before it is read."""
    return og.results(cache=og.scatter_set(cache, cache.at(v=og.index("n")) + 1.0, i, over="n", into="v"))


@og.op
def old_and_new(cache: og.Mut["v", "m"], x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64]) -> og.Tensor:
    """The old cache is read where the new one is known."""
    after = og.scatter_set(cache, x, i, over="n", into="v")
    return og.results(cache=after, both=cache * og.sum(after, over="v"))


@og.op
def set_in_a_copy(cache: og.Tensor["v", "m"], x: og.Tensor["n", "m"], i: og.Tensor["n", og.int64]) -> og.Tensor:
    return og.scatter_set(cache, x, i, over="n", into="v")


SCANS = [rows, backwards, columns, middle, integers, after_a_norm]
SCATTERS = [spread, masked, two_positions]
UPDATES = [updated, cache]
SETS = [rows_set, set_and_read, number_set, two_set, set_from_itself, old_and_new, set_in_a_copy]

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


SET_SIZES = ((1, 1, 1), (3, 17, 5), (7, 32, 30), (64, 24, 40), (65, 24, 40), (200, 33, 9), (5, 0, 3), (5, 3, 0))
"""Sources, columns, positions: few sources and many, rows that are whole strips and others."""


def set_arguments(op: og.Op, n: int, m: int, v: int, dtype: str, seed: int = 0) -> dict[str, Any]:
    """n sources with m columns, for v positions; some go nowhere."""
    rng = np.random.default_rng([seed, n, m, v])
    v = max(v, 1) if op.name in ("two_set", "set_from_itself") else v  # they read the cache
    sizes = {"n": n, "m": m, "v": v, "b": 2, "h": 2, "p": v, "q": 3, "w": v}
    given: dict[str, Any] = {}
    for p in op.parameters:
        assert p.spec is not None
        shape = tuple(sizes[d] for d in p.spec.named)
        if p.name == "keep":
            given[p.name] = rng.random(shape) > 0.3
        elif p.name in "ij":
            given[p.name] = rng.integers(-2, (3 if p.name == "j" else v) + 2, shape)
        else:
            given[p.name] = arrays.values(rng, shape, dtype)
    return given


def set_expected(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """What `SETS` give, one source after the other, in float64."""
    x = {k: np.array(a) if a.dtype.kind in "ib" else a.astype(np.float64) for k, a in given.items()}
    i, n = x["i"], x["i"].shape[-1]
    if name == "two_set":
        k, v, before = x["k"].copy(), x["v"].copy(), x["k"]
        first = before[0].sum(axis=0) if len(before) else 0
        for t in range(n):
            if 0 <= i[t] < len(k):
                v[:, i[t]] = x["x"][t] + first
                if 0 <= x["j"][t] < 3 and x["keep"][t]:
                    k[i[t], x["j"][t]] = x["x"][t]
        return {"k": k, "v": v, "before": before}
    old, new = x["cache"], x["cache"].copy()
    length = new.shape[{"set_and_read": 1, "number_set": 2}.get(name, 0)]
    for b, t in np.ndindex(i.shape) if name == "set_and_read" else ((0, t) for t in range(n)):
        at = i[b, t] if name == "set_and_read" else i[t]
        if not 0 <= at < length:
            continue
        if name == "set_and_read":
            new[b, at] = np.tanh(x["x"][b, t]) * 2
        elif name == "number_set":
            new[:, :, at] = -1
        else:
            new[at] = old[min(t, length - 1)] + 1 if name == "set_from_itself" else x["x"][t]
    if name == "set_and_read":
        return {"cache": new, "total": new.sum(1)}
    if name == "old_and_new":
        return {"cache": new, "both": new.sum(0) * old}
    return {"out" if name == "set_in_a_copy" else "cache": new}


def check_set(lib: Any, op: og.Op, given: dict[str, Any], tolerance: float) -> None:
    """That a library does what `set_expected` says, to the arrays that it is given."""
    wanted = set_expected(op.name, given)
    got = lib[op.name](**given)
    others = [k for k in wanted if all(k != p.name for p in op.parameters)]
    found = dict(zip(others, got if isinstance(got, tuple) else (got,), strict=len(others) > 0))
    for k, y in wanted.items():
        close = np.asarray(found.get(k, given.get(k)), np.float64)
        scale = tolerance * (1 + np.abs(y).max(initial=0)) * (1 + given["i"].shape[-1] * (k in ("total", "both")))
        np.testing.assert_allclose(close, y, rtol=0, atol=scale, err_msg=f"{op.name}.{k}")
