"""Online chains fused on x86: one kernel, memory that does not grow with the keys, tiles skipped, and errors no larger
than those of the unfused form. That every attention op is right is in test_attention.py.
"""

from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen import ops
from opsgen.analysis.partition import partition
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import enumerate_problems
from opsgen.ops.attention import reference
from opsgen.ops.causal_attention import reference as causal_reference
from opsgen.ops.sliding_window_attention import reference as window_reference
from opsgen.targets.names import parse

KEYS = 96  # of a tile, by default


@og.op
def product_logsumexp(x: og.Tensor["...", "hidden"], w: og.Tensor["classes", "hidden"]) -> og.Tensor:
    """log Σ exp(x wᵀ): the logits are never stored."""
    return og.logsumexp(og.dot(x, w, over="hidden"), over="classes")


@og.op
def weighted_peak(
    q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"], v: og.Tensor["keys", "e"], *, sharp: float
) -> og.Results:
    """A chain of the caller's own: another exponential, another normalisation, two results."""
    s = og.dot(q, k, over="d")
    m = og.max(s, over="keys")
    p = og.exp2((s - m) * 1.5)
    total = og.sum(p * p, over="keys")
    return og.results(y=og.dot(p, v, over="keys") * sharp / og.sqrt(total), top=m)


@og.op
def entropy(q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"]) -> og.Tensor:
    """Σ p (x - m) does not separate: it runs unfused."""
    s = og.dot(q, k, over="d")
    m = og.max(s, over="keys")
    e = og.exp(s - m)
    total = og.sum(e, over="keys")
    return og.log(total) - og.sum(e * (s - m), over="keys") / total


@og.op
def probabilities_too(q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"], v: og.Tensor["keys", "e"]) -> og.Results:
    """The probabilities are a result, so they are stored."""
    p = og.softmax(og.dot(q, k, over="d"), over="keys")
    return og.results(y=og.dot(p, v, over="keys"), p=p)


@og.op
def naive_variance(q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"]) -> og.Tensor:
    s = og.dot(q, k, over="d")
    difference = s - og.mean(s, over="keys")
    return og.mean(difference * difference, over="keys")


@og.op
def attention_then_product(
    q: og.Tensor["heads", "queries", "d"],
    k: og.Tensor["heads", "keys", "d"],
    v: og.Tensor["heads", "keys", "e"],
    w: og.Tensor["heads", "e", "out"],
) -> og.Tensor:
    """The chain's result goes to another kernel through memory of the plan."""
    p = og.softmax(og.dot(q, k, over="d"), over="keys")
    return og.dot(og.dot(p, v, over="keys") * 0.5, w, over=("heads", "e"))


@og.op
def chain_over_a_chain(q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"], v: og.Tensor["keys", "e"]) -> og.Tensor:
    """The log-sum-exp over the queries of an attention's result: its product is a link of one chain alone."""
    y = og.dot(og.softmax(og.dot(q, k, over="d"), over="keys"), v, over="keys")
    return og.logsumexp(y * y, over="queries")


@og.op
def values_of_rows(
    q: og.Tensor["place", "queries", "d"], k: og.Tensor["keys", "d"], v: og.Tensor["place", "keys", "e"]
) -> og.Tensor:
    """The values are others for each place, which the keys are not: no dim of a batch. It runs unfused."""
    return og.dot(og.softmax(og.dot(q, k, over="d"), over="keys"), v, over="keys")


OWN = (
    values_of_rows,
    attention_then_product,
    chain_over_a_chain,
    product_logsumexp,
    weighted_peak,
    entropy,
    probabilities_too,
    naive_variance,
)


@pytest.fixture(scope="module")
def lib() -> Any:
    causal = og.variant(ops.causal_attention, align="bottom-right")
    return og.compile([*OWN, ops.attention, causal, ops.sliding_window_attention, ops.block_sparse_attention])


def patterns(op: og.Op, **choices: Any) -> list[str]:
    return [g.pattern for g in partition(op.trace(**choices)).groups]


def test_what_is_fused():
    assert patterns(ops.attention) == ["online_chain"]
    assert patterns(ops.causal_attention, attributes={"align": "top-left"}) == ["online_chain"]
    assert patterns(product_logsumexp) == ["online_chain"]
    assert patterns(weighted_peak) == ["online_chain"]
    assert patterns(ops.softmax) == ["row_reduction"]


def test_what_is_not():
    for op in (entropy, probabilities_too, naive_variance):
        assert "online_chain" not in patterns(op)
    assert all(g.pattern != "online_chain" for g in partition(ops.attention.trace(), chains=False).groups)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("queries", [1, 17, 64, 130])
@pytest.mark.parametrize("keys", [1, 95, 96, 97, 200])
def test_own_chains(lib, queries, keys):
    q, k, v = random(queries, 24), random(keys, 24, seed=1), random(keys, 19, seed=2)
    s = q.astype(np.float64) @ k.T.astype(np.float64)
    m = s.max(axis=1, keepdims=True)
    e = np.exp(s - m)
    total = e.sum(axis=1)
    np.testing.assert_allclose(lib.product_logsumexp(q, k), (m[:, 0] + np.log(total)), rtol=2e-6, atol=2e-6)
    p = np.exp2((s - m) * 1.5)
    found = lib.weighted_peak(q, k, v, sharp=0.5)
    want = p @ v * 0.5 / np.sqrt((p * p).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found.y, want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found.top, m[:, 0], rtol=2e-6, atol=2e-6)
    want = np.log(total) - (e * (s - m)).sum(axis=1) / total
    np.testing.assert_allclose(lib.entropy(q, k), want, rtol=1e-4, atol=1e-5)
    found = lib.probabilities_too(q, k, v)
    np.testing.assert_allclose(found.p, e / total[:, None], rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(found.y, e @ v / total[:, None], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(lib.naive_variance(q, k), s.var(axis=1), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [3, 20, 70])
def test_a_chain_before_another_kernel(lib, queries):
    q, k, v, w = random(2, queries, 8), random(2, 30, 8), random(2, 30, 11), random(2, 11, 9)
    s = q.astype(np.float64) @ k.transpose(0, 2, 1).astype(np.float64)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    y = (e / e.sum(axis=-1, keepdims=True)) @ v * 0.5
    want = np.einsum("hqe,heo->qo", y, w)
    np.testing.assert_allclose(lib.attention_then_product(q, k, v, w), want, rtol=2e-5, atol=2e-5)
    square = ((e / e.sum(axis=-1, keepdims=True)) @ v)[0] ** 2
    found = lib.chain_over_a_chain(q[0], k[0], v[0])
    np.testing.assert_allclose(found, np.log(np.exp(square).sum(axis=0)), rtol=2e-5, atol=2e-5)


def test_values_that_rows_have_of_their_own(lib):
    q, k, v = random(3, 20, 8), random(30, 8), random(3, 30, 11)
    s = q.astype(np.float64) @ k.T.astype(np.float64)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    want = (e / e.sum(axis=-1, keepdims=True)) @ v
    np.testing.assert_allclose(lib.values_of_rows(q, k, v), want, rtol=2e-5, atol=2e-5)


def test_of_no_keys(lib):
    q, none = random(70, 24), random(0, 24)
    assert np.isneginf(lib.product_logsumexp(q, none)).all()


@pytest.mark.parametrize("op", [ops.attention, ops.sliding_window_attention, ops.varlen_attention])
def test_no_memory_is_of_the_size_of_the_scores(op):
    for problem in enumerate_problems([op], ["float32"], {}):
        for space in make_plan(problem, parse("x86/avx512")[0]).spaces:
            names = set(space.elements.names())
            assert not {"queries", "keys"} <= names, space


def test_error_is_that_of_the_unfused_form(lib):
    """Against float64, at most four times that of numpy's float32 softmax(q kᵀ) v."""
    q, k, v = (random(1, 4, 500, 64, seed=s) for s in range(3))
    exact = reference(q, k, v, scale=0.125)
    s = (q @ k.transpose(0, 1, 3, 2)) * np.float32(0.125)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    plain = (e / e.sum(axis=-1, keepdims=True)) @ v
    ours = lib.attention(q, k, v, scale=0.125)
    assert np.abs(ours - exact).max() <= 4 * np.abs(plain - exact).max()


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_large_logits(lib, size):
    q, k, v = random(1, 2, 70, 16), random(1, 2, 150, 16, seed=1), random(1, 2, 150, 16, seed=2)
    found = lib.attention(q, k, v, scale=float(size))
    np.testing.assert_allclose(found, reference(q, k, v, scale=float(np.float32(size))), rtol=1e-3, atol=1e-3)


def hidden(shape: tuple[int, ...], where: slice) -> np.ndarray:
    """Values with NaN at some keys: 0 · NaN is NaN, so they show unless the tile is skipped."""
    v = random(*shape, seed=2)
    v[:, :, where] = np.nan
    return v


def test_tiles_after_the_diagonal_are_skipped(lib):
    q, k = random(1, 1, 64, 16), random(1, 1, 640, 16, seed=1)
    v = hidden((1, 1, 640, 16), slice(64 + 2 * KEYS, None))
    padded = np.concatenate([q, random(1, 1, 576, 16, seed=3)], axis=2)
    found = lib.causal_attention(padded, k, v, scale=0.25, align="bottom-right").y[:, :, :64]
    want = causal_reference(q, k[:, :, :64], v[:, :, :64], scale=0.25, align="top-left")["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_tiles_before_the_window_are_skipped(lib):
    length, window = 800, 50
    q, k = random(1, 1, length, 16), random(1, 1, length, 16, seed=1)
    v = hidden((1, 1, length, 16), slice(0, 300))
    found = lib.sliding_window_attention(q, k, v, scale=0.25, window=float(window))[:, :, 640:]
    want = window_reference(q, k, np.nan_to_num(v), scale=0.25, window=window)[:, :, 640:]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_blocks_that_a_list_leaves_out_are_skipped(lib):
    length = 640
    q, k = random(1, 1, length, 16), random(1, 1, length, 16, seed=1)
    v = hidden((1, 1, length, 16), slice(256, 640))
    blocks = np.zeros((1, 5, 5), np.bool_)
    blocks[:, :, 0] = True
    found = lib.block_sparse_attention(q, k, v, blocks, scale=0.25)
    want = reference(q, k[:, :, :128], v[:, :, :128], scale=0.25)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
