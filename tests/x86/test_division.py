"""Division by a value of the row: by a sum it may be two products, within 1.5 ulp (1.25 of a denormal quotient, so next
to the right one at most); by anything else it is rounded once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.lowering.error_bounds import bounded
from opsgen.runtime.host import host_levels

ARCHS = ("avx2", "avx512")
LIMIT = np.float64(2.0**128)


@og.op
def by_sum(x: og.Tensor["...", "n"], w: og.Tensor["...", "n"]):
    """The sum is found in the same pass over rows."""
    total = og.sum(w, over="n")
    return og.results(y=x / total, z=x / -total)


@og.op
def by_sum_of_another(x: og.Tensor["...", "n"], w: og.Tensor["...", "k"]):
    """The sum comes from memory."""
    return x / og.sum(w, over="k")


@og.op
def by_max(x: og.Tensor["...", "n"], w: og.Tensor["...", "n"]):
    return x / og.max(w, over="n")


@og.op
def by_weight(x: og.Tensor["rows_", "n"], w: og.Tensor["rows_"]):
    return x / w


@og.op
def by_whole(x: og.Tensor["...", "n"], w: og.Tensor["...", "n", og.int32]):
    """An integer sum: exact, and so is the division."""
    return x / og.cast(og.sum(w, over="n"), "float32")


@og.op
def by_rounded_sum(x: og.Tensor["...", "n"], w: og.Tensor["...", "n"]):
    """The divisor is exact."""
    return x / og.round(og.sum(w, over="n"))


@og.op
def product_by_sum(a: og.Tensor["m", "k"], b: og.Tensor["k", "n"], w: og.Tensor["m", "j"]):
    return og.dot(a, b, over="k") / og.sum(w, over="j")


@og.op
def product_by_column(a: og.Tensor["m", "k"], b: og.Tensor["k", "n"], w: og.Tensor["n", "j"]):
    return og.dot(a, b, over="k") / og.sum(w, over="j")


@og.op
def pooled(x: og.Tensor["batch", "length", "hidden"], mask: og.Tensor["batch", "length"]):
    """Vectors run along a dim that the divisor lacks, in a reduction over another one."""
    return og.sum(x * mask, over="length") / og.sum(mask, over="length")


OPS = [
    by_rounded_sum,
    by_sum,
    by_sum_of_another,
    by_max,
    by_weight,
    by_whole,
    product_by_sum,
    product_by_column,
    pooled,
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from opsgen.compiler.compile import build

    found = tmp_path_factory.mktemp("division") / "division.so"
    build(OPS, found, [f"x86/{arch}" for arch in ARCHS])
    return found


@pytest.fixture(scope="module", params=ARCHS)
def lib(request: pytest.FixtureRequest, path: Any) -> Iterator[Any]:
    if request.param not in host_levels():
        pytest.skip(f"this CPU has no {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSGEN_CPU_LEVEL", request.param)
        found = og.load(path)
    yield found


def of_every_size(count: int, seed: int) -> Any:
    """Numbers of every exponent and both signs, denormals, the neighbours of powers of two, and the special ones."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    powers = 2.0 ** np.arange(-149, 128)
    edges = np.concatenate([powers, powers * (1 - 2.0**-24), powers * (1 + 2.0**-23)]).astype(np.float32)
    named = [0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.17549435e-38, 3.4e38, 3.4028235e38, np.inf, -np.inf, np.nan, 1.0, 3.0]
    return np.concatenate([np.array(named, np.float32), edges, -edges[::5], anything])


DIVISORS = of_every_size(400, 1)
DIVIDENDS = of_every_size(600, 2)


def grid() -> tuple[Any, Any, Any]:
    """Rows of dividends, a divisor for each row, and the quotients in float64."""
    with np.errstate(all="ignore"):
        wanted = DIVIDENDS.astype(np.float64) / DIVISORS.astype(np.float64)[:, None]
    return np.tile(DIVIDENDS, (len(DIVISORS), 1)), DIVISORS, wanted


def units(found: Any, wanted: Any) -> Any:
    """Error in units of the last place; infinity counts as what follows the largest number. Signs of zeros count."""
    with np.errstate(all="ignore"):
        place = np.ldexp(1.0, np.maximum(np.frexp(wanted)[1], -125) - 24)
        ended = np.where(np.isinf(found), np.copysign(LIMIT, found), found.astype(np.float64))
        beyond = np.abs(wanted) >= LIMIT
        errors = np.abs(ended - np.where(beyond, np.copysign(LIMIT, wanted), wanted)) / np.where(
            beyond, 2.0**104, place
        )
    errors[np.signbit(found) != np.signbit(wanted)] = np.inf
    errors[np.isnan(wanted)] = 0
    return np.where(np.isnan(found) != np.isnan(wanted), np.inf, errors)


def check(found: Any, wanted: Any) -> None:
    errors = units(found, wanted)
    denormal = np.abs(wanted) < 2.0**-126
    for kind, where, bound in (("normal", ~denormal, 1.5), ("denormal", denormal, 1.25)):
        worst = np.unravel_index(np.where(where, errors, 0).argmax(), errors.shape)
        assert errors[worst] <= bound + 1e-6 or not where[worst], (
            f"a {kind} quotient by {DIVISORS[worst[0]]!r} is {found[worst]!r}, {errors[worst]} ulp off"
        )


def first_of_row(divisors: Any, n: int) -> Any:
    w = np.zeros((len(divisors), n), np.float32)
    w[:, n // 2] = divisors
    return w


def test_by_a_sum(lib: Any) -> None:
    x, divisors, wanted = grid()
    found = lib.by_sum(x, first_of_row(divisors, x.shape[1]))
    with np.errstate(all="ignore"):  # 0 + -0 is 0
        positive = DIVIDENDS / (divisors + np.float32(0)).astype(np.float64)[:, None]
    check(found.y, positive)
    check(found.z, -positive)
    check(lib.by_sum_of_another(x, first_of_row(divisors, 3)), positive)
    assert not np.array_equal(positive, wanted)  # -0 is among the divisors


@pytest.mark.parametrize("n", [1, 15, 17, 83])
def test_by_a_sum_in_vectors_of_any_length(lib: Any, n: int) -> None:
    x, divisors, _ = grid()
    x, divisors = x[::7, :n], divisors[::7]
    with np.errstate(all="ignore"):
        check(lib.by_sum_of_another(x, first_of_row(divisors, 5)), x / (divisors + 0.0).astype(np.float64)[:, None])


def exactly(found: Any, wanted: Any) -> None:
    assert np.array_equal(found, wanted, equal_nan=True)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])


def test_by_a_value_that_is_no_sum_is_exact(lib: Any) -> None:
    x, divisors, _ = grid()
    with np.errstate(all="ignore"):
        wanted = x / divisors[:, None]
    exactly(lib.by_max(x, np.broadcast_to(divisors[:, None], x.shape).copy()), wanted)
    exactly(lib.by_weight(x, divisors), wanted)


def test_by_an_integer_sum_is_exact(lib: Any) -> None:
    x = np.tile(DIVIDENDS, (50, 1))
    w = np.zeros(x.shape, np.int32)
    w[:, 0] = np.arange(-3, 47)
    with np.errstate(all="ignore"):
        exactly(lib.by_whole(x, w), x / w.sum(-1, keepdims=True).astype(np.float32))


def test_after_a_product(lib: Any) -> None:
    # One term, as an infinity times 0 beside it would be NaN. The sums start at 0, so none is -0.
    with np.errstate(all="ignore"):
        divisors, dividends = DIVISORS + np.float32(0), (DIVIDENDS + np.float32(0))[:, None]
        wanted = dividends / divisors.astype(np.float64)[None, :]
    found = lib.product_by_column(dividends, np.ones((1, len(divisors)), np.float32), first_of_row(divisors, 4))
    check(found.T, wanted.T)
    found = lib.product_by_sum(np.ones((len(divisors), 1), np.float32), dividends.T.copy(), first_of_row(divisors, 4))
    check(found, wanted.T)


def test_a_mean_over_a_mask(lib: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 9, 83)).astype(np.float32)
    mask = (rng.random((3, 9)) < 0.6).astype(np.float32)
    mask[1] = 0
    with np.errstate(all="ignore"):
        total = np.einsum("bld,bl->bd", x.astype(np.float64), mask)
        wanted = total / mask.sum(1, keepdims=True)
    np.testing.assert_allclose(lib.pooled(x, mask), wanted, atol=16 * 2.0**-24 * 3)


def test_the_error_analysis_counts_both_products(lib: Any) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((47, 600)).astype(np.float32), np.zeros((47, 600), np.float32)
    w[:, 0] = np.arange(1, 48)
    found = lib.by_rounded_sum(x, w)
    assert not np.array_equal(found, x / w[:, :1])
    assert not len(bounded(by_rounded_sum, {"x": x, "w": w})["out"].wrong(found))


@pytest.mark.parametrize("arch", ARCHS)
def test_machine_code(arch: str) -> None:
    assert "vdivps" not in og.inspect(by_sum, "asm", f"x86/{arch}")
    assert "vdivps" in og.inspect(by_max, "asm", f"x86/{arch}")
