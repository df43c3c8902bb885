"""Ops that take no tensor: only numbers, or nothing. Compiled, loaded and called."""

import re
import sys

import numpy as np
import pytest

import opsgen as og
from opsgen.errors import CallError
from opsgen.runtime import Library, host

pytestmark = pytest.mark.skipif(
    not any(level in host.X86_COMPILED for level in host.host_levels()), reason="this CPU runs no kernels"
)


@og.op
def ramp(*, step: float) -> og.Tensor:
    return og.compute(lambda taps: step * taps, taps=5)


@og.op
def plane(step: float, rise: float = 1.0) -> og.Tensor:
    return og.compute(lambda rows, taps: step * taps + rise * rows, rows=3, taps=5)


@og.op
def steps() -> og.Tensor:
    return og.compute(lambda taps: og.where(taps > 2, 1.0, 2.0), taps=5)


@og.op
def pair(*, step: float):  # type: ignore[no-untyped-def]
    return og.results(
        up=og.compute(lambda taps: step * taps, taps=5), down=og.compute(lambda taps: -step * taps, taps=5)
    )


TAPS = np.arange(5, dtype=np.float32)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return og.compile([ramp, plane, steps, pair], output=tmp_path_factory.mktemp("numbers") / "numbers.so")


def raises(text: str):  # type: ignore[no-untyped-def]
    return pytest.raises(CallError, match="^" + re.escape(text))


def test_results_are_numpy_arrays(numbers: Library) -> None:
    for _ in range(2):  # planned, then found
        np.testing.assert_array_equal(numbers.ramp(step=2), 2 * TAPS, strict=True)
        np.testing.assert_array_equal(numbers.plane(2.0), 2 * TAPS + np.float32([[0], [1], [2]]), strict=True)
        np.testing.assert_array_equal(numbers.plane(rise=np.float32(0), step=1), np.stack([TAPS] * 3))
        np.testing.assert_array_equal(numbers.steps(), np.float32([2, 2, 2, 1, 1]), strict=True)
        found = numbers.pair(step=3.0)
        np.testing.assert_array_equal(found.up, 3 * TAPS)
        np.testing.assert_array_equal(found.down, -3 * TAPS)


def test_memory_of_the_caller(numbers: Library) -> None:
    whole, wide = np.full(5, np.nan, np.float32), np.full(10, np.nan, np.float32)
    assert numbers.ramp(step=2.0, out=whole) is whole
    numbers.ramp(step=2.0, out=wide[::2])
    np.testing.assert_array_equal(whole, 2 * TAPS)
    np.testing.assert_array_equal(wide[::2], whole)
    assert np.isnan(wide[1::2]).all()
    with raises(
        "E4003: ramp: argument 'out' has dtype float64; this library takes float32. Allocate it with np.empty("
    ):
        numbers.ramp(step=2.0, out=np.empty(5))
    with raises("E4005: ramp: argument 'out' has dim 0=4 (shape (4,)); wanted 5"):
        numbers.ramp(step=2.0, out=np.empty(4, np.float32))


def test_memory_of_torch(numbers: Library) -> None:
    torch = pytest.importorskip("torch")
    out = torch.full((5,), float("nan"))
    for _ in range(2):
        assert numbers.ramp(step=2.0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), 2 * TAPS)
    assert "torch" in sys.modules and type(numbers.ramp(step=2.0)) is np.ndarray


def test_wrong_calls(numbers: Library) -> None:
    for _ in range(2):
        with raises("E4002: ramp: argument 'step' is missing. The call is ramp(*, step, out=None)."):
            numbers.ramp()
        with raises("E4002: ramp: argument 'stop' is unknown."):
            numbers.ramp(step=1.0, stop=2.0)
        with raises("E4002: ramp: 1 positional arguments, of which it takes 0."):
            numbers.ramp(1.0)
        with raises("E4017: ramp: argument 'step' is of type NoneType; wanted a real number"):
            numbers.ramp(step=None)
        numbers.ramp(step=1.0)
