"""opsgen.runtime.manifest and expressions: what is read back, and which field a wrong one is refused for."""

import copy
import re

import pytest

from opsgen.errors import CallError
from opsgen.runtime.expressions import ExpressionError, expression
from opsgen.runtime.manifest import (
    REQUIRED,
    AttributeParam,
    Group,
    Kernel,
    Manifest,
    ScalarParam,
    Signature,
    TensorParam,
    TensorSpec,
)
from tests.runtime import handmade


def test_round_trip_of_every_field():
    signature = Signature(
        (
            TensorParam("x", ("...", "n", 4), dtype="integer"),
            TensorParam("bias", ("n",), "float32", optional=True, keyword=True),
            ScalarParam("scale", None, keyword=True),
            ScalarParam("eps", keyword=True),
            AttributeParam("mode", "str", "a", ("a", "b"), keyword=True),
            AttributeParam("steps", "int", None, keyword=True),
        ),
        ("low", "high"),
        "A line.",
    )
    spec = TensorSpec("x", "int64", ("rows", 7, 4), leading=True, index_limit="n + 1")
    kernel = Kernel(
        "k_1",
        "op",
        "avx2",
        (spec,),
        (TensorSpec("low", "float32", ("rows", "n * 2"), True), TensorSpec("high", "float32", (3,))),
        (handmade.ScalarSpec("scale", "float32"), handmade.ScalarSpec("eps", "float64")),
        {"mode": "b", "steps": 3},
        ("bias",),
        ("rows > 4", "n % 8 == 0 or n < 8"),
        (handmade.Constraint("n > 0", "n must be positive"),),
        "rows * 4",
        "2 * rows * n",
        "8 * rows",
        (Group("map", "x86.map", {"tile": [1, 2]}, ["a"]),),
        "fp32",
        "abc",
        {"time": 1.5},
    )
    manifest = Manifest("1.2", "x86", ("avx2", "avx512"), {"op": signature}, (kernel,), {"llvm": "22"}, "2026-01-01")
    data = manifest.to_json()
    assert Manifest.from_json(copy.deepcopy(data)) == manifest
    assert "default" not in data["ops"]["op"]["params"][3]
    assert data["ops"]["op"]["params"][2]["default"] is None
    assert Manifest.from_json(data).ops["op"].scalars[1].default is REQUIRED


BROKEN = [  # path to the field, its new value ("gone": removed), the path in the message, a word of the reason
    (["format"], "1", "format", "not an integer"),
    (["format"], 0, "format", "less than 1"),
    (["kind"], "x 86", "kind", "identifier"),
    (["kernels"], {}, "kernels", "not a list"),
    (["archs"], [], "archs", "empty"),
    (["archs"], ["baseline", "baseline"], "archs", "twice"),
    (["more"], 1, "the top level", "unknown field 'more'"),
    (["created"], "gone", "created", "missing"),
    (["tools"], {"g++": 12}, "tools.g++", "not a string"),
    (["ops", "scale_add", "params", 0, "role"], "thing", "ops.scale_add.params[0].role", "tensor, scalar or attribute"),
    (["ops", "scale_add", "params", 0, "name"], "a-b", "ops.scale_add.params[0].name", "identifier"),
    (["ops", "scale_add", "params", 0, "name"], "out", "ops.scale_add.params[0]", "name of a param"),
    (["ops", "scale_add", "params", 0, "name"], "lambda", "ops.scale_add.params[0]", "name of a param"),
    (["ops", "scale_add", "params", 0, "name"], "weight", "ops.scale_add.params[1].name", "twice"),
    (["ops", "scale_add", "params", 0, "dims"], ["n", "..."], "ops.scale_add.params[0].dims[1]", "first"),
    (["ops", "scale_add", "params", 0, "optional"], True, "ops.scale_add.params[1]", "no default"),
    (["ops", "scale_add", "params", 1, "keyword"], True, "", ""),
    (["ops", "scale_add", "params", 0, "keyword"], True, "ops.scale_add.params[1]", "positional"),
    (["ops", "scale_add", "results"], [{"name": "a"}, {"name": "a"}], "ops.scale_add.results", "twice"),
    (["ops", "import"], {"params": [], "results": [], "doc": ""}, "ops.import", "name of an op"),
    (["kernels", 0, "symbol"], "a b", "kernels[0].symbol", "identifier"),
    (["kernels", 0, "symbol"], "bounds", "kernels[2].symbol", "kernels[0]"),
    (["kernels", 0, "arch"], "avx9", "kernels[0].arch", "one of the archs"),
    (["kernels", 0, "op"], "none", "kernels[0].op", "one of the ops"),
    (["kernels", 0, "absent"], ["weight"], "kernels[0].absent", "optional"),
    (["kernels", 0, "scalars"], [], "kernels[0].scalars", "['scale']"),
    (["kernels", 0, "inputs", 0, "name"], "weight", "kernels[0].inputs", "['x', 'weight']"),
    (["kernels", 0, "inputs", 0, "dtype"], "float31", "kernels[0].inputs[0].dtype", "'float31'"),
    (["kernels", 0, "inputs", 0, "dims"], ["rows"], "kernels[0].inputs[0].dims", "signature"),
    (["kernels", 0, "inputs", 0, "dims"], ["rows", "other"], "kernels[0].inputs[0].dims", "'other'"),
    (["kernels", 0, "inputs", 0, "leading"], False, "kernels[0].inputs[0].dims", "signature"),
    (["kernels", 0, "inputs", 0, "dims"], ["hidden", "hidden"], "kernels[0].inputs", "name of their own"),
    (["kernels", 0, "inputs", 0, "mutable"], True, "kernels[0].inputs[0].mutable", "False"),
    (["kernels", 0, "inputs", 0, "dims", 1], -3, "kernels[0].inputs[0].dims[1]", "less than 0"),
    (["kernels", 0, "outputs", 0, "dims", 1], "hidden ** 2", "kernels[0].outputs[0].dims[1]", "not allowed"),
    (["kernels", 0, "outputs", 0, "dims", 1], "open('x')", "kernels[0].outputs[0].dims[1]", "not allowed"),
    (["kernels", 0, "outputs", 0, "name"], "y", "kernels[0].outputs", "['out']"),
    (["kernels", 0, "region"], ["rows > depth"], "kernels[0].region[0]", "unknown dim 'depth'"),
    (["kernels", 0, "region"], ["rows >"], "kernels[0].region[0]", "not an expression"),
    (["kernels", 0, "constraints"], [{"expr": "rows"}], "kernels[0].constraints[0].message", "missing"),
    (["kernels", 0, "attributes"], {"causal": True}, "kernels[0].attributes", "['causal']"),
    (["kernels", 5, "attributes", "subtract"], 1, "kernels[5].attributes.subtract", "true or false"),
    (["kernels", 0, "workspace"], 1.5, "kernels[0].workspace", "not a string"),
]


@pytest.mark.parametrize("place, value, where, word", BROKEN)
def test_a_wrong_field_is_named(place, value, where, word):
    data = handmade.manifest().to_json()
    *parents, last = place
    inner = data
    for step in parents:
        inner = inner[step]
    if value == "gone":
        del inner[last]
    else:
        inner[last] = value
    if not where:  # a change that is right, to show that the others are not refused for something else
        Manifest.from_json(data)
        return
    wanted = f"E4016: lib.so: the manifest breaks the schema at {re.escape(where)}: .*{re.escape(word)}"
    with pytest.raises(CallError, match=wanted):
        Manifest.from_json(data, "lib.so")


@pytest.mark.parametrize(
    "text, value",
    [
        ("rows", 12),
        ("7", 7),
        ("rows * n - 2", 34),
        ("-rows // 5", -3),
        ("rows % 5 == 2", True),
        ("rows > 4 and not n == 3 or n < 1", False),
        ("1 < n <= 3", True),
        ("max(rows, n, 20) + min(n, 2)", 22),
        ("(rows + 31) // 32 * 32", 32),
    ],
)
def test_expressions(text, value):
    found = expression(text)
    assert found.over({"rows": 12, "n": 3, "other": 1}) == value
    assert found(*({"rows": 12, "n": 3}[name] for name in found.names)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "a +",
        "a / b",
        "a ** b",
        "a.b",
        "a[0]",
        "a if b else c",
        "lambda: a",
        "[a]",
        "f(a)",
        "max(a)",
        "max(*a, b)",
        "max(a, b, key=c)",
        "max",
        "1.5",
        "True",
        "'a'",
        "a is b",
        "a in b",
        "a << 2",
        "~a",
        "(a := 3)",
        "__import__('os')",
        "a\0",
        "-" * 1500 + "a",
        "(" * 900 + "a" + ")" * 900,
        "a + " * 1000 + "a",
    ],
)
def test_what_is_no_expression(text):
    with pytest.raises(ExpressionError):
        expression(text)


def test_expression_of_a_dim_of_size_zero():
    assert not expression("n % heads == 0").holds({"n": 4, "heads": 0})
    with pytest.raises(ZeroDivisionError):
        expression("n // heads").over({"n": 4, "heads": 0})
