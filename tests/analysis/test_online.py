"""Chains of reductions: what is found and derived for ops of many kinds, run as loops and compared with the op."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.analysis.online import Break, Chain, find_breaks, find_chains
from opsgen.dsl import Op
from opsgen.dsl.tensor import Input, Map, Reduce, Tensor, elementwise, walk
from opsgen.ops import alibi_attention, all_ops, attention, causal_attention, masked_attention, softmax
from tests.analysis.online_loops import Runner

INFINITY = float("inf")
LOG2E = 1.4426950408889634


# -- ops that have an online form --------------------------------------------------------------------------------------
@og.op
def masked_exponential(
    q: og.Tensor["queries", "width"], k: og.Tensor["keys", "width"], v: og.Tensor["keys", "out"],
    mask: og.Tensor["queries", "keys", og.bool_], *, scale: float,
) -> og.Tensor:  # fmt: skip
    s = og.dot(q, k, over="width") * scale
    m = og.max(og.where(mask, s, -INFINITY), over="keys")
    p = og.where(mask, og.exp(s - m), 0.0)
    return og.dot(p / og.sum(p, over="keys"), v, over="keys")


@og.op
def infinite_scores(
    q: og.Tensor["queries", "width"], k: og.Tensor["keys", "width"], v: og.Tensor["keys", "out"],
) -> og.Tensor:  # fmt: skip
    """Most queries see no key of the first tiles."""
    visible = og.index("keys") >= og.index("queries")
    s = og.where(visible, og.dot(q, k, over="width"), -INFINITY)
    return og.dot(og.softmax(s, over="keys"), v, over="keys")


@og.op
def soft_cap(s: og.Tensor["rows_", "keys"], v: og.Tensor["keys", "out"], *, cap: float) -> og.Tensor:
    return og.dot(og.softmax(cap * og.tanh(s / cap), over="keys"), v, over="keys")


@og.op
def exp2_scaled(s: og.Tensor["rows_", "keys"], v: og.Tensor["keys", "out"]) -> og.Tensor:
    t = s * LOG2E
    p = og.exp2(t - og.max(t, over="keys"))
    return og.dot(p, v, over="keys") / og.sum(p, over="keys")


@og.op
def scaled_late(s: og.Tensor["rows_", "keys"], *, scale: float) -> og.Tensor:
    return og.sum(og.exp2((s - og.max(s, over="keys")) * (scale * LOG2E)), over="keys")


@og.op
def log_sum_exp(x: og.Tensor["rows_", "columns"]) -> og.Tensor:
    m = og.max(x, over="columns")
    return m + og.log(og.sum(og.exp(x - m), over="columns"))


@og.op
def cross_entropy(
    x: og.Tensor["tokens", "hidden"], w: og.Tensor["vocab", "hidden"], label: og.Tensor["tokens", og.int64],
) -> og.Tensor:  # fmt: skip
    logits = og.dot(x, w, over="hidden")
    m = og.max(logits, over="vocab")
    lse = m + og.log(og.sum(og.exp(logits - m), over="vocab"))
    return lse - logits.at(vocab=label)


@og.op
def norm_linear(x: og.Tensor["rows_", "hidden"], w: og.Tensor["out", "hidden"], *, eps: float) -> og.Tensor:
    return og.dot(x * og.rsqrt(og.mean(x * x, over="hidden") + eps), w, over="hidden")


@og.op
def scaled_contraction(x: og.Tensor["rows_", "hidden"], w: og.Tensor["out", "hidden"]) -> og.Tensor:
    return og.dot(x / og.max(og.abs(x), over="hidden"), w, over="hidden")


@og.op
def three_links(x: og.Tensor["rows_", "n"], y: og.Tensor["rows_", "n"]) -> og.Tensor:
    """The largest logarithm of a probability, and the sum of y by squared probabilities."""
    m = og.max(x, over="n")
    p = og.exp(x - m)
    total = og.sum(p, over="n")
    share = p / total
    return og.results(
        peak=og.max(x - m - og.log(total), over="n"), collision=og.sum(share * share * y, over="n"),
        low=og.min(og.abs(y) - m, over="n"),
    )  # fmt: skip


@og.op
def square_root_of_share(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    """What no factor can be taken out of: the repair reads a sum that is itself repaired."""
    p = og.exp(x - og.max(x, over="n"))
    return og.sum(og.sqrt(p / og.sum(p, over="n")), over="n")


@og.op
def linear_attention(
    q: og.Tensor["queries", "features"], k: og.Tensor["keys", "features"], v: og.Tensor["keys", "out"],
) -> og.Tensor:  # fmt: skip
    """Products of sums: exp(q)·Σ exp(k) v / (exp(q)·Σ exp(k)), written as weights over the keys."""
    weights = og.dot(og.exp(q), og.exp(k), over="features")
    return og.dot(weights / og.sum(weights, over="keys"), v, over="keys")


@og.op
def guarded_by_hand(x: og.Tensor["rows_", "n"], mask: og.Tensor["rows_", "n", og.bool_]) -> og.Tensor:
    m = og.max(og.where(mask, x, -INFINITY), over="n")
    safe = og.where(m == -INFINITY, 0.0, m)
    return og.sum(og.where(mask, og.exp(x - safe), 0.0), over="n")


@og.op
def with_sink(x: og.Tensor["rows_", "n"], sink: og.Tensor["rows_"]) -> og.Tensor:
    m = og.max(og.max(x, over="n"), sink)
    p = og.exp(x - m)
    return og.max(p / (og.sum(p, over="n") + og.exp(sink - m)) - m, over="n") + og.sum(p, over="n")


@og.op
def masked_shift(x: og.Tensor["rows_", "n"], mask: og.Tensor["rows_", "n", og.bool_]) -> og.Tensor:
    """The same shift in one branch of a choice with an infinity."""
    m = og.max(x, over="n")
    return og.max(og.where(mask, x * 2.0 - m, -INFINITY), over="n")


@og.op
def scale_alone(x: og.Tensor["n"], y: og.Tensor["rows_", "n"]) -> og.Tensor:
    """What stays in the loop has no rows."""
    return og.sum(x / og.sum(y * y, over="n"), over="n")


@og.op
def over_two_dims(x: og.Tensor["rows_", "n", "k"]) -> og.Tensor:
    m = og.max(x, over=("n", "k"))
    return og.sum(og.exp(x - m), over=("k", "n"))


@og.op
def quantised(x: og.Tensor["rows_", "n"], w: og.Tensor["out", "n"]) -> og.Tensor:
    """The scale makes the values fit into the half type, and stays with them."""
    scale = og.max(og.abs(x), over="n") / 1024.0
    return og.dot(og.cast(x / scale, og.float16), w, over="n") * scale


@og.op
def stabilised_below(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    low = og.min(x, over="n")
    return og.sum(og.exp(low - x), over="n")


@og.op
def shared_scale(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    """The scale lies under a root, so that it is not taken out."""
    return og.sum(og.sqrt(og.abs(x) / og.max(og.abs(x), over="n")), over="n")


@og.op
def norm_of_half(x: og.Tensor["rows_", "n", og.float32]) -> og.Tensor:
    """Rounding of what moves is part of the repair."""
    m = og.cast(og.max(x, over="n"), og.float16)
    return og.sum(og.exp(x - m), over="n")


# -- ops that have none ------------------------------------------------------------------------------------------------
@og.op
def entropy(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    m = og.max(x, over="n")
    p = og.exp(x - m)
    return og.sum(p / og.sum(p, over="n") * (x - m), over="n")


@og.op
def naive_variance(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    d = x - og.mean(x, over="n")
    return og.mean(d * d, over="n")


@og.op
def sigmoid_of_maximum(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    return og.sum(og.sigmoid(x - og.max(x, over="n")), over="n")


@og.op
def layer_norm_linear(x: og.Tensor["rows_", "n"], w: og.Tensor["out", "n"], *, eps: float) -> og.Tensor:
    d = x - og.mean(x, over="n")
    return og.dot(d * og.rsqrt(og.mean(d * d, over="n") + eps), w, over="n")


@og.op
def unstable(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    """Stabilised by the wrong extreme: the factor grows without limit."""
    return og.sum(og.exp(x - og.min(x, over="n")), over="n")


@og.op
def by_the_mean(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    return og.sum(og.exp(x - og.mean(x, over="n")), over="n")


@og.op
def lost_positions(x: og.Tensor["rows_", "n"], mask: og.Tensor["n", og.bool_]) -> og.Tensor:
    """The sum takes positions that the maximum leaves out: while it is -inf, they could not be kept."""
    return og.sum(og.exp(x - og.max(og.where(mask, x, -INFINITY), over="n")), over="n")


@og.op
def ranks(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    best = og.argmax(x, over="n")
    return og.sum(x * og.exp(og.cast(best, og.float32) - og.index("n")), over="n")


@og.op
def integers(x: og.Tensor["rows_", "n", og.int32]) -> og.Tensor:
    return og.sum(x * og.max(x, over="n"), over="n")


@og.op
def by_detour(x: og.Tensor["rows_", "n"], rank: og.Tensor["rows_", og.int64]) -> og.Tensor:
    m = og.max(x, over="n")
    return og.sum(og.exp(x - m.at(rows_=rank)), over="n")


@og.op
def by_both_ways(x: og.Tensor["rows_", "n"], rank: og.Tensor["rows_", og.int64]) -> og.Tensor:
    m = og.max(x, over="n")
    return og.sum(og.exp(x - m - og.abs(m.at(rows_=rank))), over="n")


@og.op
def not_monotone(x: og.Tensor["rows_", "n"]) -> og.Tensor:
    """The second maximum falls where the first one rises."""
    first = og.max(x, over="n")
    second = og.max(x * 2.0 - first, over="n")
    return og.sum(og.exp(x * 2.0 - first - second), over="n")


def random_inputs(seed: int, **shapes: tuple[int, ...]) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {name: draw.standard_normal(shape) for name, shape in shapes.items()}


N = 37
CASES: dict[str, tuple[Op, Mapping[str, Any]]] = {
    "softmax": (softmax, random_inputs(0, x=(3, N))),
    "attention": (
        attention, random_inputs(1, q=(2, 3, 5, 4), k=(2, 3, N, 4), v=(2, 3, N, 6)) | {"scale": 3.0},
    ),
    "masked_attention": (
        masked_attention,
        random_inputs(2, q=(2, 3, 5, 4), k=(2, 3, N, 4), v=(2, 3, N, 6))
        | {"scale": 0.7, "mask": np.arange(N) >= np.array([[11], [30]])},
    ),
    "masked_exponential": (
        masked_exponential,
        random_inputs(3, q=(5, 4), k=(N, 4), v=(N, 6))
        | {"scale": 2.0, "mask": np.arange(N) >= np.arange(0, 35, 7)[:, None]},
    ),
    "masked_attention, nothing left": (
        masked_attention,
        random_inputs(2, q=(2, 3, 5, 4), k=(2, 3, N, 4), v=(2, 3, N, 6))
        | {"scale": 0.7, "mask": np.zeros((2, N), bool)},
    ),
    "infinite_scores": (infinite_scores, random_inputs(4, q=(N, 4), k=(N, 4), v=(N, 6))),
    "causal_attention": (
        causal_attention,
        random_inputs(19, q=(2, 4, N, 4), k=(2, 2, 29, 4), v=(2, 2, 29, 3)) | {"scale": 1.5},
    ),
    "alibi_attention": (
        alibi_attention,
        random_inputs(20, q=(1, 4, 5, 4), k=(1, 2, N, 4), v=(1, 2, N, 3), slopes=(4,)) | {"scale": 1.5},
    ),
    "guarded_by_hand": (
        guarded_by_hand, random_inputs(21, x=(4, N)) | {"mask": np.arange(N) >= np.array([[0], [5], [20], [N]])},
    ),
    "with_sink": (with_sink, random_inputs(22, x=(4, N), sink=(4,))),
    "masked_shift": (
        masked_shift, random_inputs(23, x=(4, N)) | {"mask": np.arange(N) >= np.array([[0], [5], [20], [N]])},
    ),
    "scale_alone": (scale_alone, random_inputs(24, x=(N,), y=(4, N))),
    "over_two_dims": (over_two_dims, random_inputs(25, x=(4, N, 3))),
    "quantised": (quantised, random_inputs(26, x=(4, N), w=(3, N))),
    "soft_cap": (soft_cap, random_inputs(5, s=(4, N), v=(N, 3)) | {"cap": 0.8}),
    "exp2_scaled": (exp2_scaled, random_inputs(6, s=(4, N), v=(N, 3))),
    "scaled_late": (scaled_late, random_inputs(7, s=(4, N)) | {"scale": 1.5}),
    "log_sum_exp": (log_sum_exp, random_inputs(8, x=(4, N))),
    "cross_entropy": (
        cross_entropy, random_inputs(9, x=(4, 5), w=(N, 5)) | {"label": np.array([0, 3, 36, 9])},
    ),
    "norm_linear": (norm_linear, random_inputs(10, x=(4, N), w=(3, N)) | {"eps": 1e-3}),
    "scaled_contraction": (scaled_contraction, random_inputs(11, x=(4, N), w=(3, N))),
    "three_links": (three_links, random_inputs(12, x=(4, N), y=(4, N))),
    "square_root_of_share": (square_root_of_share, random_inputs(13, x=(4, N))),
    "linear_attention": (linear_attention, random_inputs(14, q=(4, 5), k=(N, 5), v=(N, 3))),
    "stabilised_below": (stabilised_below, random_inputs(15, x=(4, N))),
    "shared_scale": (shared_scale, random_inputs(16, x=(4, N))),
    "norm_of_half": (norm_of_half, random_inputs(17, x=(4, N))),
    "layer_norm_linear": (layer_norm_linear, random_inputs(18, x=(4, N), w=(3, N)) | {"eps": 1e-3}),
}  # fmt: skip
"""Ops with a chain, and arrays for them; in some rows the first tiles are masked altogether."""


def chain_of(op: Op) -> Chain:
    (chain,) = find_chains(op.trace())
    return chain


def repairs(op: Op) -> list[str]:
    return [k.proof.repair for k in chain_of(op).links]


# -- loops -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tile", [1, 4, 9, 64])
@pytest.mark.parametrize("name", CASES)
def test_rolling_and_split_loops_give_what_the_op_gives(name: str, tile: int) -> None:
    op, inputs = CASES[name]
    runner = Runner(op, inputs)
    for values in (runner.rolling(tile), runner.split(tile, 1), runner.split(tile, 3)):
        for k in runner.chain.links:
            np.testing.assert_allclose(
                values[id(k.node)], runner.plain[id(k.node)], rtol=1e-11, atol=1e-13, err_msg=k.name
            )


@pytest.mark.parametrize("op", [attention, three_links, norm_linear, soft_cap])
def test_of_no_positions_the_result_is_neutral(op: Op) -> None:
    name = next(n for n, (known, _) in CASES.items() if known is op)
    inputs = {k: v[..., :0] if k in "xys" else v for k, v in CASES[name][1].items()}
    inputs |= {k: v[..., :0, :] for k, v in inputs.items() if op is attention and k in "kv"}
    inputs |= {"v": inputs["v"][:0]} if op is soft_cap else {}
    inputs |= {"w": inputs["w"][:, :0]} if op is norm_linear else {}
    runner = Runner(op, inputs)
    assert runner.length == 0
    values = runner.rolling(4)
    for k in runner.chain.links:
        np.testing.assert_array_equal(values[id(k.node)], runner.plain[id(k.node)])
        assert np.all(values[id(k.node)] == k.neutral)


def test_dims_that_are_never_empty_need_no_choice() -> None:
    @og.op
    def made(s: og.Tensor["rows_", "keys"], v: og.Tensor["keys", "out"]) -> og.Tensor:
        return og.dot(og.softmax(s.split("keys", blocks=None, inner=8), over="inner"),
                      v.split("keys", blocks=None, inner=8), over="inner")  # fmt: skip

    *_, last = chain_of(made).links
    assert isinstance(last.after, Map) and last.after.op == "div"


def test_a_repair_that_is_wrong_is_noticed() -> None:
    """The loops of these tests would not pass with another repair, without the guard, or with a scale forgotten."""
    runner = Runner(*CASES["infinite_scores"])
    links = runner.chain.links
    plain = [runner.plain[id(k.node)] for k in links]

    def differs(*changed: Any) -> bool:
        runner.chain = replace(runner.chain, links=changed)
        values = runner.rolling(4)
        return not all(np.allclose(values[id(k.node)], p, rtol=1e-11, atol=1e-13) for k, p in zip(changed, plain))

    first, second, third = links
    assert not differs(*links)
    one = elementwise("exp", elementwise("mul", second.old[id(first.node)], 0.0))
    assert differs(first, replace(second, repair=one), third)
    assert differs(first, second, replace(third, after=third.total))
    assert differs(first, replace(second, held=second.new), third)  # -inf - -inf


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_tiles_and_any_shares_of_scores_with_infinities(data: st.DataObject) -> None:
    finite = st.floats(-1e4, 1e4)
    count = data.draw(st.integers(1, 24))
    rows = [data.draw(st.lists(finite | st.just(-INFINITY), min_size=count, max_size=count)) for _ in range(2)]
    for row in rows:
        row[data.draw(st.integers(0, count - 1))] = data.draw(finite)
    runner = Runner(soft_or_not, {"s": np.array(rows), "v": np.linspace(-1, 1, count)[:, None]})
    tile, shares = data.draw(st.integers(1, count)), data.draw(st.integers(1, 4))
    for values in (runner.rolling(tile), runner.split(tile, shares)):
        for k in runner.chain.links:
            np.testing.assert_allclose(values[id(k.node)], runner.plain[id(k.node)], rtol=1e-10, atol=1e-12)


@og.op
def soft_or_not(s: og.Tensor["rows_", "keys"], v: og.Tensor["keys", "out"]) -> og.Tensor:
    return og.dot(og.softmax(s, over="keys"), v, over="keys")


_SCORES = [lambda x, y: x, lambda x, y: x * y, lambda x, y: og.tanh(x) * 3.0, lambda x, y: og.abs(x) + y]
_FACTORS = [lambda x, y: 1.0, lambda x, y: y, lambda x, y: og.abs(y), lambda x, y: og.where(y > 0, 1.0, 0.0)]
_SHAPES = [
    lambda z, f: og.exp(z) * f, lambda z, f: f / og.exp(-z), lambda z, f: f * og.exp2(z * 0.7),
    lambda z, f: og.exp(z) ** 2 * f, lambda z, f: og.where(f != 0.25, og.exp(z) * f, 0.0),
    lambda z, f: -(f * og.exp(z * 3.0)), lambda z, f: og.sqrt(og.exp(z)) * f,
]  # fmt: skip
_SCALES = [lambda v, m, t: v, lambda v, m, t: v / t, lambda v, m, t: v * og.exp2(m * 0.01), lambda v, m, t: v / t / t]


@settings(deadline=None, max_examples=60)
@given(*(st.sampled_from(range(len(c))) for c in (_SCORES, _FACTORS, _SHAPES, _SCALES)))
def test_what_is_a_product_of_its_parts_is_found_however_it_is_written(a: int, b: int, c: int, d: int) -> None:
    @og.op
    def made(x: og.Tensor["rows_", "n"], y: og.Tensor["rows_", "n"]) -> og.Tensor:
        s = _SCORES[a](x, y)
        m = og.max(s, over="n")
        total = og.sum(og.exp(s - m), over="n")
        return og.sum(_SCALES[d](_SHAPES[c](s - m, _FACTORS[b](x, y)), m, total), over="n") + total

    runner = Runner(made, random_inputs(31 * a + b, x=(3, 11), y=(3, 11)))
    assert len(runner.chain.links) == 3
    for values in (runner.rolling(3), runner.split(2, 3)):
        for k in runner.chain.links:
            np.testing.assert_allclose(values[id(k.node)], runner.plain[id(k.node)], rtol=1e-11, atol=1e-13)


# -- what is derived ---------------------------------------------------------------------------------------------------
SOFTMAX = "exp(r1_old - r1_new)"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (softmax, ["", SOFTMAX]),
        (attention, ["", SOFTMAX, SOFTMAX]),
        (masked_attention, ["", SOFTMAX, SOFTMAX]),
        (masked_exponential, ["", SOFTMAX, SOFTMAX]),
        (infinite_scores, ["", SOFTMAX, SOFTMAX]),
        (soft_cap, ["", SOFTMAX, SOFTMAX]),
        (exp2_scaled, ["", "2**(r1_old - r1_new)", "2**(r1_old - r1_new)"]),
        (scaled_late, ["", "2**(1.4426950408889634*scale*(r1_old - r1_new))"]),
        (log_sum_exp, ["", SOFTMAX]),
        (cross_entropy, ["", SOFTMAX]),
        (norm_linear, ["", ""]),
        (scaled_contraction, ["", ""]),
        (linear_attention, ["", ""]),
        (three_links, ["", SOFTMAX, "", "exp(2*(r1_old - r1_new))", ""]),
        (stabilised_below, ["", "exp(r1_new - r1_old)"]),
        (shared_scale, ["", "sqrt(r1_old)/sqrt(r1_new)"]),
        (quantised, ["", "r1_old/r1_new"]),
        (norm_of_half, ["", "exp(float16(r1_old) - float16(r1_new))"]),
        (guarded_by_hand, ["", SOFTMAX]),
        (masked_shift, ["", "r1_old - r1_new"]),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_repairs(op: Op, expected: list[str]) -> None:
    assert repairs(op) == expected


def test_attention_divides_after_the_loop() -> None:
    graph = attention.trace()
    (chain,) = find_chains(graph)
    m, total, weighted = chain.links
    assert [k.op for k in chain.links] == ["max", "sum", "sum"]
    assert chain.over == ("keys",) and chain.given == ()
    assert total.node.arg is total.part and total.total is total.node and total.after is None
    # exp(s - m) is the node that the sum takes too, so that a kernel computes it once.
    assert isinstance(weighted.part, Map) and weighted.part.op == "mul" and weighted.part.args[0] is total.part
    assert isinstance(weighted.after, Map) and weighted.after.op == "where"  # 0 where there are no keys
    quotient = weighted.after.args[2]
    assert isinstance(quotient, Map) and quotient.op == "div"
    assert quotient.args[0] is weighted.total and quotient.args[1] is total.node
    assert weighted.needs == (m.node,) and weighted.scales == (total.node,)
    assert weighted.after.dims == weighted.node.dims
    assert weighted.proof.after == "r3_loop/r2"


def test_what_is_taken_out_whole_needs_no_repair() -> None:
    for op, after, unscaled in (
        (
            norm_linear,
            "r2_loop/sqrt(eps + r1/n_hidden)",
            "sqrt(eps + r1_old/n_hidden)/sqrt(eps + r1_new/n_hidden)",
        ),
        (scaled_contraction, "r2_loop/r1", "r1_old/r1_new"),
    ):
        first, second = chain_of(op).links
        assert second.repair is None and second.needs == () and second.scales == (first.node,)
        assert (second.proof.part, second.proof.after) == ("w*x", after)
        assert second.proof.unscaled == unscaled


def test_a_repair_reads_placeholders_and_what_is_the_same_at_all_positions() -> None:
    for op, inputs in CASES.values():
        chain = chain_of(op)
        for k in chain.links:
            assert (k.repair is None) == (not k.needs)
            if k.repair is None:
                continue
            placeholders = {id(n) for n in (*k.old.values(), *k.new.values())}
            met: list[Tensor] = []
            walk((k.repair, *k.held.values()), met.append)
            assert all(set(n.dims).isdisjoint(chain.over) for n in met)
            assert all(id(n) in placeholders for n in met if isinstance(n, Input) and n.name not in inputs)
            assert not any(isinstance(n, Reduce) for n in met)
            assert set(k.old) == set(k.new) == set(k.held) == {id(n) for n in k.needs}
            assert set(k.repair.dims) <= set(k.total.dims)
            assert k.after is None or k.after.dims == k.node.dims


def test_rounding_of_what_moves_is_in_the_repair() -> None:
    _, second = chain_of(norm_of_half).links
    met: list[Tensor] = []
    walk((second.repair,), met.append)  # type: ignore[arg-type]
    assert [n.dtype for n in met if isinstance(n, Map) and n.op == "cast"] == [og.float16] * 2


def test_a_scalar_of_unknown_sign_is_assumed_aloud() -> None:
    _, second = chain_of(scaled_late).links
    assert [a.name for a in second.assumed] == ["scale"]  # type: ignore[attr-defined]
    assert second.proof.bound.endswith("if scale >= 0")
    assert all(not k.assumed for op in (attention, soft_cap, exp2_scaled) for k in chain_of(op).links)


def test_the_guard_of_a_softmax() -> None:
    _, second = chain_of(softmax).links
    (guard,) = second.guards
    assert (guard.value, guard.stand_in, guard.up_to, guard.old) == (-INFINITY, 0.0, False, False)
    _, second = chain_of(shared_scale).links
    (guard,) = second.guards
    assert (guard.value, guard.stand_in, guard.up_to, guard.old) == (0.0, 1.0, True, True)


def test_a_loop_after_a_break_has_a_chain_of_its_own() -> None:
    chain = chain_of(layer_norm_linear)
    (found,) = find_breaks(layer_norm_linear.trace())
    variance, product = chain.links
    assert found.name == variance.name == "r2"
    assert product.scales == (variance.node,) and product.repair is None
    (mean,) = chain.given
    assert mean.op == "sum" and mean is not variance.node


# -- what is not -------------------------------------------------------------------------------------------------------
def break_of(op: Op) -> Break:
    (found,) = find_breaks(op.trace())
    return found


@pytest.mark.parametrize(
    ("op", "chains", "reason", "residual"),
    [
        (entropy, 1, "does not separate", "(r1 - r1')*(x - x')"),
        (naive_variance, 0, "does not separate", "(r1 - r1')*(x - x')"),
        (sigmoid_of_maximum, 0, "does not separate", "(exp(r1') - exp(r1))*(exp(x') - exp(x))"),
        (unstable, 0, "the repair can exceed 1 and overflow: exp(r1_old - r1_new)", ""),
        (by_the_mean, 0, "r1_new can be smaller or larger than r1_old", ""),
        (lost_positions, 0, "it is not shown that the positions so far add nothing", ""),
        (ranks, 0, "the position that argmax or argmin finds", ""),
        (integers, 0, "integers cannot be repaired", ""),
        (by_detour, 0, "is used through a read at other positions", ""),
        (by_both_ways, 0, "is used through a read at other positions", ""),
        (not_monotone, 1, "r2_new can be smaller or larger than r2_old", ""),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_breaks(op: Op, chains: int, reason: str, residual: str) -> None:
    found = break_of(op)
    assert reason in found.reason
    assert residual in found.residual and bool(found.residual) == bool(residual)
    assert len(find_chains(op.trace())) == chains


def test_a_chain_ends_before_the_link_that_does_not_separate() -> None:
    (chain,) = find_chains(entropy.trace())
    assert [k.name for k in chain.links] == ["r1", "r2"]
    assert break_of(entropy).name == "r3"


def test_reductions_over_other_dims_and_of_other_values_are_no_chain() -> None:
    for name in ("linear", "gelu", "rms_norm", "masked_mean_pool", "embedding"):
        graph = all_ops()[name].trace()
        assert find_chains(graph) == () and find_breaks(graph) == (), name


def test_long_expressions_are_found_or_refused_quickly() -> None:
    @og.op
    def long_before(x: og.Tensor["rows_", "n"]) -> og.Tensor:
        for _ in range(2000):
            x = x * 0.5 + 0.1
        return og.sum(og.exp(x - og.max(x, over="n")), over="n")

    @og.op
    def long_between(x: og.Tensor["rows_", "n"]) -> og.Tensor:
        y = x - og.max(x, over="n")
        for _ in range(2000):
            y = y * 0.5 + 0.1
        return og.sum(y, over="n")

    assert repairs(long_before) == ["", SOFTMAX]
    assert "maps lie between them" in break_of(long_between).reason


# -- cost --------------------------------------------------------------------------------------------------------------
def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_sympy_is_loaded_only_for_reductions_that_need_each_other() -> None:
    code = (
        "import sys\nfrom opsgen.analysis.online import find_chains\nfrom opsgen.ops import linear, softmax\n"
        "find_chains(linear.trace())\nprint('sympy' in sys.modules)\n"
        "find_chains(softmax.trace())\nprint('sympy' in sys.modules)"
    )
    assert fresh(code).split() == ["False", "True"]


@pytest.mark.parametrize("name", ["attention", "alibi_attention", "layer_norm"])
def test_a_first_derivation_takes_less_than_two_seconds(name: str) -> None:
    code = (
        f"import time\nfrom opsgen.analysis.online import analyse\nfrom opsgen.ops import {name}\n"
        f"graph = {name}.trace()\nstart = time.process_time()\nanalyse(graph)\nprint(time.process_time() - start)"
    )
    assert float(fresh(code)) < 2


def test_without_sympy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.startswith(("opsgen.analysis.", "opsgen.lowering.to_sympy"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "sympy", None)
    from opsgen.analysis.online import find_chains as find

    with pytest.raises(og.errors.TargetError, match=r'E2003.*pip install "opsgen\[compile\]"'):
        find(softmax.trace())


def test_a_comparison_with_a_running_value_breaks_and_is_not_tried() -> None:
    """Each count picks the threshold of the next: sympy would be given expressions that double with each."""

    @og.op
    def bisected(x: og.Tensor["rows", "n"], wanted: og.Tensor["rows"]):
        """one step of a search after the other"""
        t = og.max(x, over="n")
        for step in range(20):
            count = og.sum(og.where(x >= t, og.cast(1.0, og.float32), 0.0), over="n")
            t = og.where(count >= wanted, t, t - 0.5**step)
        return t

    graph = bisected.trace()
    assert not find_chains(graph)
    breaks = find_breaks(graph)
    assert len(breaks) == 20
    assert {b.reason for b in breaks} == {"positions are compared with a value that moves"}
