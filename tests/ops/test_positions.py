"""Operators that read at positions: what they do at the ends, and with what they must not look at."""

from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.errors import OpsgenError
from opsgen.ops import (
    argmax,
    cls_pool,
    kv_cache_append,
    last_token_pool,
    masked_max_pool,
    moe_router,
    position_embedding,
    rope,
)

NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def lib() -> Any:
    pytest.importorskip("tvm")
    ops = [argmax, cls_pool, kv_cache_append, last_token_pool, masked_max_pool, moe_router, position_embedding, rope]
    return og.compile(ops, target="x86")


def test_argmax_gives_the_first_of_equals_and_of_nan(lib: Any) -> None:
    x = np.float32([[1, 3, 3], [NAN, 5, NAN], [-INF, -INF, -INF], [2, NAN, INF], [-0.0, 0.0, 0.0]])
    for y in (lib.argmax(x), argmax.evaluate(x), argmax.expected(x)):
        assert y.tolist() == [1, 0, 0, 1, 0]


def test_the_last_token_is_that_of_each_length(lib: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    x[0, 2] = NAN  # behind the end
    for y in (lib.last_token_pool(x, np.int64([2, 3, 0, 1])), last_token_pool.evaluate(x, np.int64([2, 3, 0, 1]))):
        assert np.array_equal(y, [x[0, 1], x[1, 2], [0, 0], x[3, 0]])
    with pytest.raises(OpsgenError, match="E4025"):
        lib.last_token_pool(x, np.int64([2, 4, 0, 1]))


def test_a_sequence_without_a_position_has_no_first(lib: Any) -> None:
    with pytest.raises(OpsgenError, match="E4010"):
        lib.cls_pool(np.zeros((2, 0, 3), np.float32))
    with pytest.raises(OpsgenError, match="E4010"):
        lib.position_embedding(np.zeros((1, 3), np.int64), *np.zeros((2, 2, 4), np.float32))


def test_what_padding_holds_does_not_reach_the_maximum(lib: Any) -> None:
    x = np.float32([[[1, -1], [-3, -2], [NAN, INF]], [[INF, NAN], [1, 1], [2, 2]], [[-INF, NAN], [0, 0], [0, 0]]])
    mask = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], bool)
    for y in (lib.masked_max_pool(x, mask), masked_max_pool.evaluate(x, mask)):
        np.testing.assert_array_equal(y, [[1, -1], [0, 0], [-INF, NAN]])


def test_rows_are_appended_at_their_slots_and_nowhere_else(lib: Any) -> None:
    random = np.random.default_rng(0)
    before, new = (random.standard_normal((n, 2, 5)).astype(np.float32) for n in (9, 4))
    before[6] = NAN
    new[1] = -0.0
    for slots in ([3, 5, 0, 8], [3, 3, -1, 8], [9, 100, -5, 2]):
        wanted = before.copy()
        for row, slot in zip(new, slots):
            if 0 <= slot < 9:
                wanted[slot] = row
        cache = before.copy()
        lib.kv_cache_append(cache, new, np.int64(slots))
        assert cache.tobytes() == wanted.tobytes()  # -0.0 and NaN as they are
        assert kv_cache_append.evaluate(before, new, np.int64(slots))["cache"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rope_turns_pairs_and_leaves_the_rest(lib: Any, layout: str) -> None:
    cos, sin = np.float32([[1, 1], [0, -1]]), np.float32([[0, 0], [1, 0]])
    x = np.float32([[[1, 2, 3, 4, NAN]], [[1, 2, 3, 4, INF]]])
    wanted = [-3, -2, 1, -4, INF] if layout == "half" else [-2, 1, -3, -4, INF]
    y = rope.evaluate(x, np.int64([0, 1]), cos, sin, layout=layout)
    np.testing.assert_array_equal(y, [x[0], [wanted]])
    if layout == "half":
        np.testing.assert_array_equal(lib.rope(x, np.int64([0, 1]), cos, sin), y)
    with pytest.raises(OpsgenError, match="E4010"):
        lib.rope(x[..., :3], np.int64([0, 1]), cos, sin)


def test_equal_experts_are_taken_in_order(lib: Any) -> None:
    logits = np.float32([[1, 1, 1], [0, 2, 2], [200, -200, 0]])
    expert, weight = lib.moe_router(logits)
    assert expert.tolist() == [[0, 1], [1, 2], [0, 2]]
    np.testing.assert_allclose(weight, [[0.5, 0.5], [0.5, 0.5], [1, 0]], rtol=1e-6, atol=1e-30)
