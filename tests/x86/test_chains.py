"""Functions of functions, and integers made floats: TVM's analysis must not look through them, or it takes for ever."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opsgen as og

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(og, name)
    for name in ("exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos")
}


def compositions(outer: str) -> og.Op:
    """``outer`` of every function, as results of one op."""

    @og.op(name=f"{outer}_of")
    def f(x: og.Tensor["rows_", "n"]) -> og.Results:
        return og.results(**{inner: FUNCTIONS[outer](FUNCTIONS[inner](x)) for inner in FUNCTIONS})

    return f


@pytest.fixture(scope="module")
def compiled() -> tuple[Any, dict[str, og.Op]]:
    ops = {outer: compositions(outer) for outer in FUNCTIONS}
    return og.compile(ops.values()), ops


@pytest.mark.parametrize("outer", FUNCTIONS)
def test_two_functions_in_a_row(compiled: tuple[Any, dict[str, og.Op]], outer: str) -> None:
    lib, ops = compiled
    x = np.linspace(0.55, 1.45, 3 * 67, dtype=np.float32).reshape(3, 67)
    found, wanted = lib[f"{outer}_of"](x), ops[outer].evaluate(x, dtype="float64")
    for inner in FUNCTIONS:
        # The inner value is off by up to 4 ulp; the outer function passes that on by its slope, up to 100 here.
        np.testing.assert_allclose(getattr(found, inner), wanted[inner], rtol=4e-5, atol=4e-5, err_msg=inner)


def test_alibi() -> None:
    """Press, Smith and Lewis, Train Short, Test Long (arXiv:2108.12409): a product of a float with a position."""

    @og.op
    def alibi(x: og.Tensor["...", "queries", "keys"], slope: og.Tensor["..."]) -> og.Tensor:
        return og.softmax(x + slope * (og.index("keys") - og.index("queries")), over="keys")

    rng = np.random.default_rng(0)
    x, slope = rng.standard_normal((2, 3, 5, 37)).astype(np.float32), rng.random((2, 3)).astype(np.float32)
    distance = np.arange(37)[None, :] - np.arange(5)[:, None]
    scores = x.astype(np.float64) + slope.astype(np.float64)[..., None, None] * distance
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    # Scores reach 40, and their rounding error comes out as a relative one.
    np.testing.assert_allclose(
        og.compile(alibi).alibi(x, slope), weights / weights.sum(-1, keepdims=True), rtol=3e-5, atol=1e-7
    )


def test_rope_with_its_angles() -> None:
    """Su et al., RoFormer (arXiv:2104.09864), half layout, angles computed in the op."""

    @og.op
    def rope(x: og.Tensor["...", "length", "width"], *, base: float = 10000.0) -> og.Tensor:
        halves = x.split("width", two=2, half=None)
        angle = og.index("length") * og.exp(og.index("half") * (-2.0) / og.size("width") * og.log(base))
        a, b = halves.at(two=0), halves.at(two=1)
        cos, sin = og.cos(angle), og.sin(angle)
        return og.concat(a * cos - b * sin, b * cos + a * sin, dim="half", into="turned")

    x = np.random.default_rng(1).standard_normal((2, 33, 16)).astype(np.float32)
    angle = np.arange(33)[:, None] * 10000.0 ** (-2.0 * np.arange(8) / 16)
    a, b = x[..., :8].astype(np.float64), x[..., 8:].astype(np.float64)
    wanted = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)
    # The angle reaches 32, with an error of a few ulp of that.
    np.testing.assert_allclose(og.compile(rope).rope(x), wanted, atol=3e-5)


def test_a_long_chain() -> None:
    """Longer than Python's stack is deep."""

    @og.op
    def chain(x: og.Tensor["n"]) -> og.Tensor:
        for i in range(400):
            x = og.where(x > i, x * 1.001, x + 0.5)
        return x

    x = np.linspace(-3, 3, 21, dtype=np.float32)
    # 400 steps of one rounding each.
    np.testing.assert_allclose(og.compile(chain).chain(x), chain.evaluate(x), rtol=400 * 2.0**-23)
