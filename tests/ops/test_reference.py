"""Each op three ways in double: its own reference, its definition in numpy, and torch, within 1e-12 of each other."""

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opsgen as og
from opsgen.dsl import Op
from opsgen.dsl.op import variants
from opsgen.ops import all_ops
from tests import arrays

LEADS = [(), (1,), (7,), (3, 1, 2), (0,), (2, 0)]
_DIMS = (
    *("hidden", "columns", "vocab", "in_features", "out_features"),
    *("batch", "heads", "queries", "keys", "head_dim", "value_dim", "length"),
    *("entries", "destinations", "classes", "sources", "wanted"),
    *("channels", "pixels"),
)
SIZES = [
    dict(zip(_DIMS, sizes))
    for sizes in (
        (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 1),
        (13, 17, 11, 3, 8, 2, 3, 5, 7, 5, 3, 7, 11, 5, 7, 19, 3, 12, 5),
        (129, 257, 101, 65, 33, 3, 1, 2, 33, 17, 19, 31, 33, 17, 65, 129, 40, 36, 33),
        (0, 0, 5, 0, 4, 2, 2, 3, 0, 3, 2, 0, 3, 4, 3, 0, 2, 8, 0),
        (2, 2, 2, 4, 0, 0, 2, 0, 3, 0, 2, 2, 4, 2, 2, 3, 0, 0, 3),
    )
]

# Heads that are shared, offsets and page tables are not drawn at random: test_attention.py and test_grouped_linear.py
# have those ops.
OPS = [op for op in all_ops().values() if not {"kv_heads", "offsets"} & set(op.dims)]


def attribute_choices(op: Op) -> list[dict[str, Any]]:
    """Every combination of an op's attributes."""
    attributes = [p for p in op.parameters if p.role == "attribute"]
    choices = [arrays.choices(p) for p in attributes]
    return [dict(zip([p.name for p in attributes], values)) for values in itertools.product(*choices)]


def arguments(op: Op, absent: frozenset[str], lead: tuple[int, ...], sizes: dict[str, int]) -> dict[str, Any]:
    """Of a call in float64."""
    return arrays.arguments(op, absent, lead, sizes, "float64")


def by_name(values: Any) -> dict[str, NDArray[Any]]:
    return values if isinstance(values, dict) else {"out": values}


def assert_close(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        assert value.dtype == np.float64 or value.dtype.kind == "i"
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, strict=True)


CALLS = [
    pytest.param(op, absent, attributes, id=f"{op.name}-{'-'.join(['without', *sorted(absent)])}-{attributes}")
    for op in OPS
    for absent in variants(op)
    for attributes in attribute_choices(op)
]


@pytest.mark.parametrize(("op", "absent", "attributes"), CALLS)
@pytest.mark.parametrize("sizes", range(len(SIZES)), ids=["ones", "primes", "past-tiles", "no-reduction", "no-result"])
def test_definition_and_reference_agree(op: Op, absent: frozenset[str], attributes: dict[str, Any], sizes: int) -> None:
    for lead in LEADS if any(p.spec and p.spec.leading for p in op.parameters) else [()]:
        given = {**arguments(op, absent, lead, arrays.SIZES_OF.get(op.name, SIZES)[sizes]), **attributes}
        assert_close(by_name(op.evaluate(**given, dtype="float64")), by_name(op.expected(**given)))


def tensor(torch: ModuleType, x: NDArray[Any]) -> Any:
    """The same numbers, of types that numpy has not as their bits."""
    if x.dtype.kind in "biuf" and x.dtype.isbuiltin == 1:
        return torch.from_numpy(x)
    return torch.from_numpy(x.view(f"u{x.dtype.itemsize}").copy()).view(getattr(torch, x.dtype.name))


@pytest.mark.torch
@pytest.mark.parametrize(("op", "absent", "attributes"), CALLS)
def test_torch_agrees(torch: ModuleType, op: Op, absent: frozenset[str], attributes: dict[str, Any]) -> None:
    for sizes in arrays.SIZES_OF.get(op.name, SIZES)[:3]:
        given = {**arguments(op, absent, (3, 2), sizes), **attributes}
        wanted = peer_value(torch, op, given)
        assert_close(by_name(op.expected(**given)), wanted)
        assert_close(by_name(op.evaluate(**given, dtype="float64")), wanted)


def peer_value(torch: ModuleType, op: Op, given: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """What the op's peer, the one of torch, gives for numpy arrays."""
    tensors = {n: tensor(torch, v) if isinstance(v, np.ndarray) else v for n, v in given.items()}
    found = op.peers["torch"](**tensors)
    return {n: v.numpy() for n, v in by_name(found).items()}


# -- inputs that broke others ------------------------------------------------------------------------------------------
def test_layer_norm_of_a_large_mean_in_float32() -> None:
    x = np.array([80000, 80001, 80002, 80003], np.float32)
    y = all_ops()["layer_norm"].evaluate(x, np.ones(4, np.float32), eps=1e-5)
    assert y.dtype == np.float32
    centered = np.array([-1.5, -0.5, 0.5, 1.5])
    np.testing.assert_allclose(y, centered / np.sqrt(1.25 + 1e-5), rtol=4 * np.finfo(np.float32).eps)


def test_layer_norm_of_a_constant_row_is_the_bias() -> None:
    bias = np.random.default_rng(1).standard_normal(768).astype(np.float32)
    weight = np.full(768, 3, np.float32)
    y = all_ops()["layer_norm"].evaluate(np.full((2, 768), 1234, np.float32), weight, bias)
    assert np.array_equal(y, np.broadcast_to(bias, y.shape))


@pytest.mark.parametrize("x", [np.r_[np.zeros(255), 255], np.random.default_rng(2).standard_normal(4) + 2000])
def test_layer_norm_of_rows_that_cancel(x: NDArray[Any]) -> None:
    x = x.astype(np.float32)
    y = all_ops()["layer_norm"].evaluate(x, np.ones(x.shape, np.float32))
    h = x.astype(np.float64)
    wanted = (h - h.mean()) / np.sqrt(h.var() + 1e-5)
    # The mean is rounded: an error of half an ulp of it in each difference, beside a spread of std.
    tolerance = np.spacing(np.float32(np.abs(h).max())) / h.std() + 8 * np.finfo(np.float32).eps * np.abs(wanted).max()
    np.testing.assert_allclose(y, wanted, rtol=0, atol=tolerance)


def test_rms_norm_of_float16_above_256_does_not_overflow() -> None:
    x = (np.random.default_rng(3).standard_normal((3, 64)) * 10000).clip(-60000, 60000).astype(np.float16)
    weight = np.ones(64, np.float16)
    y = all_ops()["rms_norm"].evaluate(x, weight)
    assert y.dtype == np.float16
    h = x.astype(np.float64)
    np.testing.assert_allclose(y, h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6), rtol=np.finfo(np.float16).eps)


def test_softmax_of_4096_equal_float16_logits_sums_to_one() -> None:
    y = all_ops()["softmax"].evaluate(np.full(4096, 3, np.float16))
    assert y.dtype == np.float16
    assert np.array_equal(y, np.full(4096, 1 / 4096))


def test_a_fully_masked_row_is_zero_and_disturbs_no_other() -> None:
    given = arguments(all_ops()["masked_attention"], frozenset(), (), SIZES[1])
    given["mask"] = np.ones((2, 7), bool)
    whole = all_ops()["attention"].expected(given["q"], given["k"], given["v"], scale=0.37)
    given["mask"][0] = False
    given["k"][0] = given["v"][0] = np.nan  # what is masked may hold anything
    y = all_ops()["masked_attention"].evaluate(**given)
    assert np.array_equal(y[0], np.zeros(y[0].shape))
    np.testing.assert_allclose(y[1], whole[1], rtol=1e-12, atol=1e-12)


def test_what_padding_holds_does_not_reach_the_mean() -> None:
    x = np.ones((2, 3, 2))
    x[0, 2] = np.nan
    x[1] = np.inf
    mask = np.array([[True, True, False], [False, False, False]])
    assert np.array_equal(all_ops()["masked_mean_pool"].evaluate(x, mask), [[1, 1], [0, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_results_have_the_type_of_the_inputs(op: Op, dtype: str) -> None:
    declared = {
        "int8_linear": {"bfloat16"},
        "fp8_linear": {"bfloat16"},
        "argmax": {"int64"},
        "sample_logits": {"int64"},
    }
    declared |= {
        "cross_entropy": {"float32"},
        "dynamic_quantize_int8": {"int8", "float32"},
        "moe_router": {"int64", dtype},
        "moe_capacity_router": {"int64", dtype},
        "top_k": {"int64", dtype},
    }
    kinds = {"quantize": {"int8"}, "dequantize": {"bfloat16"}}  # quantize_int8_rows and so on
    wanted = declared.get(op.name) or kinds.get(op.name.split("_")[0]) or {dtype}
    assert {r.dtype.name for r in op.trace(getattr(og, dtype)).results} == wanted
