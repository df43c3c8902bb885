"""`opsgen inspect`, and `opsgen.inspect`: every op at every stage."""

import json
import re

import pytest

import opsgen as og
from opsgen.compiler.assembly import clean, summary
from opsgen.compiler.inspect import STAGES, data, formula, inspect
from opsgen.dsl.extent import Extent
from opsgen.errors import CompileError
from opsgen.ops import all_ops

from .conftest import Command

OPS = list(all_ops())
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


PATTERNS = ("map", "row_reduction", "contraction", "grouped_contraction", "online_chain", "scan", "scatter", "update")
SHAPES_ALONE = {"one_hot": {"like"}, "scatter_add": {"like"}}
"""Inputs that are there for their dims."""


@pytest.mark.parametrize("name", OPS)
def test_graph_of_every_op(opsgen: Command, name: str) -> None:
    done = opsgen("inspect", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"# {all_ops()[name].call_form()}\n")
    assert not CONTROL.search(done.out)
    found = json.loads(opsgen("inspect", name, "--json").out)
    op = all_ops()[name]
    assert [i["name"] for i in found["inputs"]] == [p.name for p in op.parameters if p.spec]
    assert {r["name"] for g in found["groups"] for s in g["stores"] for r in found["results"]} == {
        r["name"] for r in found["results"]
    }
    assert sorted(r for g in found["groups"] for s in g["stores"] for r in s["results"]) == sorted(
        r["name"] for r in found["results"]
    )
    for group in found["groups"]:
        assert group["pattern"] in PATTERNS
        for node in group["nodes"]:
            assert all(0 <= arg < len(group["nodes"]) for arg in node["args"])
    # Every input is read by some group, and the text shows what each stores.
    read = {r for g in found["groups"] for r in g["reads"]}
    assert {i["name"] for i in found["inputs"]} - read == (SHAPES_ALONE.get(name) or set())
    for group in found["groups"]:
        for stored in group["stores"]:
            assert f"  {stored['name']} = " in done.out


@pytest.mark.parametrize("name", OPS)
def test_te_of_every_op(name: str) -> None:
    found = data(all_ops()[name], "te")
    assert [p["group"] for p in found["parts"]] == [None, *range(len(found["parts"]) - 1)]
    for part in found["parts"]:
        assert "te.compute" in part["te"]
        assert "@T.prim_func" in part["tir"] and "T.sblock" in part["tir"]


@pytest.mark.parametrize("name", OPS)
def test_ir_of_every_op(name: str) -> None:
    found = data(all_ops()[name], "ir", "x86/avx2,x86/avx512")
    kernels = found["kernels"]
    assert {k["target"] for k in kernels} == {"x86/avx2", "x86/avx512"}
    for k in kernels:
        assert f"def {k['name']}(" in k["tir"]


@pytest.mark.parametrize("stage", STAGES)
def test_json_of_every_stage(opsgen: Command, stage: str) -> None:
    done = opsgen("inspect", "softmax", "--stage", stage, "--target", "x86/avx2", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["stage"], found["op"]) == (stage, "softmax")


def test_source_is_llvm_ir_and_the_launcher(opsgen: Command) -> None:
    done = opsgen("inspect", "gelu", "--stage", "source", "--target", "x86/avx2")
    assert "define " in done.out and 'target triple = "x86_64-' in done.out
    assert "#include <tvm/ffi/c_api.h>" in done.out and "OPSGEN_EXPORT int __tvm_ffi_gelu_" in done.out
    assert not CONTROL.search(done.out)


@pytest.mark.parametrize("name", ["linear", "rms_norm", "gelu"])
def test_vectors_are_as_wide_as_the_target_and_fused(opsgen: Command, name: str) -> None:
    words = ["inspect", name, "--stage", "asm", "--target", "x86/avx2,x86/avx512", "--absent"]
    absent = [p.name for p in all_ops()[name].parameters if p.optional]
    done = opsgen(*words[: -1 if not absent else None], *absent, "--json")
    kernels = json.loads(done.out)["kernels"]
    for target in ("x86/avx2", "x86/avx512"):
        main = max((k for k in kernels if k["target"] == target), key=lambda k: k["summary"]["fma"])
        found, loop = main["summary"], main["summary"]["loops"][0]
        wide, other = ("zmm", "ymm") if target == "x86/avx512" else ("ymm", "zmm")
        assert found["registers"][wide] > 0 and found["fma"] > 0
        if target == "x86/avx2":
            assert "zmm" not in main["asm"] and found["registers"]["zmm"] == 0
        assert loop["registers"][wide] > 0 and loop["registers"][other] == 0 and loop["fma"] > 0
        assert found["libm"] == {}
        if name != "gelu":  # accumulators stay in registers
            assert loop["stack_stores"] == loop["stack_loads"] == 0
    text = opsgen(*words[: -1 if not absent else None], *absent).out
    assert text.count("busiest innermost loop") == len([k for k in kernels if k["summary"]["loops"]])
    assert "zmm" in text and not CONTROL.search(text)


def test_float64_calls_libm() -> None:
    found = data(all_ops()["softmax"], "asm", "x86/avx2", dtype="float64")
    assert set(found["kernels"][0]["summary"]["libm"]) == {"exp"}


def test_choices(opsgen: Command) -> None:
    words = [
        "--attribute",
        "activation=gelu_tanh",
        "--absent",
        "bias,residual",
        "--dim",
        "in_features=64",
        "--dtype",
        "float16",
    ]
    found = json.loads(opsgen("inspect", "linear", *words, "--json").out)
    assert found["attributes"] == {"activation": "gelu_tanh"}
    assert found["absent"] == ["bias", "residual"]
    assert found["dims"]["in_features"] == "64" and found["dims"]["out_features"] == "out_features"
    assert {i["dtype"] for i in found["inputs"]} == {"float16"}
    found = json.loads(opsgen("inspect", "embedding", "--dtype", "float16,ids=int32", "--json").out)
    assert [i["dtype"] for i in found["inputs"]] == ["int32", "float16"]
    assert opsgen("inspect", "linear", "--absent", "bias", "residual").out.count("without bias, residual") == 1


def test_attributes_are_values_of_their_type(opsgen: Command, tmp_path: object) -> None:
    from opsgen.cli.choices import _value

    parameter = og.op(_flagged).parameter
    assert [_value(parameter("causal"), t) for t in ("true", "False", "1", "0", "perhaps")] == [
        True,
        False,
        True,
        False,
        "perhaps",
    ]
    assert [_value(parameter("taps"), t) for t in ("-3", "many")] == [-3, "many"]


def _flagged(x: og.Tensor["n"], *, causal: bool = False, taps: int = 1) -> og.Tensor:
    return x + 1.0 if causal else x * float(taps)


def test_the_function_is_the_command(opsgen: Command) -> None:
    rms_norm = all_ops()["rms_norm"]
    assert og.inspect(rms_norm, absent=["residual"]) == opsgen("inspect", "rms_norm", "--absent", "residual").out
    linear = all_ops()["linear"]
    made = og.variant(linear, absent=["bias", "residual"], activation="relu", dims={"in_features": 8})
    assert og.inspect(made) == og.inspect(
        linear, absent=["bias", "residual"], activation="relu", dims={"in_features": 8}
    )
    with pytest.raises(
        CompileError,
        match=r"E3011: unknown stage 'timeline'; the stages are graph, proof, te, ir, source, asm\. .*planned",
    ):
        og.inspect(rms_norm, "timeline")
    with pytest.raises(CompileError, match=r"E3011: unknown stage 'grpah'.*Name one of them"):
        og.inspect(rms_norm, "grpah")


def test_a_shared_node_is_shown_once_and_named() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        y = og.exp(x)
        return y * y + y

    lines = og.inspect(f).splitlines()
    tree = lines[next(i for i, line in enumerate(lines) if line.startswith("  out = add")) :]
    assert [line.split("  ")[-1] if "=" not in line else line.strip().split("  ")[0] for line in tree] == [
        "out = add", "float32[n]", "%1 = exp", "x", "%1", "%1",
    ]  # fmt: skip


def test_flops_and_bytes_are_sums_of_products(opsgen: Command) -> None:
    found = json.loads(opsgen("inspect", "linear", "--absent", "bias", "residual", "--json").out)
    assert found["flops"] == "2*rows*in_features*out_features"
    assert found["bytes"] == "4*rows*in_features + 4*in_features*out_features + 4*rows*out_features"


def test_formulas_agree_with_the_extents() -> None:
    a, b = Extent.dim("a"), Extent.dim("b")
    for extent in (
        a * b * 4 + a * b * 3 + a,
        (a + b) * (a + 2),
        (a + b) // 3 * 2,
        a // b * 5 + 7,
        Extent.const(0),
        a * 0,
    ):
        for sizes in ({"a": 7, "b": 3}, {"a": 1, "b": 5}, {"a": 12, "b": 4}):
            assert eval(formula(extent), {}, sizes) == extent.evaluate(sizes)
    assert formula(a * b * 4 + a * b * 3 + a) == "7*a*b + a"


ASSEMBLY = """
	.file	"m"
	.text
	.globl	f
f:
.Lfunc_begin0:
	.cfi_startproc
	vmovups	%ymm1, 32(%rsp)
.LBB0_1:
.LBB0_2:
.Ltmp3:
	vfmadd231ps	(%rdi), %zmm1, %zmm2
	vmovaps	%zmm3, 64(%rsp)
	vaddps	64(%rsp), %zmm2, %zmm2
	vmovaps	(%rbp), %xmm0
	jne	.LBB0_2
	callq	expf@PLT
	jl	.LBB0_1
.LBB0_3:
	retq
	.section	.text.tvm.fp16.conv,"ax",@progbits
g:
	callq	expf@PLT
	.section	.debug_loc,"",@progbits
	.quad	1
"""


def test_reading_assembly() -> None:
    text = clean(ASSEMBLY)
    assert ".Ltmp3" not in text and ".cfi" not in text and ".LBB0_3" not in text and "g:" not in text
    found = summary(text)
    assert found["registers"] == {"xmm": 1, "ymm": 1, "zmm": 3}
    assert (found["fma"], found["stack_stores"], found["stack_loads"], found["libm"]) == (1, 2, 1, {"expf": 1})
    (loop,) = found["loops"]
    assert (loop["label"], loop["instructions"], loop["fma"]) == (".LBB0_2", 5, 1)
    assert (loop["stack_stores"], loop["stack_loads"], loop["calls"]) == (1, 1, [])
    framed = summary(clean(ASSEMBLY.replace("f:", "f:\n\tmovq\t%rsp, %rbp", 1)))
    assert framed["stack_loads"] == 2  # only now does rbp point to the stack


def test_proof_of_attention(opsgen: Command) -> None:
    done = opsgen("inspect", "attention", "--stage", "proof")
    assert (done.code, done.err) == (0, "")
    for line in (
        "chain over keys: r1, r2, r3",
        "  sum_head_dim stands for sum over head_dim of (q * k)",
        "    F          exp(scale*sum_head_dim - r1)",
        "    taken out  r3 = r3_loop/r2, and r3_loop is the sum of F = v*exp(scale*sum_head_dim - r1)",
        "    shown      F(x, r) · F(x', r') = F(x, r') · F(x', r)",
        "    H(r)       exp(scale*sum_head_dim' - r1)",
        "    repair     * exp(r1_old - r1_new)",
        "    bound      with r1_new = r1_old + d_r1 and d_r1 >= 0: exp(-d_r1) <= 1",
        "    guard      while r1 = -inf nothing was added, and 0 stands in for r1",
        "  rolling, from r1 = -inf, r2 = 0, r3_loop = 0, for each tile of keys",
        "    r2_new = r2_old * exp(r1_old - r1_new) + sum over the tile of exp(scale*sum_head_dim - r1_new)",
        "    r2 = r2_a * exp(r1_a - r1) + r2_b * exp(r1_b - r1)",
        "    r3 = r3_loop/r2",
    ):
        assert line in done.out.splitlines()
    (chain,) = json.loads(opsgen("inspect", "attention", "--stage", "proof", "--json").out)["chains"]
    assert [(k["name"], k["op"], k["needs"], k["scales"], k["repair"]) for k in chain["links"]] == [
        ("r1", "max", [], [], ""),
        ("r2", "sum", ["r1"], [], "exp(r1_old - r1_new)"),
        ("r3", "sum", ["r1"], ["r2"], "exp(r1_old - r1_new)"),
    ]


def test_proof_of_what_does_not_separate(opsgen: Command) -> None:
    done = opsgen("inspect", "layer_norm", "--stage", "proof")
    assert "r2, sum over hidden, needs r1 finished" in done.out and "chain over" not in done.out
    found = json.loads(opsgen("inspect", "layer_norm", "--stage", "proof", "--json").out)
    assert found["chains"] == []
    assert [(b["name"], b["needs"]) for b in found["breaks"]] == [("r2", ["r1"])]
    assert found["breaks"][0]["residual"].startswith("-(r1 - r1')*(")


@pytest.mark.parametrize("name", OPS)
def test_proof_of_every_op(name: str) -> None:
    found = inspect(all_ops()[name], "proof")
    assert not CONTROL.search(found)
    if "attention" in name or name in ("softmax", "log_softmax", "cross_entropy"):
        expected = "chain over "
    elif name in ("layer_norm", "add_layer_norm", "group_norm", "layer_norm_gelu"):
        expected = "needs r1 finished"
    elif name == "moe_router":
        expected = "needs argmax finished"
    elif name in ("top_k", "moe_capacity_router", "abs_percentile"):
        expected = "needs max finished"
    elif name == "sample_logits":
        expected = "positions are compared with a value that moves"
    else:
        expected = "no chain: no reduction needs another one over the same dims"
    assert expected in found
