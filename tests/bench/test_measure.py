"""What measuring decides: which kernels and sizes, which inputs, which figures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opsgen.bench import cases, inputs
from opsgen.bench.cases import Choice
from opsgen.bench.check import _stored
from opsgen.bench.peak import Peaks
from opsgen.bench.roofline import roofline
from opsgen.bench.tensors import NumpyTensors
from opsgen.dsl import Op
from opsgen.dsl.trace import ROWS
from opsgen.ops import all_ops
from opsgen.runtime.manifest import Group, Kernel, Manifest, PackedLayout, Signature, TensorParam, TensorSpec

X, W = TensorParam("x", ("...", "hidden")), TensorParam("weight", ("hidden",), optional=True)


def kernel(symbol: str, arch: str = "sm_80", dtype: str = "bfloat16", pattern: str = "map", **more: Any) -> Kernel:
    x, w = TensorSpec("x", dtype, ("rows", "hidden"), True), TensorSpec("weight", dtype, ("hidden",))
    out = TensorSpec("out", dtype, ("rows", "hidden"), True)
    absent = more.get("absent", ())
    return Kernel(symbol, "scaled", arch, (x,) if absent else (x, w), (out,), groups=(Group(pattern, "s"),), **more)


def manifest(*kernels: Kernel) -> Manifest:
    archs = tuple(dict.fromkeys(k.arch for k in kernels))
    return Manifest("0", "cuda", archs, {"scaled": Signature((X, W))}, kernels)


# -- which kernels -----------------------------------------------------------------------------------------------------
def test_the_best_arch_that_runs_on_a_gpu() -> None:
    held = manifest(
        kernel("ptx", "compute_80"), kernel("old"), kernel("plain", "sm_80", absent=("weight",)), kernel("h", "sm_90a")
    )
    found = {c: [k.symbol for k in cases.kernels_on(held, c)] for c in (75, 80, 86, 90, 100)}
    assert found == {75: [], 80: ["old", "plain"], 86: ["old", "plain"], 90: ["ptx", "h"][1:], 100: ["ptx"]}


def test_a_kernel_for_packed_weights_is_no_case_of_its_own() -> None:
    plain = kernel("plain")
    layout = PackedLayout("l", "128", "p")
    packed = replace(kernel("packed"), inputs=(plain.inputs[0], replace(plain.inputs[1], packed=layout)))
    for held in (manifest(plain, packed), manifest(packed, plain)):
        (found,) = cases.kernels_on(held, 80)
        assert found.symbol == "plain"
        assert cases.packable(held, found) == ("weight",)
    assert [k.symbol for k in cases.kernels_on(manifest(packed), 80)] == ["packed"]
    assert cases.packable(manifest(plain), plain) == ()


def test_kernels_with_regions_are_told_apart_by_the_size() -> None:
    few, many = kernel("few", region=("rows < 8",)), kernel("many", region=("rows >= 8",))
    choice = Choice(sizes=[{"rows": 3, "hidden": 5}, {"rows": 8, "hidden": 5}])
    found, skipped = cases.find(manifest(few, many), [few, many], {}, choice)
    assert [(c.kernel.symbol, c.dims["rows"]) for c in found] == [("few", 3), ("many", 8)]
    assert len(skipped) == 2 and "another kernel serves it" in skipped[0].why


def test_an_op_of_another_signature_is_not_the_standard_one() -> None:
    standard = all_ops()["softmax"]
    assert cases.definition("softmax", Signature((TensorParam("x", ("...", "columns")),)), {}) is standard
    assert cases.definition("softmax", Signature((TensorParam("x", ("...", "n")),)), {}) is None
    assert cases.definition("flex_attention", Signature(()), {}) is None
    assert cases.definition("softmax", Signature(()), {"softmax": standard}) is standard


# -- which inputs ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)
def test_inputs_of_every_workload_are_valid(op: Op) -> None:
    """At a small size of each workload's form: what the runtime would refuse does not occur."""
    for w in op.workloads:
        graph = op.trace(absent=frozenset(w.absent), attributes=w.attributes)
        wanted = {i.name: i for i in inputs.of_graph(graph, w.dims)}
        small = [i for i in wanted.values() if np.prod(i.shape) < 1 << 20]
        given = inputs.make(small, NumpyTensors())
        for check in graph.checks:
            x, end = given[check.input], graph.extent(check.dim).evaluate(w.dims) if check.dim else None
            if check.kind == "offsets":
                assert x[0] == 0 and x[-1] == end and (np.diff(x) >= 0).all()
            elif check.kind == "lengths":
                assert (x >= 0).all() and (x <= end).all()
            else:
                assert check.kind == "sorted" and (np.diff(x) >= 0).all()
        for name, x in given.items():
            if wanted[name].below is not None:
                assert x.min() >= 0 and x.max() < wanted[name].below
            assert x.shape == wanted[name].shape and str(x.dtype) == wanted[name].dtype


def test_leading_dims_and_what_a_manifest_knows() -> None:
    embedding = all_ops()["embedding"]
    graph = embedding.trace()
    sizes = {ROWS: 6, "vocab": 40, "hidden": 5}
    (ids, table) = inputs.of_graph(graph, sizes, (2, 3))
    assert (ids.shape, ids.below, table.shape) == ((2, 3), 40, (40, 5))
    held = Kernel(
        "e", "embedding", "sm_80", (
            TensorSpec("ids", "int64", ("rows",), True, index_limit="min(vocab, 30)"),
            TensorSpec("table", "float32", ("vocab", 5)),
        ), (),
    )  # fmt: skip
    assert [(i.shape, i.below) for i in inputs.of_kernel(held, sizes)] == [((6,), 30), ((40, 5), None)]


def test_what_has_to_be_sorted_is() -> None:
    (found,) = inputs.make([inputs.Input("group", (1000,), "int64", 37, rising=True)], NumpyTensors()).values()
    assert (np.diff(found) >= 0).all() and found.min() >= 0 and 30 < found.max() < 37


def test_what_a_peer_stores_are_not_the_products_that_a_contraction_sums() -> None:
    def stored(name: str, **extents: int) -> int:
        graph = all_ops()[name].trace()
        return _stored(graph, {d: e.evaluate(extents) for d, e in ((d, graph.extent(d)) for d in graph.extents)})

    given = (100 * 200, 300 * 200, 300, 100 * 300)
    assert stored("linear", rows=100, in_features=200, out_features=300) == sum(given) + 3 * 100 * 300
    assert stored("softmax", rows=100, columns=200) == 4 * 100 * 200
    sizes = {"batch": 1, "heads": 2, "queries": 50, "keys": 60, "head_dim": 8, "value_dim": 8}
    assert stored("attention", **sizes) == 2 * 8 * (50 + 60 + 60) + 3 * 2 * 50 * 60


# -- which figures -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "pattern", "rate"),
    [
        ("bfloat16", "contraction", 989e12), ("float16", "online_chain", 989e12), ("float32", "contraction", 67e12),
        ("bfloat16", "row_reduction", 67e12), ("int8", "contraction", 1979e12),
        ("float8_e4m3fn", "contraction", 1979e12),
    ],
)  # fmt: skip
def test_rates_of_an_h200(dtype: str, pattern: str, rate: float) -> None:
    figures = roofline(kernel("k", dtype=dtype, pattern=pattern), 90)
    assert figures is not None and (figures.source, figures.flops) == ("H200 SXM, by its vendor", rate)
    assert figures.seconds(int(rate), 0) == 1.0
    assert figures.seconds(0, int(4.8e12)) == 1.0


def test_a_cpu_is_set_against_the_cache_that_holds_what_is_moved() -> None:
    peaks = Peaks("avx2", 2, 100e9, {1000: 80e9, 4000: 40e9, 9000: 10e9})
    assert [peaks.bandwidth(n) for n in (0, 2000, 2001, 18000, 10**9)] == [80e9, 80e9, 40e9, 10e9, 10e9]
    figures = roofline(kernel("k", dtype="float32"), None, peaks, 3000)
    assert figures is not None and figures.source == "avx2 with 2 threads, as measured"
    assert figures.seconds(0, 3000) == 3000 / 40e9 and figures.seconds(10**9, 3000) == 0.01
    double = roofline(kernel("k", dtype="float64"), None, peaks, 0)
    assert double is not None and double.flops == 50e9
    assert roofline(kernel("k", dtype="int8", pattern="contraction"), None, peaks, 0) is None
    half = roofline(kernel("k", dtype="float8_e5m2", pattern="contraction"), None, peaks, 0)
    assert half is not None and half.flops == 100e9


def test_no_figures_no_roofline() -> None:
    assert roofline(kernel("k"), None) is None
    assert roofline(kernel("k"), 70) is None
    assert roofline(kernel("k", dtype="float64"), 90) is None
