"""The attention ops in numpy: against their references row by row, against torch, and at the edges of their masks."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opsgen as og
from opsgen.analysis.online import analyse
from opsgen.dsl import Op
from opsgen.dsl.op import variants
from opsgen.dsl.tensor import Map, Reduce, Tensor, walk
from opsgen.ops import all_ops, flex_attention
from opsgen.ops._attention import dense_reference
from tests.attention_inputs import BLOCK, SIZES, arguments

OPS = {name: op for name, op in all_ops().items() if name.endswith("attention")}


def attributes_of(op: Op) -> list[dict[str, Any]]:
    return {
        "causal_attention": [{"align": "bottom-right"}, {"align": "top-left"}],
        "varlen_attention": [{"causal": False}, {"causal": True}],
        "block_sparse_attention": [{"block_size": BLOCK}],
    }.get(op.name, [{}])


CALLS = [
    pytest.param(op, absent, attributes, id=f"{op.name}-{'-'.join(sorted(absent))}-{attributes}")
    for op in OPS.values()
    for absent in variants(op)
    for attributes in attributes_of(op)
]


def by_name(values: Any) -> dict[str, NDArray[Any]]:
    return values if isinstance(values, dict) else {"out": values}


def nodes(op: Op, kind: type[Tensor], name: str, **attributes: Any) -> list[Tensor]:
    found: list[Tensor] = []
    walk(op.trace(attributes=attributes).outputs(), found.append)
    return [n for n in found if isinstance(n, kind) and getattr(n, "op", None) == name]


# -- definitions and references ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("op", "absent", "attributes"), CALLS)
def test_definition_and_reference_agree(
    op: Op, absent: frozenset[str], attributes: dict[str, Any], sizes: dict[str, int]
) -> None:
    given = {**arguments(op, sizes), **attributes, **dict.fromkeys(absent)}
    found, wanted = by_name(op.evaluate(**given, dtype="float64")), by_name(op.expected(**given))
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, strict=True, err_msg=name)


@pytest.mark.torch
@pytest.mark.parametrize("size", ["9 heads on 3", "12 heads on 2", "8 queries", "length 129", "width 192"])
@pytest.mark.parametrize(("op", "absent", "attributes"), CALLS)
def test_torch_agrees(torch: ModuleType, op: Op, absent: frozenset[str], attributes: dict[str, Any], size: str) -> None:
    given = {n: x for n, x in {**arguments(op, SIZES[size]), **attributes}.items() if n not in absent}
    for name in ("k_pages", "v_pages"):  # torch would multiply what no token is in by 0
        if name in given:
            given[name] = np.nan_to_num(given[name])
    tensors = {n: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for n, x in given.items()}
    (wanted, *_), found = by_name(op.expected(**given)).values(), op.peers["torch"](**tensors).numpy()
    # Where a query sees no key, the result is 0; of torch's forms some give NaN.
    np.testing.assert_allclose(np.where(wanted == 0, np.nan_to_num(found), found), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.torch
def test_cudnn_is_no_peer_on_the_cpu(torch: ModuleType) -> None:
    q = torch.ones(1, 1, 2, 8, dtype=torch.float16)
    peers = [op.peers["cuDNN"] for op in OPS.values() if "cuDNN" in op.peers]
    assert len(peers) == 3
    assert all(peer(q, q, q, scale=1.0) is NotImplemented for peer in peers)


# -- softmax and log-sum-exp with a mask -------------------------------------------------------------------------------
@og.op
def masked_softmax(x: og.Tensor["rows_", "n"], mask: og.Tensor["rows_", "n", og.bool_]):
    return og.results(y=og.softmax(x, over="n", where=mask), lse=og.logsumexp(x, over="n", where=mask))


def test_a_masked_row_gives_zeros_and_minus_infinity_and_disturbs_no_other() -> None:
    x = np.array([[1.0, 2.0, np.nan], [np.nan, np.inf, -np.inf], [0.5, 0.5, 0.5]])
    mask = np.array([[True, True, False], [False, False, False], [True, True, True]])
    found = masked_softmax.evaluate(x, mask, dtype="float64")
    e = np.exp(1.0)
    np.testing.assert_allclose(found["y"], [[1 / (1 + e), e / (1 + e), 0], [0, 0, 0], [1 / 3] * 3], rtol=1e-14)
    np.testing.assert_allclose(found["lse"], [np.log(e + e * e), -np.inf, 0.5 + np.log(3)], rtol=1e-14)


def test_what_is_not_masked_follows_arithmetic() -> None:
    x = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0], [-np.inf, -np.inf]])
    found = masked_softmax.evaluate(x, np.ones(x.shape, bool), dtype="float64")
    assert np.isnan(found["y"][[0, 1, 3]]).any(axis=1).all()
    assert np.isnan(found["lse"][[0, 1, 3]]).all()
    assert found["y"][2].tolist() == [0, 1]
    assert found["lse"][2] == 1
    unmasked = og.op(name="plain")(_plain).evaluate(x, dtype="float64")
    np.testing.assert_array_equal(unmasked["y"], found["y"])
    np.testing.assert_array_equal(unmasked["lse"], found["lse"])


def _plain(x: og.Tensor["rows_", "n"]):
    return og.results(y=og.softmax(x, over="n"), lse=og.logsumexp(x, over="n"))


def test_softmax_and_logsumexp_share_their_nodes() -> None:
    for op, exps in ((og.op(_plain), 1), (masked_softmax, 1), (OPS["causal_attention"], 1)):
        assert len(nodes(op, Map, "exp")) == exps, op.name
        assert len(nodes(op, Reduce, "max")) == 1, op.name

    @og.op
    def apart(x: og.Tensor["n", "m"], mask: og.Tensor["n", og.bool_]):
        return og.softmax(x, over="n") + og.softmax(x, over="m") + og.softmax(x, over="n", where=mask)

    assert len(nodes(apart, Map, "exp")) == 3


def test_over_nothing() -> None:
    found = og.op(name="plain")(_plain).evaluate(np.zeros((2, 0)))
    assert found["y"].shape == (2, 0)
    assert found["lse"].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_results_have_the_type_of_the_inputs_and_a_log_sum_exp_is_float32_at_least(op: Op, dtype: str) -> None:
    for r in op.trace(getattr(og, dtype)).results:
        assert r.dtype.name == ("float32" if r.name == "lse" and "16" in dtype else dtype), r.name


def test_a_mask_is_of_bools() -> None:
    with pytest.raises(og.OpsgenError, match=r"E1003.*bool condition"):

        @og.op
        def wrong(x: og.Tensor["n"], mask: og.Tensor["n"]):
            return og.softmax(x, over="n", where=mask)


# -- what masks are made of --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["causal_attention", "sliding_window_attention", "varlen_attention", "paged_attention"]
)
def test_masks_compare_the_position_of_the_key_with_a_bound_of_the_row(name: str) -> None:
    found: list[Tensor] = []
    walk(OPS[name].trace().outputs(), found.append)
    comparisons = [n for n in found if isinstance(n, Map) and n.op in ("lt", "le", "gt", "ge") and "keys" in n.dims]
    assert comparisons
    for n in comparisons:
        key, bound = n.args
        assert type(key).__name__ == "Index"
        assert "keys" not in bound.dims


@pytest.mark.parametrize(("op", "absent", "attributes"), CALLS)
def test_one_loop_over_the_keys_is_proved_to_do(op: Op, absent: frozenset[str], attributes: dict[str, Any]) -> None:
    found = analyse(op.trace(absent=absent, attributes=attributes))
    assert [[link.op for link in chain.links] for chain in found.chains] == [["max", "sum", "sum"]]
    assert not found.breaks


def test_a_bias_of_minus_infinity_masks_and_nan_in_it_does_not() -> None:
    op = OPS["scaled_dot_product_attention"]
    q, k, v = np.ones((1, 1, 3, 2)), np.ones((1, 1, 2, 2)), np.array([1.0, 3.0]).reshape(1, 1, 2, 1)
    bias = np.array([[0.0, -np.inf], [-np.inf, -np.inf], [np.nan, 0.0]]).reshape(1, 1, 3, 2)
    y = op.evaluate(q, k, v, bias, scale=1.0).ravel()
    np.testing.assert_array_equal(y, [1.0, 0.0, np.nan])


def test_what_masked_keys_hold_does_not_matter() -> None:
    op = OPS["masked_attention"]
    given = arguments(op, {"batch": 3})
    wanted = op.evaluate(**given)
    for name in "kv":
        given[name].transpose(0, 2, 1, 3)[~given["mask"]] = np.nan
    np.testing.assert_array_equal(op.evaluate(**given), wanted)
    assert np.array_equal(wanted[1], np.zeros(wanted[1].shape))


# -- the caller's own score and mask -----------------------------------------------------------------------------------
def test_flex_attention_with_functions_of_everything() -> None:
    def score(scores: Any, batch: Any, head: Any, query: Any, key: Any, *, slopes: og.Tensor["heads"], cap: float):
        return slopes * (key - query) + cap * og.tanh(scores / cap)  # slopes come first: y keeps its dims' order

    def mask(
        batch: Any, head: Any, query: Any, key: Any, *,
        document: og.Tensor["batch", "keys", og.int64], offset: og.Tensor["heads", og.int64] | None = None,
    ):  # fmt: skip
        seen = (document.rename(keys="keys_").at(keys_=query) == document) & (key <= query)
        return seen if offset is None else seen & (key >= offset)

    op = flex_attention(score, mask, lse=True, name="documents")
    assert op.call_form() == "documents(q, k, v, *, slopes, cap, document, offset=None, scale)"
    given = arguments(op, {"queries": 9, "keys": 9})
    given["offset"] = np.arange(6)
    found = op.evaluate(**given, dtype="float64")
    at, document = np.arange(9), given["document"]
    seen = (document[:, None, :, None] == document[:, None, None, :]) & (at[:, None] >= at)
    bias = given["slopes"][:, None, None] * (at - at[:, None])
    wanted = dense_reference(
        *(given[n] for n in "qkv"),
        scale=given["scale"],
        score=lambda scores: bias + 2.0 * np.tanh(scores / 2.0),
        seen=seen & (at >= given["offset"][:, None, None]),
    )
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
    assert (wanted["lse"] == -np.inf).any()


def test_flex_attention_alone_is_attention() -> None:
    op = flex_attention()
    given = arguments(op, SIZES["9 heads on 3"])
    wanted = OPS["scaled_dot_product_attention"].expected(**given)
    np.testing.assert_allclose(op.evaluate(**given), wanted, rtol=1e-12, atol=1e-12)


def test_mistakes_in_a_score_or_mask_are_shown_where_they_are() -> None:
    def turned(scores: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        return og.sum(scores, over="keys")

    def adds_a_dim(scores: Any, batch: Any, head: Any, query: Any, key: Any, *, x: og.Tensor["other"]) -> Any:
        return scores + x

    def of_a_value(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key <= query and key > 3

    def numbers(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key - query

    def one(scores: Any, batch: Any, head: Any, query: Any, key: Any, *, bias: og.Tensor["heads"]) -> Any:
        return scores + bias

    def other(batch: Any, head: Any, query: Any, key: Any, *, bias: og.Tensor["keys"]) -> Any:
        return bias > 0.0

    def untyped(scores: Any, batch: Any, head: Any, query: Any, key: Any, *, bias) -> Any:  # type: ignore[no-untyped-def]
        return scores + bias

    for score, mask, message in (
        (turned, None, "E1013"),
        (adds_a_dim, None, "E1013"),
        (lambda scores, batch, head, query, key: 1.0, None, "E1003"),
        (None, of_a_value, r"E1004: test_attention.py:\d+ \(`return key <= query and key > 3`\)"),
        (None, numbers, "E1003.*bool condition"),
        (one, other, "E1010.*different parameters 'bias'"),
        (untyped, None, "E1005.*'bias'"),
    ):
        with pytest.raises(og.OpsgenError, match=message):
            flex_attention(score, mask)


# -- conditions on dims and on the elements of inputs ------------------------------------------------------------------
def test_conditions_are_checked_where_they_are_written() -> None:
    with pytest.raises(og.OpsgenError, match=r"E1003.*vector of integers"):

        @og.op
        def floats(x: og.Tensor["n"], offsets: og.Tensor["m"]):
            og.require_offsets(offsets, "n")
            return x

    with pytest.raises(og.OpsgenError, match=r"E1003.*vector of integers"):

        @og.op
        def matrix(x: og.Tensor["n"], offsets: og.Tensor["m", "k", og.int64]):
            og.require_offsets(offsets, "n")
            return x

    with pytest.raises(og.OpsgenError, match=r"E1001.*'other'"):

        @og.op
        def unknown(x: og.Tensor["n"], lengths: og.Tensor["n", og.int64]):
            og.require_lengths(lengths, "other")
            return x

    with pytest.raises(og.OpsgenError, match=r"E1010.*outside an op"):
        og.require_lengths(None, "n")  # type: ignore[arg-type]


def test_heads_that_do_not_divide_are_refused() -> None:
    op = OPS["causal_attention"]
    for kv_heads in (4, 5, 7, 0):
        with pytest.raises(og.OpsgenError, match=r"E4010.*heads must be a multiple of kv_heads"):
            op.evaluate(**arguments(op, {"kv_heads": kv_heads}))


def test_a_block_mask_covers_the_scores() -> None:
    op = OPS["block_sparse_attention"]
    given = arguments(op, {"queries": 33, "keys": 40})
    given["block_mask"] = given["block_mask"][:, :2]
    with pytest.raises(og.OpsgenError, match=r"E4010.*a block for every 16 queries begun"):
        op.evaluate(**given, block_size=BLOCK)
