"""Tokens drawn by the compiled op, beside a reference that sorts.

A token other than the reference's is right only where rounding explains it: sums of probabilities are float32, so each
of top_p and u may be off by SLACK, and the token has to be the reference's for some such shift.
"""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import opsgen as og
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import enumerate_problems
from opsgen.ops import sample_logits
from opsgen.ops._philox import uniform
from opsgen.ops.sample_logits import kept_tokens
from opsgen.runtime.host import host_levels
from opsgen.targets.names import parse
from tests.cuda import emulated

SLACK = 2.0**-18
FILTERS = ("temperature", "top_k", "top_p", "min_p")
KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def right(row: NDArray[Any], u: float, token: int, given: dict[str, Any]) -> bool:
    """Whether a token is the one of some u and top_p nearby."""
    if given.get("temperature") is not None and given["temperature"] <= 0:
        return token == int(np.argmax(row))
    shifts = (-SLACK, 0.0, SLACK) if given.get("top_p") is not None and given["top_p"] < 1 else (0.0,)
    for shift in shifts:
        limits = {n: given.get(n) for n in FILTERS}
        if shift:
            limits["top_p"] = min(limits["top_p"] + shift, 1.0)
        p, kept = kept_tokens(row, *limits.values())
        sums = np.cumsum(np.where(kept, p, 0.0))
        before = sums[token - 1] if token else 0.0
        if kept[token] and before - SLACK <= u * sums[-1] <= sums[token] + SLACK:
            return True
    return False


def check(lib: Any, x: NDArray[Any], seed: int, offset: int, **given: Any) -> None:
    found = lib.sample_logits(x, seed, offset, **given)
    wanted = sample_logits.expected(x, seed, offset, **given)
    assert found.dtype == np.int64
    assert found.shape == x.shape[:-1]
    rows, tokens = x.reshape(-1, x.shape[-1]).astype(np.float64), found.reshape(-1)
    u = uniform(np.arange(len(rows)), seed, offset)
    of_row = {n: np.asarray(v).reshape(-1) for n, v in given.items()}
    different = np.flatnonzero(tokens != wanted.reshape(-1))
    assert len(different) <= 1 + len(rows) // 50
    for i in different:
        here = {n: v[i] for n, v in of_row.items()}
        assert right(rows[i], u[i], int(tokens[i]), here), f"row {i}: {tokens[i]} for {wanted.reshape(-1)[i]}, {here}"


def filters(rng: np.random.Generator, lead: tuple[int, ...], vocab: int) -> dict[str, Any]:
    """Of each row its own, with values that turn a filter off, and extreme ones."""
    f32 = np.float32
    return {
        "temperature": rng.choice([0.0, 1e-3, 0.3, 0.8, 1.0, 5.0], lead).astype(f32),
        "top_k": rng.choice([-1, 0, 1, 2, 5, vocab - 1, vocab, vocab + 7], lead).astype(np.int64),
        "top_p": rng.choice([0.0, 1e-6, 0.3, 0.5, 0.9, 0.999, 1.0, 2.0], lead).astype(f32),
        "min_p": rng.choice([-1.0, 0.0, 1e-6, 0.05, 0.5, 1.0, 1.5], lead).astype(f32),
    }


@pytest.fixture(scope="module")
def libs() -> dict[tuple[str, ...], Any]:
    """By the filters that are there: none, each alone, and all of them, the last for every type."""
    chosen = [(), *((n,) for n in FILTERS)]
    items = [og.variant(sample_logits, absent=sorted(set(FILTERS) - set(c))) for c in chosen]
    some = og.compile(items, dtypes=["float32"])
    every = og.compile(og.variant(sample_logits, absent=[]), dtypes=["float32", "bfloat16", "float16"])
    return {**dict.fromkeys(chosen, some), FILTERS: every}


SHAPES = ((1, 1), (3, 2), (40, 17), (2, 3, 257), (5, 4099), (0, 9), (7,))


@pytest.mark.parametrize("chosen", [(), *((n,) for n in FILTERS), FILTERS], ids="-".join)
def test_tokens(libs: dict[tuple[str, ...], Any], chosen: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(chosen))
    for kind in KINDS.values() if chosen == FILTERS else (np.float32,):
        for shape in SHAPES:
            x = (rng.standard_normal(shape) * 3).astype(kind)
            given = {n: v for n, v in filters(rng, shape[:-1], shape[-1]).items() if n in chosen}
            check(libs[chosen], x, 11, shape[-1], **given)


def test_equal_logits_signs_of_zero_and_minus_infinity(libs: dict[tuple[str, ...], Any]) -> None:
    rng = np.random.default_rng(1)
    for kind in KINDS.values():
        x = rng.integers(-2, 3, (60, 33)).astype(kind) * rng.choice([1, -1], (60, 33)).astype(kind)  # with -0.0
        x[rng.random(x.shape) < 0.3] = -np.inf
        x[:, 5] = 1
        check(libs[FILTERS], x, 3, 4, **filters(rng, (60,), 33))


def test_equal_logits_go_together(libs: dict[tuple[str, ...], Any]) -> None:
    """Three share the second place: top-k of 2 keeps four."""
    row = np.float32([1, 3, 1, 0, -5, 1])
    x, rows = np.tile(row, (4000, 1)), 4000
    found = libs[("top_k",)].sample_logits(x, 5, 0, top_k=np.full(rows, 2))
    assert set(found.tolist()) == {0, 1, 2, 5}
    for top_p, kept in ((0.5, {1}), (0.75, {0, 1, 2, 5}), (1e-9, {1}), (0.999, {0, 1, 2, 3, 5})):
        found = libs[("top_p",)].sample_logits(x, 6, 0, top_p=np.full(rows, top_p, np.float32))
        assert set(found.tolist()) == kept, top_p


def test_shares_are_the_probabilities(libs: dict[tuple[str, ...], Any]) -> None:
    """Chi squared of 200000 tokens, at most twice its degrees of freedom (of which there are 11, that is 1 in 50)."""
    rng = np.random.default_rng(2)
    row, rows = (rng.standard_normal(12) * 1.5).astype(np.float32), 200_000
    x = np.tile(row, (rows, 1))
    for chosen, limits in (((), {}), (("temperature",), {"temperature": 0.7}), (("top_p",), {"top_p": 0.8})):
        given = {n: np.full(rows, v, np.float32) for n, v in limits.items()}
        found = np.bincount(libs[chosen].sample_logits(x, 1, 2, **given), minlength=12)
        p, kept = kept_tokens(row.astype(np.float64), *(limits.get(n) for n in FILTERS))
        p = np.where(kept, p, 0) / p[kept].sum()
        assert not found[~kept].any()
        assert ((found[kept] - rows * p[kept]) ** 2 / (rows * p[kept])).sum() < 24


def test_offsets_give_other_tokens_and_the_same_ones_again(libs: dict[tuple[str, ...], Any]) -> None:
    x = np.zeros((500, 1000), np.float32)
    first, again, other = (libs[()].sample_logits(x, 1, offset) for offset in (0, 0, 1))
    assert np.array_equal(first, again)
    assert (first == other).mean() < 0.02


def test_avx2_and_avx512_agree() -> None:
    """Up to rounding, which moves few tokens."""
    if "avx512" not in host_levels():
        pytest.skip("this CPU has no avx512")
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((300, 1000)) * 2).astype(np.float32)
    item = og.variant(sample_logits, absent=["min_p", "top_k"])
    given = {n: v for n, v in filters(rng, (300,), 1000).items() if n in ("temperature", "top_p")}
    for arch in ("avx2", "avx512"):
        check(og.compile(item, target=f"x86/{arch}"), x, 1, 2, **given)


def test_emulated_cuda(tmp_path: Path) -> None:
    """And that its many passes do not make many kernels."""
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        lib = emulated.compile([og.variant(sample_logits, absent=["min_p"])], tmp_path, dtypes=["bfloat16"])
        rng = np.random.default_rng(4)
        for shape in ((3, 2), (5, 257), (2, 1031)):
            x = (rng.standard_normal(shape) * 2).astype(ml_dtypes.bfloat16)
            given = {n: v for n, v in filters(rng, shape[:-1], shape[-1]).items() if n != "min_p"}
            check(lib, x, 7, 8, **given)
    (problem,) = enumerate_problems([og.variant(sample_logits, absent=[])], ["float32"], {})
    launches = make_plan(problem, parse(["cuda/sm_90a"])[0]).launches
    first = [launch.name.rpartition("_g0_")[2] for launch in launches if "_g0_" in launch.name]
    assert first == ["long"]  # the group that searches for the thresholds
