"""int8: which way every half is rounded, and what becomes of NaN, infinities and scales of 0, as float32 decides."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opsgen as og
from opsgen.ops import dynamic_quantize_int8, quantize_int8, quantize_int8_groups, quantize_int8_rows

NAN, INF = np.nan, np.inf
X = np.float32([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -200], [NAN, INF, -INF, 0, 3e38, -3e38, 1e-45, -128]])


@pytest.fixture(scope="module")
def lib() -> Any:
    pytest.importorskip("tvm")
    return og.compile([quantize_int8, quantize_int8_rows, quantize_int8_groups, dynamic_quantize_int8], target="x86")


def in_float32(x: NDArray[Any], scale: NDArray[Any], offset: int = 0, least: int = -127) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        real = (x.astype(np.float32) / scale).astype(np.float64)
    return np.clip(np.nan_to_num(np.rint(real), nan=0.0) + offset, least, 127).astype(np.int8)


def both(lib: Any, op: Any, *given: Any) -> Any:
    """What a compiled op gives, which is what its definition gives in numpy."""
    given = tuple(np.asarray(a) for a in given)
    found, wanted = lib[op.name](*given), op.evaluate(*given)
    for a, b in zip(found, wanted.values()) if isinstance(wanted, dict) else [(found, wanted)]:
        np.testing.assert_array_equal(a, b)
    return found


def test_halves_go_to_the_even_and_the_rest_to_its_end(lib: Any) -> None:
    y = both(lib, quantize_int8, X, np.float32(1), np.int8(0))
    assert y.tolist() == [[0, 2, 2, 0, -2, 126, 127, -128], [0, 127, -128, 0, 127, -128, 0, -128]]
    y = both(lib, quantize_int8, X, np.float32(1))
    assert y.tolist() == [[0, 2, 2, 0, -2, 126, 127, -127], [0, 127, -127, 0, 127, -127, 0, -127]]


def test_a_zero_point_is_added_after_rounding(lib: Any) -> None:
    y = both(lib, quantize_int8, X, np.float32(1), np.int8(-3))
    assert y.tolist() == [[-3, -1, -1, -3, -5, 123, 125, -128], [-3, 124 + 3, -128, -3, 127, -128, -3, -128]]


def test_a_scale_of_zero_gives_the_ends(lib: Any) -> None:
    assert both(lib, quantize_int8, np.float32([-1, 0, 2]), np.float32(0)).tolist() == [-127, 0, 127]


def test_each_way_of_scaling_is_as_float32_has_it(lib: Any) -> None:
    random = np.random.default_rng(0)
    x = (random.integers(-300, 300, (37, 96)) * np.float32(0.05)).astype(np.float32)  # many near a half
    for scale in (np.float32(0.1), np.float32(0.3)):
        assert np.array_equal(both(lib, quantize_int8, x, scale), in_float32(x, scale))
    rows, offsets = np.float32(random.uniform(0.01, 1, 37)), random.integers(-128, 128, 37).astype(np.int8)
    wanted = in_float32(x, rows[:, None], offsets[:, None], -128)
    assert np.array_equal(both(lib, quantize_int8_rows, x, rows, offsets), wanted)
    groups = np.float32(random.uniform(0.01, 1, (37, 6)))
    wanted = in_float32(x, groups.repeat(16, axis=1))
    assert np.array_equal(both(lib, quantize_int8_groups, x, groups), wanted)


def test_a_row_s_largest_is_127_and_what_is_no_number_shows_in_the_scale(lib: Any) -> None:
    x = np.random.default_rng(1).standard_normal((50, 33)).astype(np.float32)
    q, scale = both(lib, dynamic_quantize_int8, x)
    assert np.array_equal(scale, np.abs(x).max(axis=1) / np.float32(127))
    assert np.array_equal(q, in_float32(x, scale[:, None]))
    assert np.array_equal(np.abs(q).max(axis=1), np.full(50, 127))
    q, scale = both(lib, dynamic_quantize_int8, np.float32([[0, 0], [NAN, 1], [-INF, 1], [127, 0.5]]))
    assert q.tolist() == [[0, 0], [0, 0], [0, 0], [127, 0]]
    np.testing.assert_array_equal(scale, np.float32([0, NAN, INF, 1]))
