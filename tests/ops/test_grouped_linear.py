"""A linear layer for groups of rows: its definition and its reference, and torch's own."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.ops.grouped_linear import grouped_linear
from tests.grouped_inputs import OFFSETS, arguments


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
@pytest.mark.parametrize("without", [(), ("bias",), ("scale",), ("bias", "scale")])
def test_definition_and_reference_agree(offsets: list[int], activation: str, without: tuple[str, ...]) -> None:
    call = {**arguments(offsets, 5, 7, "float64", without), "activation": activation}
    wanted = grouped_linear.expected(**call)
    np.testing.assert_allclose(grouped_linear.evaluate(**call, dtype="float64"), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("without", [(), ("bias", "scale")])
def test_torch_agrees(torch: ModuleType, without: tuple[str, ...]) -> None:
    for offsets in OFFSETS.values():
        call = arguments(offsets, 5, 7, "float64", without)
        tensors = {n: torch.from_numpy(x) for n, x in call.items()}
        found = grouped_linear.peers["torch"](**tensors, activation="silu").numpy()
        np.testing.assert_allclose(found, grouped_linear.expected(**call, activation="silu"), rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-5, 25), min_size=2, max_size=9))
def test_a_segment_is_how_many_offsets_are_not_past_a_position(offsets: list[int]) -> None:
    """Of any offsets, those that a call on the CPU would refuse too."""

    @og.op
    def which(x: og.Tensor["n"], offsets: og.Tensor["m", og.integer]) -> og.Tensor:
        return og.segment(offsets, "n")

    found = which.evaluate(np.zeros(20, np.float32), np.array(offsets))
    np.testing.assert_array_equal(found, [sum(o <= p for o in offsets) - 1 for p in range(20)])


def test_rows_outside_of_all_groups_belong_to_the_nearest() -> None:
    """What a call on a GPU computes of offsets that the host does not read."""
    call = arguments([0, 4, 9], 5, 7, "float64", ("bias", "scale"))
    found = grouped_linear.evaluate(**{**call, "offsets": np.array([2, 4, 7])}, dtype="float64")
    np.testing.assert_allclose(found, grouped_linear.expected(**call), rtol=1e-12)


def test_mistakes_in_a_definition() -> None:
    def refused(match: str, function: Any) -> None:
        with pytest.raises(og.OpsgenError, match=match):
            og.op(function)

    def floats(x: og.Tensor["n"], y: og.Tensor["m"]) -> og.Tensor:
        return og.segment(y, "n")

    def own_dim(x: og.Tensor["n", og.int64]) -> og.Tensor:
        return og.segment(x, "n")

    def unknown(x: og.Tensor["n", og.int64]) -> og.Tensor:
        return og.segment(x, "rows")

    def matrix(x: og.Tensor["n", "m", og.int64]) -> og.Tensor:
        og.require_sorted(x)
        return x

    refused(r"E1003.*vector of integers", floats)
    refused(r"E1010.*lie along 'n', the dim that they cut", own_dim)
    refused(r"E1001.*'rows'", unknown)
    refused(r"E1003.*require_sorted.*vector of integers", matrix)


def test_an_offset_more_than_groups() -> None:
    call = arguments([0, 3, 8], 5, 7, "float64", ("bias", "scale"))
    with pytest.raises(og.OpsgenError, match=r"E4010.*an offset for each expert and one for the end"):
        grouped_linear.evaluate(**{**call, "offsets": np.array([0, 3, 5, 8])})
