"""Online chains with few rows on x86: shares of the keys that reduce on their own, and are merged.

That every attention op is right is in test_attention.py; here are the sizes at which the work is cut differently.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen import ops
from opsgen.lowering.error_bounds import bounded
from opsgen.ops._attention import dense_reference
from opsgen.runtime.host import host_levels

F32 = 2.0**-24
KEYS = (0, 1, 15, 63, 64, 65, 255, 256, 257, 1000, 4097)
"""One past a vector, a share and a tile; 4097 are several shares, and one key more."""

ROWS = (1, 2, 3, 4, 5, 7, 8, 15)


@og.op
def own_chain(
    q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"], v: og.Tensor["keys", "e"], bias: og.Tensor["keys"]
) -> og.Results:
    """A chain written by hand, without a batch: a maximum, two sums that need it, and a product."""
    s = og.dot(q, k, over="d") + bias
    m = og.max(s, over="keys")
    p = og.exp(s - m)
    total = og.sum(p, over="keys")
    squares = og.sum(p * p, over="keys")
    return og.results(y=og.dot(p, v, over="keys") / total, spread=squares / (total * total), top=m)


@og.op
def decode_logsumexp(x: og.Tensor["...", "hidden"], w: og.Tensor["hidden", "classes"]) -> og.Tensor:
    """A chain without a contraction link, over keys that are not contiguous along the sum."""
    return og.logsumexp(og.dot(x, w, over="hidden"), over="classes")


@og.op
def apart(
    q: og.Tensor["queries", "heads", "d"],
    k: og.Tensor["keys", "heads", "d"],
    v: og.Tensor["keys", "heads", "e"],
    lengths: og.Tensor["heads", og.integer],
):
    """Neighbouring keys lie apart by all heads, and each head sees some of them."""
    scores = og.dot(q, k, over="d") * 0.25
    return og.dot(og.softmax(scores, over="keys", where=og.index("keys") < lengths), v, over="keys")


@og.op
def two_summed(q: og.Tensor["queries", "a", "b"], k: og.Tensor["keys", "a", "b"], v: og.Tensor["keys", "e"]):
    """A sum over two dims."""
    return og.dot(og.softmax(og.dot(q, k, over=("a", "b")), over="keys"), v, over="keys")


OWN = (own_chain, decode_logsumexp, apart, two_summed)


@dataclass
class Built:
    path: Path
    arch: str
    lib: Any


@pytest.fixture(scope="module", params=["avx512", "avx2"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """A library of one arch, loaded for it."""
    if request.param not in host_levels():
        pytest.skip(f"needs {request.param}")
    path = tmp_path_factory.mktemp("split") / f"{request.param}.so"
    causal = og.variant(ops.causal_attention, align="bottom-right")
    og.compile([*OWN, causal], target=f"x86/{request.param}").save(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSGEN_CPU_LEVEL", request.param)
        yield Built(path, request.param, og.load(path))


@pytest.fixture(scope="module")
def lib(built: Built) -> Any:
    return built.lib


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def causal(lib: Any, heads: int, kv_heads: int, queries: int, keys: int, width: int, batch: int = 1) -> None:
    """A call whose every element lies within the error analysis's bounds."""
    q = random(batch, heads, queries, width)
    k, v = (random(batch, kv_heads, keys, width, seed=s) for s in (1, 2))
    given = {"q": q, "k": k, "v": v, "scale": width**-0.5, "align": "bottom-right"}
    found = lib.causal_attention(**given)
    for name, bound in bounded(ops.causal_attention, given).items():
        bad = bound.wrong(getattr(found, name))
        assert not len(bad), f"{name}: {len(bad)} wrong, first at {tuple(bad[0])}"


@pytest.mark.parametrize("keys", KEYS)
def test_rows_and_keys(lib: Any, keys: int) -> None:
    for i, queries in enumerate(ROWS):
        causal(lib, 2, 1 + i % 2, queries, keys, 40 if keys < 1000 else 8)


@pytest.mark.parametrize("width", [1, 7, 8, 15, 16, 40, 64, 96, 128, 136, 200])
def test_widths(lib: Any, width: int) -> None:
    for keys in (5, 300, 600):
        causal(lib, 2, 2, 3, keys, width)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (5, 5), (8, 2), (7, 1), (14, 2), (28, 4), (0, 0)])
def test_heads_that_share_keys(lib: Any, heads: int, kv_heads: int) -> None:
    for queries, keys in ((1, 530), (4, 70)):
        causal(lib, heads, kv_heads, queries, keys, 16, batch=2)


@pytest.mark.parametrize("queries", range(1, 9))
def test_the_last_queries_of_a_long_cache(lib: Any, queries: int) -> None:
    causal(lib, 4, 1, queries, 3001, 64)


def test_more_queries_than_keys(lib: Any) -> None:
    found = lib.causal_attention(random(1, 2, 9, 8), random(1, 2, 4, 8), random(1, 2, 4, 8), scale=1.0)
    assert np.isneginf(found.lse[:, :, :5]).all() and np.isfinite(found.lse[:, :, 5:]).all()
    assert not found.y[:, :, :5].any()


def test_many_batches_make_one_share(lib: Any) -> None:
    causal(lib, 8, 8, 1, 700, 8, batch=70)


@pytest.mark.parametrize("place", [0, 700, 1999])
def test_nan_and_infinities_cross_shares(lib: Any, place: int) -> None:
    """What happens in one share reaches the merged result, and only in its head."""
    q, k, v = random(1, 4, 1, 16), random(1, 4, 2000, 16, seed=1), random(1, 4, 2000, 16, seed=2)
    clean = lib.causal_attention(q, k, v, scale=0.25)
    k[0, 1, place] = np.nan
    v[0, 2, place, 3] = np.inf
    found = lib.causal_attention(q, k, v, scale=0.25)
    assert np.isnan(found.y[0, 1]).all() and np.isnan(found.lse[0, 1]).all()
    assert np.isposinf(found.y[0, 2, 0, 3]) and np.isfinite(np.delete(found.y[0, 2, 0], 3)).all()
    for head in (0, 3):
        assert np.array_equal(found.y[0, head], clean.y[0, head])


def test_a_share_whose_scores_are_far_below_the_others(lib: Any) -> None:
    """Its repair is exp of a large negative number; the other way round it would overflow."""
    q, v = np.ones((1, 1, 1, 8), np.float32), random(1, 1, 2048, 8)
    k = np.zeros((1, 1, 2048, 8), np.float32)
    for share in (slice(0, 200), slice(900, 1100), slice(1900, 2048)):
        k[...] = -50
        k[:, :, share] = 50
        found = lib.causal_attention(q, k, v, scale=1.0)
        np.testing.assert_allclose(found.y[0, 0, 0], v[0, 0, share].astype(np.float64).mean(axis=0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("keys", [*KEYS[1:], 8500])  # of 8500, a share is two tiles
def test_own_chain(lib: Any, keys: int) -> None:
    for rows in ROWS:
        q, k, v, bias = random(rows, 24), random(keys, 24, seed=1), random(keys, 19, seed=2), random(keys, seed=3)
        s = q.astype(np.float64) @ k.T.astype(np.float64) + bias
        p = np.exp(s - s.max(axis=1, keepdims=True))
        total = p.sum(axis=1)
        found = lib.own_chain(q, k, v, bias)
        # The rounding of scores (26 operations) comes out as a relative error of a weight, and of their sum.
        score = 26 * F32 * (np.abs(q) @ np.abs(k).T + np.abs(bias)).max()
        relative = 2 * score + 32 * F32
        np.testing.assert_allclose(found.y, p @ v / total[:, None], rtol=relative, atol=relative * np.abs(v).max())
        np.testing.assert_allclose(found.spread, (p * p).sum(axis=1) / total**2, rtol=2 * relative)
        np.testing.assert_allclose(found.top, s.max(axis=1), rtol=0, atol=score)


@pytest.mark.parametrize("classes", KEYS)
@pytest.mark.parametrize("hidden", [0, 1, 33])
def test_a_chain_without_a_product(lib: Any, classes: int, hidden: int) -> None:
    for rows in ROWS:
        x, w = random(rows, hidden), random(hidden, classes, seed=1)
        s = x.astype(np.float64) @ w.astype(np.float64)
        found = lib.decode_logsumexp(x, w)
        if not classes:
            assert np.isneginf(found).all()
            continue
        m = s.max(axis=1)
        wanted = m + np.log(np.exp(s - m[:, None]).sum(axis=1))
        np.testing.assert_allclose(found, wanted, rtol=40 * F32, atol=40 * F32)


@pytest.mark.parametrize("keys", [1, 64, 257, 1000])
def test_other_orders_of_dims(lib: Any, keys: int) -> None:
    q, k, v = random(2, 6, 24), random(keys, 6, 24, seed=1), random(keys, 6, 24, seed=2)
    lengths = np.array([0, 1, keys // 3, keys // 2, keys - 1, keys])
    by_head = [x.transpose(1, 0, 2)[None] for x in (q, k, v)]
    seen = (np.arange(keys) < lengths[:, None])[None, :, None]
    wanted = dense_reference(*by_head, scale=0.25, seen=seen)["y"][0]
    found = lib.apart(q, k, v, lengths)
    np.testing.assert_allclose(found.transpose(1, 0, 2), wanted, rtol=100 * F32, atol=100 * F32)
    q, k, v = random(3, 5, 12), random(keys, 5, 12, seed=1), random(keys, 21, seed=2)
    flat = [x.reshape(1, 1, len(x), -1) for x in (q, k, v)]
    wanted = dense_reference(*flat, scale=1.0)["y"][0, 0]
    np.testing.assert_allclose(lib.two_summed(q, k, v), wanted, rtol=300 * F32, atol=300 * F32)


def test_tiles_past_a_length_are_skipped(lib: Any) -> None:
    """0 · NaN is NaN: it would show. Each head has a length of its own."""
    keys, lengths = 4096, np.array([0, 200, 1000, 2049, 4096, 5])
    q, k, v = random(2, 6, 24), random(keys, 6, 24, seed=1), random(keys, 6, 24, seed=2)
    clean = lib.apart(q, k, v, lengths)
    for head, length in enumerate(lengths):
        v[length + 512 :, head] = np.nan
    assert np.array_equal(lib.apart(q, k, v, lengths), clean)


def test_results_do_not_depend_on_the_threads(built: Built) -> None:
    """Shares are merged in order, whoever made them."""
    code = f"""
import numpy as np, opsgen as og
lib = og.load({str(built.path)!r})
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((2, 6, 3, 40), (2, 2, 3001, 40), (2, 2, 3001, 40)))
print(lib.causal_attention(q, k, v, scale=0.2).y.tobytes().hex()[:4000])
"""
    found = []
    for threads in ("1", "2", "7"):
        env = {**os.environ, "OPSGEN_CPU_LEVEL": built.arch, "OMP_NUM_THREADS": threads}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1] == found[2]


@pytest.fixture(scope="module")
def half_lib() -> Any:
    return og.compile([ops.attention], dtypes=["float16"])


@pytest.mark.parametrize("keys", [1, 64, 300, 1030])
def test_float16(half_lib: Any, keys: int) -> None:
    q, k, v = (random(1, 3, n, 40, seed=s).astype(np.float16) for s, n in enumerate((2, keys, keys)))
    wanted = dense_reference(q, k, v, scale=0.15)["y"]
    found = half_lib.attention(q, k, v, scale=0.15)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2.0**-10, atol=2.0**-12)


def test_rows_beyond_few_need_no_memory_here() -> None:
    """What shares need is asked for where they are made, and nowhere else."""
    from opsgen.compiler.plan import make_plan
    from opsgen.compiler.problem import enumerate_problems
    from opsgen.targets.names import parse

    (problem,) = enumerate_problems([ops.attention], ["float32"], {})
    spaces = make_plan(problem, parse("x86/avx512")[0]).spaces
    own = [s for s in spaces if s.name.startswith(("links", "shares", "few"))]
    sizes = {"batch": 2, "heads": 3, "keys": 5000, "head_dim": 64, "value_dim": 40}
    wanted = {"links": 2 * 3 * 16 * 2, "shares": 2 * 3 * 16 * 40, "few": 256 * 4 * 64}
    assert len(own) == 3
    for space in own:
        one = next(size for name, size in wanted.items() if space.name.startswith(name))
        for queries in (0, 1, 2, 15, 16, 17, 1000):
            found = space.elements.evaluate({**sizes, "queries": queries})
            assert found == (one * queries if queries < 16 else 0), (space.name, queries)
