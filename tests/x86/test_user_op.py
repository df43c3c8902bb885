"""An op that the library lacks, written by a user in a few lines: it gets the schedules that the built-in ones get."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import opsgen as og

F32 = 2.0**-24


@og.op
def gated_norm(x: og.Tensor["...", "n"], gate: og.Tensor["...", "n"], weight: og.Tensor["n"], *, slope: float):
    """y = weight · x / rms(x) · sigmoid(slope · gate)"""
    scale = og.rsqrt(og.mean(x * x, over="n") + 1e-6)
    return x * scale * weight * og.sigmoid(gate * slope)


def expected(x: Any, gate: Any, weight: Any, slope: float) -> Any:
    x, gate, weight = (np.asarray(a, np.float64) for a in (x, gate, weight))
    mean = (x * x).mean(-1, keepdims=True) if x.shape[-1] else np.zeros((*x.shape[:-1], 1))
    return x / np.sqrt(mean + 1e-6) * weight / (1 + np.exp(-slope * gate))


def tolerance(n: int, slope: float, gate: Any, wanted: Any) -> Any:
    """The mean of n squares, five roundings, and the sigmoid of an argument that is rounded once."""
    return np.abs(wanted) * F32 * (np.sqrt(n) + 16 + np.abs(slope * np.asarray(gate, np.float64))) + 1e-37


@pytest.fixture(scope="module")
def lib() -> Any:
    return og.compile(gated_norm)


@pytest.mark.parametrize("shape", [(3, 5, 257), (1, 1), (7, 768), (0, 16), (4, 0), (1,)])
@pytest.mark.parametrize("framework", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_users_op(lib: Any, shape: tuple[int, ...], framework: str) -> None:
    rng = np.random.default_rng(len(shape))
    x, gate = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    weight = rng.standard_normal(shape[-1]).astype(np.float32)
    given: list[Any] = [x, gate, weight]
    if framework == "torch":
        import torch

        given = [torch.from_numpy(a) for a in given]
    for slope in (0.5, -3.0, 0.5):  # a run-time scalar: the second value must not meet the first one's constant
        y = lib.gated_norm(*given, slope=slope)
        assert type(y) is type(given[0])
        y = np.asarray(y)
        wanted = expected(x, gate, weight, slope)
        assert y.shape == shape
        assert y.dtype == np.float32
        assert (np.abs(y - wanted) <= tolerance(shape[-1], slope, gate, wanted)).all()


@pytest.mark.torch
def test_torch_gives_the_same(torch: ModuleType, lib: Any) -> None:
    x, gate = torch.randn(6, 40), torch.randn(6, 40)
    weight = torch.randn(40)
    wanted = torch.nn.functional.rms_norm(x.double(), (40,), weight.double(), 1e-6) * torch.sigmoid(gate.double() * 2)
    y = lib.gated_norm(x, gate, weight, slope=2.0)
    bound = torch.from_numpy(tolerance(40, 2.0, gate, wanted.numpy()))
    assert ((y - wanted).abs() <= bound).all()
