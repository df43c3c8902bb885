"""``from __future__ import annotations``: annotations are strings, read where the op was written."""
# ruff: noqa: UP037  (the strings in the brackets are dim names; without their quotes they would be variables)

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

import opsgen as og


@og.op
def scaled(
    x: og.Tensor["...", "n"],
    w: og.Tensor["n"] | None = None,
    *,
    eps: float = 0.5,
    flag: bool = False,
    mode: Literal["a", "b"] = "a",
) -> og.Tensor:
    y = x + eps
    return y if w is None else y * w


def test_an_op_of_a_module() -> None:
    assert [p.role for p in scaled.parameters] == ["tensor", "tensor", "scalar", "attribute", "attribute"]
    assert scaled.parameters[1].optional and scaled.parameters[4].choices == ("a", "b")
    np.testing.assert_array_equal(scaled.evaluate(np.ones(2), np.full(2, 4.0)), [6, 6])


def test_an_op_inside_a_function_sees_its_local_names() -> None:
    import opsgen as local

    Ids = local.Tensor["m", local.int64]
    kind = local.int32

    @local.op
    def gather(x: local.Tensor["n"], ids: Ids, more: local.Tensor["m", kind]) -> Any:
        return x.at(n=ids + more)

    assert [p.spec.dims for p in gather.parameters if p.spec] == [("n",), ("m",), ("m",)]
    found = gather.evaluate(np.arange(5.0), np.array([0, 3]), np.array([1, 1], np.int32))
    np.testing.assert_array_equal(found, [1, 4])


def test_annotated() -> None:
    @og.op
    def f(x: Annotated[og.Tensor, "...", "n"], b: Annotated[og.Tensor, "n"] | None = None) -> og.Tensor:
        return x if b is None else x + b

    assert f.parameters[0].spec == scaled.parameters[0].spec
    assert f.parameters[1].spec == scaled.parameters[1].spec
