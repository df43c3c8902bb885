"""The attention ops on x86, against their references row by row, at the sizes and values that broke others.

What a result may be off by comes from an error analysis of the op's graph (opsgen.lowering.error_bounds). Tests name
the public report that they come from, where there is one.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opsgen as og
from opsgen.compiler import Variant
from opsgen.dsl import Op
from opsgen.lowering.error_bounds import bounded
from opsgen.ops import all_ops, flex_attention
from tests import arrays
from tests.attention_inputs import BLOCK, SIZES, arguments

OPS = {name: op for name, op in all_ops().items() if name.endswith("attention")}
F32 = 2.0**-24


def _relative(
    scores: Any, batch: Any, head: Any, query: Any, key: Any, *, slopes: og.Tensor["heads"], cap: float
) -> Any:
    return slopes * (key - query) + cap * og.tanh(scores / cap)


def _document(batch: Any, head: Any, query: Any, key: Any, *, document: og.Tensor["batch", "keys", og.integer]) -> Any:
    return (document == document.rename(keys="other").at(other=query)) & (key <= query)


OPS["documents"] = flex_attention(_relative, _document, lse=True, name="documents")
OPS["partial"] = flex_attention(lse=True, name="partial")

CALLS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("attention", (), {}),
    ("masked_attention", (), {}),
    ("scaled_dot_product_attention", (), {}),
    ("scaled_dot_product_attention", ("mask",), {}),
    ("scaled_dot_product_attention", ("bias",), {}),
    ("scaled_dot_product_attention", ("bias", "mask"), {}),
    ("causal_attention", (), {"align": "bottom-right"}),
    ("causal_attention", (), {"align": "top-left"}),
    ("sliding_window_attention", (), {}),
    ("alibi_attention", (), {}),
    ("softcap_attention", (), {}),
    ("varlen_attention", (), {"causal": False}),
    ("varlen_attention", (), {"causal": True}),
    ("paged_attention", (), {}),
    ("block_sparse_attention", (), {"block_size": BLOCK}),
    ("documents", (), {}),
    ("partial", (), {}),
]
HALVES = [
    ("masked_attention", (), {}),
    ("scaled_dot_product_attention", (), {}),
    ("causal_attention", (), {"align": "bottom-right"}),
    ("alibi_attention", (), {}),
    ("varlen_attention", (), {"causal": True}),
    ("paged_attention", (), {}),
]
_INTEGERS = dict.fromkeys(("q_offsets", "k_offsets", "page_table", "lengths"), "int32")


def variants(calls: list[tuple[str, tuple[str, ...], dict[str, Any]]]) -> list[Variant]:
    return [og.variant(OPS[name], absent=absent, **attributes) for name, absent, attributes in calls]


@pytest.fixture(scope="module")
def lib() -> Any:
    return og.compile(variants(CALLS))


@pytest.fixture(scope="module")
def half_lib() -> Any:
    return og.compile(variants(HALVES), dtypes=[{"*": d, **_INTEGERS} for d in ("float16", "bfloat16")])


def check(lib: Any, op: Op, given: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """A call; each result is within the bounds of the error analysis around what the reference gives in double."""
    absent = {p.name: None for p in op.parameters if p.spec and p.name not in given}
    bounds = bounded(op, {**given, **absent})
    wanted = op.expected(**given)
    wanted = wanted if isinstance(wanted, dict) else {"out": wanted}
    got = lib[op.name](**given)
    results = dict(zip(bounds, got if isinstance(got, tuple) else (got,)))
    assert list(bounds) == list(wanted)
    for name, bound in bounds.items():
        np.testing.assert_allclose(bound.value, wanted[name], rtol=1e-10, atol=1e-10, err_msg=name)
        y, bad = results[name], bound.wrong(results[name])
        assert not len(bad), (
            f"{name}: {len(bad)} of {y.size} wrong, first at {tuple(bad[0])}: {y[tuple(bad[0])]} where "
            f"{bound.value[tuple(bad[0])]} ± {bound.bound[tuple(bad[0])]:.2e} is right"
        )
        assert bound.checked == bound.value.size, "every element has a bound that says something"
    return results


def without(given: dict[str, Any], absent: tuple[str, ...]) -> dict[str, Any]:
    return {n: x for n, x in given.items() if n not in absent}


# -- every op at every size --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "absent", "attributes"), CALLS)
def test_every_size(lib: Any, name: str, absent: tuple[str, ...], attributes: dict[str, Any]) -> None:
    op = OPS[name]
    for size, sizes in SIZES.items():
        if name in ("attention", "masked_attention"):
            sizes = {**sizes, "kv_heads": sizes.get("heads", 6)}
        if name == "documents":  # each query has the document of the key at its position
            sizes = {**sizes, "queries": min(sizes.get("queries", 5), sizes.get("keys", 11))}
        try:
            check(lib, op, {**without(arguments(op, sizes, "float32"), absent), **attributes})
        except AssertionError as wrong:
            raise AssertionError(f"{size}: {wrong}") from wrong


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "absent", "attributes"), HALVES)
def test_half_types(half_lib: Any, name: str, absent: tuple[str, ...], attributes: dict[str, Any], dtype: str) -> None:
    op = OPS[name]
    for size in ("ones", "more queries than keys", "9 heads on 3", "8 queries", "width 40", "width 192", "length 129"):
        given = {**arguments(op, SIZES[size], dtype, "int32"), **attributes}
        found = check(half_lib, op, given)
        assert all(str(x.dtype) == ("float32" if n == "lse" else dtype) for n, x in found.items())
    for size in ("no keys", "no queries"):
        check(half_lib, op, {**arguments(op, SIZES[size], dtype, "int32"), **attributes})


# -- masked rows -------------------------------------------------------------------------------------------------------
def test_queries_before_the_first_key_are_zero(lib: Any) -> None:  # flashinfer #4401
    given = arguments(OPS["causal_attention"], {"queries": 8, "keys": 5}, "float32")
    y, lse = lib.causal_attention(**given)
    assert np.array_equal(y[:, :, :3], np.zeros((2, 6, 3, 8)))
    assert (lse[:, :, :3] == -np.inf).all()
    group = [np.repeat(given[n], 2, axis=1) for n in "kv"]
    np.testing.assert_allclose(y[:, :, 3], group[1][:, :, 0], rtol=4 * F32)  # the first key alone
    np.testing.assert_allclose(
        lse[:, :, 3], (given["q"][:, :, 3] * group[0][:, :, 0]).sum(-1) * given["scale"], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("row", [0, 3, 6])
def test_one_masked_row_among_others_disturbs_none(lib: Any, row: int) -> None:  # pytorch #41508
    given = without(arguments(OPS["scaled_dot_product_attention"], {"queries": 7}, "float32"), ("bias",))
    given["mask"][...] = True
    whole = lib.scaled_dot_product_attention(**given)
    given["mask"][:, :, row] = False
    y = lib.scaled_dot_product_attention(**given)
    others = np.delete(np.arange(7), row)
    assert np.array_equal(y[:, :, row], np.zeros((2, 6, 8)))
    assert np.array_equal(y[:, :, others], whole[:, :, others])


def test_what_lies_past_a_length_does_not_matter(lib: Any) -> None:
    op = OPS["paged_attention"]
    given = arguments(op, {"keys": 40}, "float32")
    assert np.isnan(given["k_pages"]).any() and np.isnan(given["v_pages"]).any()
    y, lse = lib.paged_attention(**given)
    for other in (0.0, np.inf, -np.inf):
        clean = {n: np.nan_to_num(x, nan=other) if n.endswith("pages") else x for n, x in given.items()}
        assert all(np.array_equal(a, b) for a, b in zip((y, lse), lib.paged_attention(**clean)))


# -- values ------------------------------------------------------------------------------------------------------------
def test_a_second_scale_is_not_the_first(lib: Any) -> None:  # flashinfer #4014
    given = arguments(OPS["causal_attention"], {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 128}, "float32")
    given["align"] = "bottom-right"
    for scale in (128**-0.5, 3 * 128**-0.5, 128**-0.5):
        check(lib, OPS["causal_attention"], {**given, "scale": scale})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["causal_attention", "paged_attention"])
def test_scores_around_ten_thousand(lib: Any, half_lib: Any, name: str, dtype: str) -> None:
    library, op = (lib, OPS[name]) if dtype == "float32" else (half_lib, OPS[name])
    integers = "int64" if dtype == "float32" else "int32"
    given = arguments(op, {"queries": 6, "keys": 33, "head_dim": 4}, dtype, integers)
    for sign in (1, -1):  # the largest score is beyond ±1e4
        y, lse = library[name](**{**given, "scale": sign * 1e4})
        assert np.isfinite(y.astype(np.float32)).all()
        wanted = op.expected(**{**given, "scale": sign * 1e4})
        seen = wanted["lse"] > -np.inf
        np.testing.assert_allclose(lse[seen], wanted["lse"][seen], rtol=16 * F32, atol=16 * F32 * 1e5)
        assert (lse[~seen] == -np.inf).all()
    ones = "v_pages" if name == "paged_attention" else "v"
    y, lse = library[name](**{**given, "scale": 1e4, ones: np.ones_like(given[ones])})
    assert np.array_equal(np.abs(y.astype(np.float64) - 1) < 1e-6, np.broadcast_to((lse > -np.inf)[..., None], y.shape))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("value", [0.0, 3.0, -200.0])
def test_equal_scores_give_the_mean(lib: Any, half_lib: Any, value: float, dtype: str) -> None:
    op = OPS["scaled_dot_product_attention"]
    given = arguments(op, {"keys": 300, "head_dim": 4}, dtype)
    given["q"][...], given["k"][...] = value, 1
    given["mask"][...], given["bias"][...] = True, 0
    y = (lib if dtype == "float32" else half_lib).scaled_dot_product_attention(**given)
    mean = np.repeat(given["v"].astype(np.float64).mean(axis=2, keepdims=True), 2, axis=1)
    unit = {"float32": F32, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), np.broadcast_to(mean, y.shape), rtol=unit, atol=300 * F32)


def test_one_huge_score_takes_all(lib: Any) -> None:
    given = arguments(OPS["partial"], {"keys": 37}, "float32")
    given["q"][...], given["k"][...] = 1, 0
    given["k"][:, :, 20] = 1e6
    y, lse = lib.partial(**given)
    assert np.array_equal(y, np.broadcast_to(np.repeat(given["v"][:, :, 20:21], 2, axis=1), y.shape))
    np.testing.assert_allclose(lse, 1e6 * 8**0.5, rtol=4 * F32)


def test_nan_reaches_the_rows_that_see_it_and_no_other(lib: Any) -> None:
    given = arguments(OPS["causal_attention"], {"queries": 9, "keys": 9}, "float32")
    clean = lib.causal_attention(**given)
    given["k"][0, 1, 4, 3] = np.nan  # heads 2 and 3 of batch 0, queries from 4 on
    y, lse = lib.causal_attention(**given)
    hit = np.zeros(lse.shape, bool)
    hit[0, 2:4, 4:] = True
    assert np.array_equal(np.isnan(lse), hit)
    assert np.array_equal(np.isnan(y), np.broadcast_to(hit[..., None], y.shape))
    assert np.array_equal(y[~hit], clean.y[~hit])
    assert np.array_equal(lse[~hit], clean.lse[~hit])


def test_an_infinite_score_is_what_arithmetic_makes_of_it(lib: Any) -> None:
    given = arguments(OPS["partial"], {}, "float32")
    given["q"][...], given["k"][...] = 1, 0
    given["k"][0, 0, 2, 0] = np.inf  # inf - inf is NaN
    given["k"][0, 1, 2, 0] = -np.inf  # exp(-inf) is 0
    y, lse = lib.partial(**given)
    assert np.isnan(y[0, :2]).all() and np.isnan(lse[0, :2]).all()
    v = np.delete(given["v"][0, 1].astype(np.float64), 2, axis=0).mean(axis=0)
    np.testing.assert_allclose(y[0, 2:4], np.broadcast_to(v, (2, 5, 8)), rtol=16 * F32, atol=16 * F32)
    assert np.isfinite(y[1]).all()


@pytest.mark.parametrize("queries", [1, 2, 3, 4])
def test_parts_of_the_keys_are_merged_by_their_log_sum_exp(lib: Any, queries: int) -> None:  # flashinfer #1614
    sizes = {"heads": 7, "kv_heads": 1, "queries": queries, "keys": 300, "head_dim": 32, "value_dim": 16}
    given = arguments(OPS["partial"], sizes, "float32")
    whole = lib.partial(**given)
    parts = [
        lib.partial(**{**given, "k": given["k"][:, :, part], "v": given["v"][:, :, part]})
        for part in (slice(0, 0), slice(0, 17), slice(17, 256), slice(256, 300))
    ]
    lse = np.logaddexp.reduce([p.lse.astype(np.float64) for p in parts])
    y = sum(np.exp(p.lse - lse)[..., None] * p.y for p in parts)
    np.testing.assert_allclose(lse, whole.lse, rtol=64 * F32, atol=64 * F32)
    np.testing.assert_allclose(y, whole.y, rtol=64 * F32, atol=64 * F32)


def test_a_window_is_chosen_by_the_call(lib: Any) -> None:
    op = OPS["sliding_window_attention"]
    given = arguments(op, {"queries": 40, "keys": 45}, "float32")
    for window in (-1, 0, 1, 2, 39, 45, 46, 2.0**40):
        check(lib, op, {**given, "window": window})
    causal = lib.causal_attention(**without(given, ("window",)))
    assert np.array_equal(lib.sliding_window_attention(**{**given, "window": 2.0**24}), causal.y)
    assert not lib.sliding_window_attention(**{**given, "window": 0}).any()


# -- memory ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", arrays.LAYOUTS)
@pytest.mark.parametrize("name", ["scaled_dot_product_attention", "varlen_attention", "paged_attention"])
def test_layouts(lib: Any, name: str, layout: str) -> None:
    given = arguments(OPS[name], {"queries": 9, "keys": 40}, "float32")
    if name == "varlen_attention":
        given["causal"] = True
    arranged = {
        n: arrays.arranged(x, layout if "offsets" not in n or layout != "expanded" else "dense")
        for n, x in given.items()
        if isinstance(x, np.ndarray)
    }
    dense = {n: np.ascontiguousarray(x) for n, x in arranged.items()}
    got, wanted = lib[name](**{**given, **arranged}), lib[name](**{**given, **dense})
    for y, w in zip(got, wanted) if isinstance(got, tuple) else [(got, wanted)]:
        assert np.array_equal(y, w)


def test_an_expanded_bias_and_mask_are_read_in_place(lib: Any) -> None:
    given = arguments(OPS["scaled_dot_product_attention"], {"queries": 9, "keys": 40}, "float32")
    shape = given["mask"].shape
    given["bias"] = np.broadcast_to(given["bias"][:1], shape)  # one for all sequences
    given["mask"] = np.broadcast_to(given["mask"][:, :1, :1], shape)  # one for all heads and queries
    before = lib.stats["scaled_dot_product_attention"].copies_in
    check(lib, OPS["scaled_dot_product_attention"], given)
    assert lib.stats["scaled_dot_product_attention"].copies_in == before


def far(shape: tuple[int, ...], dim: int, values: NDArray[Any]) -> NDArray[Any]:
    """``values`` in memory where one step along a dim is more than 2^31 elements; what lies between is untouched."""
    step = 2**31 + 16
    size = values.itemsize
    memory = np.zeros(step * (shape[dim] - 1) + values.size, values.dtype)
    inner = np.empty([1 if d == dim else n for d, n in enumerate(shape)], values.dtype).strides
    strides = [step * size if d == dim else s for d, s in enumerate(inner)]
    view = np.lib.stride_tricks.as_strided(memory, shape, strides)
    view[...] = values
    return view


def test_strides_beyond_two_to_the_31(half_lib: Any) -> None:  # flashinfer #3007
    sizes = {"batch": 2, "heads": 4, "kv_heads": 2, "queries": 2, "keys": 2}
    for name, dims in (
        ("causal_attention", {"q": 0, "k": 1, "v": 2}),
        ("causal_attention", {"q": 2, "k": 2, "v": 0}),
        ("paged_attention", {"k_pages": 1}),
        ("varlen_attention", {"q": 0, "k": 0}),
    ):
        given = arguments(
            OPS[name], {**sizes, **({"pages": 2} if name == "paged_attention" else {})}, "float16", "int32"
        )
        if name == "paged_attention":  # two pages of two tokens
            given |= {n: np.nan_to_num(given[n][:2, :2]) for n in ("k_pages", "v_pages")}
            given |= {"page_table": np.array([[0], [1]], np.int32), "lengths": np.array([1, 2], np.int32)}
            dims = {"k_pages": 0, "v_pages": 0}
        if name == "varlen_attention":
            given |= {"q_offsets": np.array([0, 1, 2], np.int32), "k_offsets": np.array([0, 0, 2], np.int32)}
            given["causal"] = True
        wanted = half_lib[name](**given)
        before = half_lib.stats[name].copies_in
        for n, dim in dims.items():
            got = half_lib[name](**{**given, n: far(given[n].shape, dim, given[n])})
            assert all(np.array_equal(a, b) for a, b in zip(got, wanted)), n
        out = (far(wanted.y.shape, 1, np.zeros_like(wanted.y)), wanted.lse.copy())
        half_lib[name](**given, out=out)
        assert np.array_equal(out[0], wanted.y)
        assert half_lib.stats[name].copies_in == before


# -- bad input ---------------------------------------------------------------------------------------------------------
def refused(lib: Any, name: str, match: str, given: dict[str, Any], **changed: Any) -> None:
    """The call raises the error, and what its results were to be written to is untouched."""
    good = lib[name](**given)
    many = isinstance(good, tuple)
    out = tuple(np.full_like(r, 7) for r in (good if many else (good,)))
    with pytest.raises(og.OpsgenError, match=match):
        lib[name](**{**given, **changed}, out=out if many else out[0])
    assert all((r == 7).all() for r in out)


def test_masks_of_another_shape_or_type(lib: Any) -> None:
    name = "scaled_dot_product_attention"
    given = arguments(OPS[name], {}, "float32")
    mask, bias = given["mask"], given["bias"]
    refused(
        lib, name, r"E4003: .*'mask' has dtype float32; this library takes bool", given, mask=mask.astype("float32")
    )
    refused(lib, name, r"E4003: .*'mask' has dtype uint8", given, mask=mask.astype("uint8"))
    refused(lib, name, r"E4003: .*'bias' has dtype bool", given, bias=mask)
    refused(lib, name, r"E4004: .*'mask' has 2 dims", given, mask=mask[0, 0])
    refused(lib, name, r"E4005: .*'mask' has keys=10 .*wanted 11", given, mask=mask[..., :10])
    refused(lib, name, r"E4005: .*'mask' has heads=1 .*wanted 6", given, mask=mask[:, :1])
    refused(lib, name, r"E4005: .*'bias' has queries=4 .*wanted 5", given, bias=bias[:, :, :4])
    given = arguments(OPS["masked_attention"], {}, "float32")
    refused(lib, "masked_attention", r"E4005: .*'mask' has keys=10", given, mask=given["mask"][:, :10])
    refused(lib, "masked_attention", r"E4003: .*'mask' has dtype int64", given, mask=given["mask"].astype(np.int64))
    given = {**arguments(OPS["block_sparse_attention"], {"queries": 40}, "float32"), "block_size": BLOCK}
    blocks = given["block_mask"]
    message = r"E4010: .*wanted a block for every 16 queries begun"
    refused(lib, "block_sparse_attention", message, given, block_mask=blocks[:, :2])
    refused(lib, "block_sparse_attention", message, given, block_mask=np.repeat(blocks, 2, axis=1))
    refused(lib, "block_sparse_attention", r"E4018: .*'block_size' is 32", given, block_size=32)


@pytest.mark.parametrize("name", ["causal_attention", "paged_attention", "varlen_attention", "partial"])
def test_heads_that_do_not_divide(lib: Any, name: str) -> None:
    given = arguments(OPS[name], {}, "float32")
    if name == "varlen_attention":
        given["causal"] = True
    pair = ("k_pages", "v_pages") if name == "paged_attention" else ("k", "v")
    axis = {"paged_attention": 2, "varlen_attention": 1}.get(name, 1)
    for kv_heads in (4, 5, 7, 12):
        wrong = {n: np.repeat(given[n], 4, axis=axis).take(range(kv_heads), axis=axis) for n in pair}
        refused(
            lib, name, rf"E4010: {name}: .*kv_heads={kv_heads}.*heads must be a multiple of kv_heads", given, **wrong
        )
    none = {n: given[n].take([], axis=axis) for n in pair}
    refused(lib, name, "E4010", given, **none)


@pytest.mark.parametrize("integers", ["int64", "int32"])
def test_page_tables_that_point_outside(lib: Any, half_lib: Any, integers: str) -> None:
    library, dtype = (lib, "float32") if integers == "int64" else (half_lib, "float16")
    given = arguments(OPS["paged_attention"], {}, dtype, integers)
    pages = len(given["k_pages"])
    for page in (-1, pages, 2**31 - 1):
        table = given["page_table"].copy()
        table[1, 2] = page
        message = rf"E4009: .*'page_table' holds index {page} at position \[1, 2\]; it must lie in \[0, {pages}\)"
        refused(library, "paged_attention", message, given, page_table=table)
        strided = np.repeat(table, 2, axis=1)[:, ::2]
        refused(library, "paged_attention", message, given, page_table=strided)


@pytest.mark.parametrize("integers", ["int64", "int32"])
def test_lengths_beyond_the_table(lib: Any, half_lib: Any, integers: str) -> None:
    library, dtype = (lib, "float32") if integers == "int64" else (half_lib, "float16")
    given = arguments(OPS["paged_attention"], {}, dtype, integers)
    for length in (-1, 13, 2**31 - 1):
        lengths = given["lengths"].copy()
        lengths[1] = length
        message = rf"E4025: .*'lengths' holds length {length} at position \[1\]; it must lie in \[0, 12\]\. Pass"
        refused(library, "paged_attention", message, given, lengths=lengths)
    for length in (0, 12):
        library.paged_attention(**{**given, "lengths": np.full_like(given["lengths"], length)})


@pytest.mark.parametrize("integers", ["int64", "int32"])
def test_offsets_that_do_not_rise(lib: Any, half_lib: Any, integers: str) -> None:
    library, dtype = (lib, "float32") if integers == "int64" else (half_lib, "float16")
    given = {**arguments(OPS["varlen_attention"], {}, dtype, integers), "causal": True}

    def wrong(argument: str, values: list[int], position: int, wanted: str) -> None:
        message = (
            rf"E4024: varlen_attention: argument '{argument}' holds offset {values[position]} at position {position}; "
            rf"wanted {wanted}\. Offsets start at 0"
        )
        for changed in (np.array(values, integers), np.repeat(np.array(values, integers), 2)[::2]):
            refused(library, "varlen_attention", message, given, **{argument: changed})

    wrong("q_offsets", [1, 2, 2, 3, 5], 0, "0")
    wrong("q_offsets", [-1, 2, 2, 3, 5], 0, "0")
    wrong("q_offsets", [0, 3, 2, 3, 5], 2, "3 to 5")
    wrong("q_offsets", [0, 3, 3, 6, 5], 3, "3 to 5")
    wrong("q_offsets", [0, 3, 3, 3, 4], 4, "5")
    wrong("q_offsets", [0, 3, 3, 3, 6], 4, "5")
    wrong("k_offsets", [0, 3, 3, 2, 11], 3, "3 to 11")
    wrong("k_offsets", [0, 3, 3, 2**31 - 1, 11], 3, "3 to 11")
    wrong("k_offsets", [0, 0, 0, 0, 0], 4, "11")
    with pytest.raises(og.OpsgenError, match=r"E4024.*holds offset 0 at position 0; wanted 5"):
        library.varlen_attention(**{**given, "q_offsets": np.zeros(1, integers), "k_offsets": np.zeros(1, integers)})
    with pytest.raises(og.OpsgenError, match=r"E4010.*offsets counts the sequences, and one more"):
        library.varlen_attention(**{**given, "q_offsets": np.zeros(0, integers), "k_offsets": np.zeros(0, integers)})
    with pytest.raises(og.OpsgenError, match=r"E4005.*'k_offsets' has offsets=4"):
        library.varlen_attention(**{**given, "k_offsets": given["k_offsets"][1:]})
