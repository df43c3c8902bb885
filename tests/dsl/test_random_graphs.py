"""Random graphs of maps, reductions and dots, beside numpy on arrays that always have all dims in one order.

A dim that a value does not have is of length 1 there, and numpy broadcasts by position: no rule about names is shared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import opsgen as og

DIMS = ("a", "b", "c")
Array = NDArray[np.float64]

UNARY: list[tuple[Callable[[Any], Any], Callable[[Array], Array]]] = [
    (og.tanh, np.tanh),
    (og.abs, np.abs),
    (lambda x: og.exp(-og.abs(x)), lambda x: np.exp(-np.abs(x))),
    (lambda x: og.where(x > 0.25, x, 0.5), lambda x: np.where(x > 0.25, x, 0.5)),
    (lambda x: 1.5 - x, lambda x: 1.5 - x),
]
BINARY: list[tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = [
    (lambda x, y: x + y, np.add),
    (lambda x, y: x - y, np.subtract),
    (lambda x, y: x * y, np.multiply),
    (og.max, np.maximum),
    (og.min, np.minimum),
    (lambda x, y: og.where(x < y, x * 2.0, y), lambda x, y: np.where(x < y, x * 2, y)),
]
REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "sum": lambda x, axes: x.sum(axis=axes, keepdims=True),
    "max": lambda x, axes: x.max(axis=axes, keepdims=True, initial=-np.inf),
    "min": lambda x, axes: x.min(axis=axes, keepdims=True, initial=np.inf),
    "mean": lambda x, axes: x.sum(axis=axes, keepdims=True) / np.prod([x.shape[i] for i in axes]),
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    sizes = {d: data.draw(st.sampled_from([1, 2, 3, 5, 0]), label=d) for d in DIMS}
    orders = [data.draw(st.lists(st.sampled_from(DIMS), unique=True, max_size=3), label="dims") for _ in range(3)]
    steps = data.draw(st.integers(1, 8), label="steps")
    inputs = [np.random.default_rng(i).standard_normal([sizes[d] for d in order]) for i, order in enumerate(orders)]

    def spread(x: Array, order: list[str]) -> Array:
        """x with all dims, in the one order."""
        present = [d for d in DIMS if d in order]
        return x.transpose([order.index(d) for d in present]).reshape([sizes[d] if d in order else 1 for d in DIMS])

    def full(x: Array, dims: tuple[str, ...]) -> Array:
        return np.broadcast_to(x, [sizes[d] if d in dims else 1 for d in DIMS])

    program: list[Callable[[list[Any]], Any]] = []  # each step on the values so far
    dims = [tuple(order) for order in orders]
    values = [spread(x, order) for x, order in zip(inputs, orders)]

    def extend(step: Callable[[list[Any]], Any], value: Array, of: tuple[str, ...]) -> None:
        program.append(step)
        values.append(full(value, of))
        dims.append(of)

    for _ in range(steps):
        i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
        both = tuple(dict.fromkeys(dims[i] + dims[j]))
        kind = data.draw(st.sampled_from(["unary", "binary", "reduce", "dot", "softmax"]))
        shared = [d for d in dims[i] if d in dims[j]]
        if kind == "reduce" and dims[i]:
            over = tuple(data.draw(st.lists(st.sampled_from(dims[i]), unique=True, min_size=1)))
            name = data.draw(st.sampled_from(sorted(REDUCTIONS)))
            with np.errstate(all="ignore"):
                value = REDUCTIONS[name](full(values[i], dims[i]), tuple(DIMS.index(d) for d in over))
            left = tuple(d for d in dims[i] if d not in over)
            extend(lambda v, n=name, i=i, o=over: getattr(og, n)(v[i], over=o), value, left)
        elif kind == "softmax" and dims[i]:
            along = data.draw(st.sampled_from(dims[i]))
            with np.errstate(all="ignore"):
                axis = DIMS.index(along)
                e = np.exp(values[i] - values[i].max(axis=axis, keepdims=True, initial=-np.inf))
                value = e / e.sum(axis=axis, keepdims=True)
            extend(lambda v, i=i, d=along: og.softmax(v[i], over=d), value, dims[i])
        elif kind == "dot" and shared:
            over = tuple(data.draw(st.lists(st.sampled_from(shared), unique=True, min_size=1)))
            with np.errstate(all="ignore"):
                value = (values[i] * values[j]).sum(axis=tuple(DIMS.index(d) for d in over), keepdims=True)
            left = tuple(d for d in both if d not in over)
            extend(lambda v, i=i, j=j, o=over: og.dot(v[i], v[j], over=o), value, left)
        elif kind == "binary":
            ours, numpys = data.draw(st.sampled_from(BINARY))
            with np.errstate(all="ignore"):
                value = numpys(values[i], values[j])
            extend(lambda v, f=ours, i=i, j=j: f(v[i], v[j]), value, both)
        else:
            ours_of_one, numpys_of_one = data.draw(st.sampled_from(UNARY))
            with np.errstate(all="ignore"):
                value = numpys_of_one(values[i])
            extend(lambda v, f=ours_of_one, i=i: f(v[i]), value, dims[i])

    first, second, third = (og.Tensor[tuple(order)] for order in orders)

    @og.op
    def f(x: first, y: second, z: third) -> og.Tensor:
        known: list[Any] = [x, y, z]
        for step in program:
            known.append(step(known))
        return known[-1]

    graph = f.trace()
    assert graph.results[0].value.dims == dims[-1]
    y = f.evaluate(*inputs)
    assert y.shape == tuple(sizes[d] for d in dims[-1])
    np.testing.assert_allclose(spread(y, list(dims[-1])), values[-1], rtol=1e-9, atol=1e-9)
