"""opsgen.runtime.dispatch: binding of arguments, every check of a call, results, aliasing, threads and forks."""

import inspect
import os
import re
import subprocess
import sys
import threading
import time
from fractions import Fraction

import numpy as np
import pytest

from opsgen.errors import CallError, InternalError, ResourceError
from opsgen.runtime import load, selection
from opsgen.runtime.arrays import ArrayInfo
from opsgen.runtime.manifest import Constraint, Kernel, ScalarParam, Signature, TensorParam
from tests.runtime import handmade
from tests.runtime.handmade import tensor

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([10, 20, 30], np.float32)


def raises(text):
    """A context that wants an error whose message starts with this text, word for word."""
    return pytest.raises((CallError, ResourceError), match="^" + re.escape(text))


# --- binding ----------------------------------------------------------------------------------------------------------


def test_ways_to_pass_arguments(lib):
    wanted = X + W
    for found in (
        lib.scale_add(X, W),
        lib.scale_add(X, weight=W),
        lib.scale_add(weight=W, x=X),
        lib.scale_add(X, W, scale=1.0),
        lib.scale_add(weight=W, x=X, scale=1, out=None),
    ):
        np.testing.assert_array_equal(found, wanted)
    assert lib.stats["scale_add"].calls == 5


FORM = "The call is scale_add(x, weight, *, scale=1.0, out=None)."


@pytest.mark.parametrize(
    "args, named, found",
    [
        ((), {}, "argument 'x' is missing"),
        ((X,), {}, "argument 'weight' is missing"),
        ((), {"weight": W}, "argument 'x' is missing"),
        ((X, W, 1.0), {}, "3 positional arguments, of which it takes 2"),
        ((X, W), {"epsilon": 1.0}, "argument 'epsilon' is unknown"),
        ((X, W), {"weight": W}, "argument 'weight' is given twice, by position and by name"),
        ((X,), {"x": X, "weight": W}, "argument 'x' is given twice, by position and by name"),
    ],
)
def test_wrong_calls(lib, args, named, found):
    for _ in range(2):
        with raises(f"E4002: scale_add: {found}. {FORM}"):
            lib.scale_add(*args, **named)
        lib.scale_add(X, W)


def test_missing_scalar(lib):
    with raises("E4002: fail: argument 'how' is missing. The call is fail(x, how, *, out=None)."):
        lib.fail(W)
    lib.fail(W, 9)
    with raises("E4002: fail: argument 'how' is missing."):
        lib.fail(W)


def test_missing_is_told_in_the_order_of_the_definition(tmp_path):
    signature = Signature((ScalarParam("how"), TensorParam("x", ("hidden",))))
    kernel = next(kernel for kernel in handmade.kernels() if kernel.op == "fail")
    with raises("E4002: fail: argument 'how' is missing. The call is fail(how, x, *, out=None)."):
        load(handmade.write(tmp_path / "a.so", kernel, fail=signature)).fail()


def test_names_that_python_uses_itself(tmp_path):
    """Parameters may have the names of builtins, and of what the generated function uses."""
    kernel = Kernel("same_float32", "same", "baseline", (tensor("type", "rows float"),), (tensor("out", "rows float"),))
    signature = Signature((TensorParam("type", ("...", "float")),))
    same = load(handmade.write(tmp_path / "a.so", kernel, same=signature)).same
    np.testing.assert_array_equal(same(type=X), X)


def test_help(lib):
    function = lib.accumulate
    assert str(inspect.signature(function)) == "(cache, x, *, subtract=False, out=None)"
    assert function.__name__ == "accumulate"
    assert "cache: [..., hidden], float32; updated in place." in function.__doc__
    assert lib.scale_add.__doc__.startswith("y = x * scale + weight\n")
    assert "x: [..., hidden], float32 or float64." in lib.scale_add.__doc__
    assert "bias: [hidden], float32; may be None." in lib.bounds.__doc__


# --- checks, in their order -------------------------------------------------------------------------------------------


def test_dtype(lib):
    with raises(
        "E4003: scale_add: argument 'x' has dtype float16; this library takes float32 or float64. "
        "Convert it: x.astype(np.float32), or compile the op with --dtype float16."
    ):
        lib.scale_add(X.astype(np.float16), W)
    with raises(
        "E4003: scale_add: argument 'weight' has dtype float64; this library takes float32. Convert it: weight"
    ):
        lib.scale_add(X, W.astype(np.float64))
    assert lib.scale_add(X.astype(np.float64), W.astype(np.float64)).dtype == np.float64


@pytest.mark.parametrize(
    "declared, dtype, advice",
    [
        ("integer", "int32", "Convert it: index.astype(np.int64), or compile the op with --dtype float32,index=int32."),
        ("integer", "int16", "Convert it: index.astype(np.int64)."),
        ("integer", "float32", "Convert it: index.astype(np.int64)."),
        ("int64", "int32", "Convert it: index.astype(np.int64)."),
        (
            "float8",
            "float8_e5m2",
            "Convert it: index.astype(np.int64), or compile the op with --dtype float32,index=float8_e5m2.",
        ),
        ("float8", "float16", "Convert it: index.astype(np.int64)."),
        (None, "float16", "Convert it: index.astype(np.int64), or compile the op with --dtype float16."),
        (None, "int32", "Convert it: index.astype(np.int64)."),
    ],
)
def test_dtype_that_the_definition_admits(tmp_path, declared, dtype, advice):
    signature = Signature((TensorParam("table", ("n",)), TensorParam("index", ("...",), declared)))
    kernel = next(kernel for kernel in handmade.kernels() if kernel.op == "pick")
    library = load(handmade.write(tmp_path / "a.so", kernel, pick=signature))
    with raises(f"E4003: pick: argument 'index' has dtype {dtype}; this library takes int64. {advice}"):
        library.pick(W, np.zeros(2, dtype))


@pytest.mark.parametrize("dtype", ["O", "c8", ">f4", "f8"])
def test_float32_is_proposed_where_it_serves(tmp_path, dtype):
    same = [kernel for kernel in handmade.kernels() if kernel.symbol in ("same_bfloat16", "same_float32")]
    library = load(handmade.write(tmp_path / "a.so", *same))
    with pytest.raises(CallError, match=r"takes bfloat16 or float32\. Convert it: x\.astype\(np\.float32\)[.,]"):
        library.same(np.zeros((2, 3), dtype))


def test_rank(lib):
    with raises("E4004: scale_add: argument 'weight' has 2 dims (shape (1, 3)); wanted 1, [hidden]."):
        lib.scale_add(X, W[None])
    with raises("E4004: scale_add: argument 'x' has 0 dims (shape ()); wanted at least 1, [..., hidden]."):
        lib.scale_add(np.float32(1)[...], W)


def test_dims_that_disagree(lib):
    with raises(
        "E4005: scale_add: argument 'weight' has hidden=4 (shape (4,)); wanted 3, as argument 'x' has (shape (2, 3)). "
        "Reshape one of them."
    ):
        lib.scale_add(X, np.zeros(4, np.float32))
    with raises(
        "E4005: accumulate: argument 'x' has ...=(2, 1) (shape (2, 1, 3)); wanted (2,), "
        "as argument 'cache' has (shape (2, 3))."
    ):
        lib.accumulate(X.copy(), X[:, None])


def test_bound_dims(tmp_path):
    kernels = handmade.scale_add(hidden="3"), handmade.scale_add("scale_add_f32_low", hidden="5")
    lib = load(handmade.write(tmp_path / "a.so", *kernels))
    np.testing.assert_array_equal(lib.scale_add(X, W), X + W)
    np.testing.assert_array_equal(lib.scale_add(np.ones((2, 5), np.float32), np.ones(5, np.float32)), 3)
    with raises(
        "E4005: scale_add: argument 'x' has hidden=4 (shape (2, 4)); wanted 3 or 5, compiled with hidden=3 or "
        "hidden=5. Compile it for hidden=4, or with hidden left open."
    ):
        lib.scale_add(np.ones((2, 4), np.float32), np.ones(4, np.float32))


def test_the_kernel_with_more_bound_dims_is_preferred(tmp_path):
    lib = load(
        handmade.write(tmp_path / "a.so", handmade.scale_add(), handmade.scale_add("scale_add_f32_low", hidden="3"))
    )
    np.testing.assert_array_equal(lib.scale_add(X, W), 2 * X + W)
    np.testing.assert_array_equal(lib.scale_add(X[:, :2], W[:2]), X[:, :2] + W[:2])


def test_attributes(lib):
    lib.accumulate(X.copy(), X, subtract=np.True_)
    lib.accumulate(X.copy(), X, subtract=True)
    for value, shown in ((1, "1 (int)"), (None, "None (NoneType)"), ("yes", "'yes' (str)"), ([], "[] (list)")):
        known = "subtract=False or subtract=True"
        with raises(f"E4018: accumulate: attribute 'subtract' is {shown}; this library was compiled for {known}."):
            lib.accumulate(X.copy(), X, subtract=value)


def test_an_attribute_that_was_not_compiled(tmp_path):
    kernel = next(kernel for kernel in handmade.kernels() if kernel.symbol == "accumulate")
    lib = load(handmade.write(tmp_path / "a.so", kernel))
    with raises(
        "E4018: accumulate: attribute 'subtract' is True (bool); this library was compiled for subtract=False."
    ):
        lib.accumulate(X.copy(), X, subtract=True)


def test_int_and_text_attributes(tmp_path):
    from opsgen.runtime.manifest import AttributeParam

    signature = Signature(
        (TensorParam("x", ("...", "n")), AttributeParam("steps", "int"), AttributeParam("mode", "str", "a"))
    )
    kernels = [
        Kernel(
            symbol,
            "same",
            "baseline",
            (tensor("x", "rows n"),),
            (tensor("out", "rows n"),),
            attributes={"steps": 2, "mode": mode},
        )
        for symbol, mode in (("same_float32", "a"), ("nothing", "b"))
    ]
    same = load(handmade.write(tmp_path / "a.so", *kernels, same=signature)).same
    np.testing.assert_array_equal(same(X, 2), X)
    np.testing.assert_array_equal(same(X, np.int64(2), mode="a"), X)
    same(X, 2, "b")
    with raises("E4018: same: attribute 'steps' is True (bool); this library was compiled for steps=2."):
        same(X, True)
    with raises("E4018: same: attribute 'steps' is 2.0 (float)"):
        same(X, 2.0)
    with raises("E4018: same: attribute 'mode' is 'c' (str); this library was compiled for mode='a' or mode='b'."):
        same(X, 2, "c")


@pytest.mark.parametrize("scale", [2, 2.0, np.float32(2), np.float64(2), np.int8(2), np.float16(2), Fraction(2)])
def test_scalars(lib, scale):
    for _ in range(2):
        found = lib.scale_add(X, W, scale=scale)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, X * 2 + W)


def test_a_python_float_is_rounded_once_to_the_kernels_dtype(lib):
    x = np.full((1, 3), 3, np.float32)
    np.testing.assert_array_equal(lib.scale_add(x, W * 0, scale=0.1), np.float32(3) * np.float32(0.1))


@pytest.mark.parametrize(
    "scale, found",
    [
        (True, "of type bool"),
        (np.bool_(True), "of type bool"),
        ("2", "of type str"),
        (1 + 2j, "of type complex"),
        (None, "of type NoneType"),
        (np.ones(1, np.float32), "of type ndarray"),
        ([1.0], "of type list"),
        (10**400, "the number 1000"),
    ],
)
def test_what_is_no_scalar(lib, scale, found):
    for _ in range(2):
        with raises(f"E4017: scale_add: argument 'scale' is {found}"):
            lib.scale_add(X, W, scale=scale)
        lib.scale_add(X, W)  # with a plan, the next turn takes the other way


def test_constraint(lib):
    np.testing.assert_array_equal(lib.ones(np.zeros((2, 4), np.float32)), np.ones(8))
    with raises(
        "E4010: ones: the dims are size=5, heads=2; wanted size must be a multiple of heads (size % heads == 0). "
        "Pass arrays of other shapes."
    ):
        lib.ones(np.zeros((2, 5), np.float32))
    with raises("E4010: ones: the dims are size=5, heads=0; wanted"):
        lib.ones(np.zeros((0, 5), np.float32))


def test_result_dim_that_divides_by_zero(tmp_path):
    spec = handmade.TensorSpec("out", "float32", ("size // heads",))
    kernel = Kernel("ones", "ones", "baseline", (tensor("x", "heads size"),), (spec,))
    lib = load(handmade.write(tmp_path / "a.so", kernel))
    assert lib.ones(np.zeros((2, 6), np.float32)).shape == (3,)
    with raises("E4010: ones: heads=0 is a divisor; wanted sizes for which result 'out' has a shape"):
        lib.ones(np.zeros((0, 6), np.float32))


def test_region(lib):
    with raises(
        "E4008: ones: no kernel serves this call (size=66). This library has: kernels for size <= 64. Compile for it."
    ):
        lib.ones(np.zeros((2, 66), np.float32))


def test_regions_choose_the_kernel(tmp_path):
    few = handmade.scale_add("scale_add_f32_low", region=("rows <= 4",))
    many = handmade.scale_add(region=("rows > 4", "hidden > 0"))
    lib = load(handmade.write(tmp_path / "a.so", few, many))
    np.testing.assert_array_equal(lib.scale_add(np.stack([X, X]), W), np.stack([X, X]) * 2 + W)  # 4 rows
    np.testing.assert_array_equal(lib.scale_add(np.stack([X, X, X]), W), np.stack([X, X, X]) + W)
    with raises(
        "E4008: scale_add: no kernel serves this call (rows=5, hidden=0). This library has: kernels for rows <= 4; r"
    ):
        lib.scale_add(np.zeros((5, 0), np.float32), W[:0])


def test_optional_tensors(lib):
    low, high = lib.bounds(X)
    np.testing.assert_array_equal([low, high], [[0, 3], [2, 5]])
    low, high = lib.bounds(X, W)
    np.testing.assert_array_equal([low, high], [[10, 13], [32, 35]])
    np.testing.assert_array_equal(lib.bounds(X, bias=None).high, [2, 5])


def test_optional_tensor_that_was_not_compiled(tmp_path):
    without, with_bias = (kernel for kernel in handmade.kernels() if kernel.op == "bounds")
    with raises(
        "E4008: bounds: no kernel serves this call (with every optional tensor). This library has: kernels without bias"
    ):
        load(handmade.write(tmp_path / "a.so", without)).bounds(X, W)
    with raises(
        "E4008: bounds: no kernel serves this call (without bias). This library has: kernels with every optional"
    ):
        load(handmade.write(tmp_path / "b.so", with_bias)).bounds(X)


WRONG = {  # what is wrong with a call to scale_add of `ordered`, in the order in which it must be told
    "E4002": {"x": None, "drop": True},
    "E4017 x": {"x": [1.0]},
    "E4020": {"weight": "torch"},
    "E4003": {"x": X.astype(np.float16)},
    "E4004": {"weight": W[None]},
    "E4005": {"weight": np.zeros(4, np.float32)},
    "E4018": {"mode": "c"},
    "E4017 scale": {"scale": "2"},
}


@pytest.fixture
def ordered(tmp_path):
    from opsgen.runtime.manifest import AttributeParam

    params = (*handmade.SIGNATURES["scale_add"].params, AttributeParam("mode", "str", "a", keyword=True))
    kernel = handmade.scale_add(
        attributes={"mode": "a"},
        constraints=(Constraint("hidden != 3", "hidden must not be 3"),),
        region=("rows != 2",),
    )
    return load(handmade.write(tmp_path / "a.so", kernel, scale_add=Signature(params))).scale_add


def test_checks_come_in_order(ordered, torch):
    """With everything wrong that comes after it, each mistake is told first."""
    for first in range(len(WRONG)):
        call = {"x": X, "weight": W, "scale": 1.0, "mode": "a"}
        for code, change in reversed(list(WRONG.items())[first:]):
            if code == "E4002":
                call.pop("x")
            elif code == "E4020":
                call["weight"] = torch.zeros(4)
            else:
                call |= change
        wanted = list(WRONG)[first]
        with pytest.raises(CallError, match=f"^{wanted[:5]}: .*'{wanted[6:]}"):
            ordered(**call)
    with pytest.raises(CallError, match=r"^E4010: .*hidden=3.*hidden must not be 3"):
        ordered(X, W)
    with pytest.raises(CallError, match=r"^E4008: .*rows=2"):
        ordered(X[:, :2], W[:2])
    ordered(X[:1, :2], W[:2])


def test_device(lib, torch, monkeypatch):
    from opsgen.runtime import torch_arrays

    plain = torch_arrays.ADAPTER.describe
    monkeypatch.setattr(torch_arrays.TorchAdapter, "describe", lambda self, x: plain(x)._replace(device="cuda:0"))
    with raises("E4006: same: argument 'x' is on cuda:0; this library runs on x86 (cpu). Move it there."):
        lib.same(torch.zeros(2, 3))


def test_arguments_on_two_devices():
    kernel = handmade.scale_add()
    candidate = selection.Candidate(kernel, "cuda", "a.so", 0, print, {})
    signature = handmade.SIGNATURES["scale_add"]
    infos = [ArrayInfo((2, 3), (3, 1), "float32", "cuda:0", "torch", True, True)]
    infos.append(ArrayInfo((3,), (1,), "float32", "cuda:1", "torch", True, True))
    call = ("scale_add", signature, [candidate], list(zip(signature.tensors, infos)), {}, lambda: None)
    with raises("E4006: scale_add: argument 'weight' is on cuda:1; this library runs on cuda:0 here, where 'x' is."):
        selection.select(*call)
    call[3][1] = (signature.tensors[1], infos[1]._replace(device="cuda:0"))
    assert selection.select(*call).outputs == ((2, 3),)


# --- results and out --------------------------------------------------------------------------------------------------


def test_several_results(lib):
    found = lib.bounds(X)
    assert type(found)._fields == ("low", "high") and found.high is found[1]
    low, high = np.zeros(2, np.float32), np.zeros(2, np.float32)
    for out in ((low, high), [low, high], {"high": high, "low": low}, type(found)(low, high)):
        low[...] = high[...] = 0
        given = lib.bounds(X, out=out)
        assert given.low is low and given.high is high and (high == [2, 5]).all() and (low == [0, 3]).all()


def test_several_results_of_torch(lib, torch):
    low, high = torch.zeros(2), torch.zeros(2)
    for out in (None, (low, high)):
        found = lib.bounds(torch.from_numpy(X), out=out)
        assert torch.equal(found.low, torch.tensor([0.0, 3])) and torch.equal(found.high, torch.tensor([2.0, 5]))
    assert found.low is low


@pytest.mark.parametrize(
    "out, found",
    [
        (np.zeros(2, np.float32), "out is a ndarray"),
        ((W,), "out has 1 entries"),
        ({"low": W}, "out has the keys ['low']"),
        ((None, W), "out has an entry that is None"),
    ],
)
def test_several_results_wrongly_given(lib, out, found):
    form = "bounds(x, bias=None, *, out=None) with out a tuple or dict of low, high"
    with raises(f"E4002: bounds: {found}. The call is {form}."):
        lib.bounds(X, out=out)


@pytest.mark.parametrize(
    "out, message",
    [
        (
            np.zeros((2, 3)),
            "E4003: scale_add: argument 'out' has dtype float64; this library takes float32. "
            "Allocate it with np.empty((2, 3), np.float32).",
        ),
        (
            np.zeros(6, np.float32),
            "E4004: scale_add: argument 'out' has 1 dims (shape (6,)); wanted 2, as the result has",
        ),
        (
            np.zeros((2, 4), np.float32),
            "E4005: scale_add: argument 'out' has hidden=4 (shape (2, 4)); wanted 3, as the result has (shape (2, 3)).",
        ),
        (np.zeros((3, 3), np.float32), "E4005: scale_add: argument 'out' has dim 0=3 (shape (3, 3)); wanted 2, as"),
        (
            np.broadcast_to(np.float32(0), (2, 3)),
            "E4017: scale_add: argument 'out' is a read-only array; wanted one that can be written to, such as",
        ),
        (
            np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (2, 3), (0, 4)),
            "E4017: scale_add: argument 'out' is an expanded view, whose elements share memory; wanted memory of its",
        ),
        ([[0.0]], "E4017: scale_add: argument 'out' is a list; wanted an array"),
    ],
)
def test_wrong_out(lib, out, message):
    lib.scale_add(X, W, out=np.zeros((2, 3), np.float32))
    with raises(message):
        lib.scale_add(X, W, out=out)


def test_mutable_argument_must_be_writeable(lib):
    with raises("E4017: accumulate: argument 'cache' is a read-only array; wanted one that can be written to"):
        lib.accumulate(np.broadcast_to(np.float32(0), (2, 3)), X)


# --- aliasing ---------------------------------------------------------------------------------------------------------


def overlap(op, one, other):
    return raises(f"E4007: {op}: {one!r} is written to and overlaps the memory of {other!r}. Pass memory of its own")


def test_out_that_is_an_argument(lib):
    x = X.copy()
    for _ in range(2):
        with overlap("scale_add", "out", "x"):
            lib.scale_add(x, W, out=x)
    np.testing.assert_array_equal(x, X)
    square = np.zeros((3, 3), np.float32)
    with overlap("scale_add", "out", "weight"):
        lib.scale_add(np.ones((3, 3), np.float32), square[1], out=square)
    memory = np.zeros(9, np.float32)
    with overlap("scale_add", "out", "x"):
        lib.scale_add(memory[:6].reshape(2, 3), W, out=memory[3:].reshape(2, 3))


def test_out_that_overlaps_an_argument_which_is_copied(lib):
    """The copy would hide the overlap from the launcher."""
    square = np.zeros((3, 3), np.float32)
    for _ in range(2):
        with overlap("scale_add", "out", "x"):
            lib.scale_add(square.T, W, out=square)
        with overlap("scale_add", "out", "x"):
            lib.scale_add(square, W, out=square.T)


def test_interleaved_views_share_nothing(lib):
    memory = np.zeros((2, 8), np.float32)
    x, out = memory[:, :3], memory[:, 4:7]
    x[...] = X
    for _ in range(2):
        assert lib.scale_add(x, W, out=out) is out
        np.testing.assert_array_equal(out, X + W)
        assert (memory[:, 3] == 0).all() and (memory[:, 7] == 0).all()
    with overlap("scale_add", "out", "x"):
        lib.scale_add(x, W, out=memory[:, 2:5])


def test_interleaved_views_of_torch(lib, torch):
    memory = torch.zeros(2, 8)
    memory[:, :3] = torch.from_numpy(X)
    out = lib.scale_add(memory[:, :3], torch.from_numpy(W), out=memory[:, 4:7])
    np.testing.assert_array_equal(out.numpy(), X + W)
    with overlap("scale_add", "out", "x"):
        lib.scale_add(memory[:, :3], torch.from_numpy(W), out=memory[:, 1:4])


def test_results_that_overlap_each_other(lib):
    memory = np.zeros(3, np.float32)
    with overlap("bounds", "high", "low"):
        lib.bounds(X, out=(memory[:2], memory[1:]))
    low, high = np.zeros((2, 2), np.float32).T
    lib.bounds(X, out=(low, high))
    assert (high == [2, 5]).all()


def test_mutable_argument_and_others(lib):
    cache = np.zeros((2, 3), np.float32)
    lib.accumulate(cache, X)
    np.testing.assert_array_equal(cache, X)
    with overlap("accumulate", "cache", "x"):
        lib.accumulate(cache, cache)
    with overlap("accumulate", "total", "cache"):
        lib.accumulate(cache, X, out=cache[0, :2])
    with overlap("accumulate", "cache", "x"):
        lib.accumulate(cache[:, ::2], cache[:, 1:])
    np.testing.assert_array_equal(cache, X)


# --- what launchers raise ---------------------------------------------------------------------------------------------


def test_index_out_of_range(lib):
    index = np.array([[0, 1, 2], [2, -1, 0]])
    with raises("E4009: pick: argument 'index' holds index -1 at position [1, 1]; it must lie in [0, 3)."):
        lib.pick(W, index)
    with raises("E4009: pick: argument 'index' holds index 3 at position 0; it must lie in [0, 3)."):
        lib.pick(W, np.array(3))
    np.testing.assert_array_equal(lib.pick(W, abs(index)), W[abs(index)])


def test_out_of_memory(lib):
    with raises("E6001: fail: 123456 bytes of memory could not be allocated."):
        lib.fail(W, 0)


@pytest.mark.internal_error
@pytest.mark.parametrize("how, words", [(1, "ValueError: a launcher's own words"), (2, "OpsgenIndex: no such form")])
def test_any_other_failure_is_a_bug(lib, how, words):
    with pytest.raises(InternalError, match=f"^fail: the launcher failed with {words}. This is a bug in opsgen"):
        lib.fail(W, how)


# --- plans, threads and processes -------------------------------------------------------------------------------------


def test_plans_are_bounded(lib, monkeypatch):
    monkeypatch.setattr("opsgen.runtime.dispatch._MOST_PLANS", 8)
    for rows in range(30):
        np.testing.assert_array_equal(lib.same(np.ones((rows, 2), np.float32)), np.ones((rows, 2)))
        assert 0 < len(lib._ops["same"]._plans) <= 8


def test_a_plan_is_made_once(lib, monkeypatch):
    dispatch = lib._ops["same"]
    planned = []
    plain = type(dispatch)._plan
    monkeypatch.setattr(type(dispatch), "_plan", lambda self, *a: planned.append(1) or plain(self, *a))
    for _ in range(3):
        lib.same(X)
        lib.same(X.copy())
        lib.same(X.view(np.memmap))
    assert len(planned) == 2


def test_eight_threads(lib):
    wrong = []

    def work(seed):
        draw = np.random.default_rng(seed)
        for _ in range(300):
            rows, hidden = draw.integers(0, 9, 2)
            x = draw.integers(0, 99, (rows, hidden)).astype(np.float32)
            weight = draw.integers(0, 99, hidden).astype(np.float32)
            if not np.array_equal(lib.scale_add(x, weight, scale=seed), x * seed + weight):
                wrong.append((seed, rows, hidden))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert lib.stats["scale_add"].calls == 8 * 300


def test_the_gil_is_released(lib):
    """Two calls that sleep 0.2 s each, one beside the other."""
    best = 9.0
    for _ in range(5):
        threads = [threading.Thread(target=lib.fail, args=(W, 3)) for _ in range(2)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, time.perf_counter() - start)
        if best < 0.35:
            break
    assert best < 0.35


def test_call_in_a_forked_child(library_path):
    script = f"""
import os, numpy as np
from opsgen.runtime import load
lib = load({str(library_path)!r})
x = np.ones((2, 3), np.float32)
lib.same(x)
child = os.fork()
if child == 0:
    os._exit(0 if (lib.same(x) == x).all() and (load({str(library_path)!r}).same(x) == x).all() else 1)
print(os.waitpid(child, 0)[1])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=os.environ)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")


def test_interpreter_exit_is_clean(library_path):
    """With the library, its functions and its arrays alive in globals and in a running thread's reach."""
    script = f"""
import atexit, numpy as np
from opsgen.runtime import load
lib = load({str(library_path)!r}); other = load({str(library_path)!r})
f = lib.same; y = f(np.ones((2, 3), np.float32))
atexit.register(lambda: print(other.same(y).sum()))
class Late:
    def __del__(self): f(y)
late = Late()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "6.0\n", "")


# --- memory and rank --------------------------------------------------------------------------------------------------


def test_results_that_no_memory_is_found_for(lib, torch):
    row, weight = np.ones(8, np.float32), np.ones(8, np.float32)
    wanted = f"E6001: scale_add: {2**40 * 8 * 4} bytes of memory could not be allocated."
    many, other = np.broadcast_to(row, (2**40, 8)), torch.ones(8).expand(2**40, 8)
    for _ in range(2):
        with raises(wanted):
            lib.scale_add(many, weight)
        with raises(wanted):
            lib.scale_add(other, torch.ones(8))
    calls = lib.stats["scale_add"].calls
    np.testing.assert_array_equal(lib.scale_add(row, weight), 2)
    assert lib.stats["scale_add"].calls == calls + 1 == 1
    for one in (np.broadcast_to(np.float32(1), (2, 2**41)), torch.ones(1).expand(2, 2**41)):  # copied, for its strides
        with raises(f"E6001: bounds: {2**42 * 4} bytes of memory could not be allocated."):
            lib.bounds(one)


def test_more_dims_than_launchers_take(lib, torch):
    weight = np.ones(3, np.float32)
    assert lib.scale_add(np.ones((1,) * 63 + (3,), np.float32), weight).shape == (1,) * 63 + (3,)
    with raises("E4004: scale_add: argument 'x' has 65 dims (shape ...); wanted at most 64."):
        lib.scale_add(torch.ones((1,) * 64 + (3,)), torch.ones(3))


def test_a_result_with_a_negative_extent(tmp_path):
    shrunk = handmade.Kernel(
        "ones", "ones", handmade.ARCH, (handmade.tensor("x", "heads size"),),
        (handmade.TensorSpec("out", "float32", ("size - 5",)),),
    )  # fmt: skip
    made = load(handmade.write(tmp_path / "a.so", shrunk))
    with raises(
        "E4010: ones: the dims are heads=1, size=3; wanted sizes for which result 'out' has a shape, not (-2,)."
    ):
        made.ones(np.ones((1, 3), np.float32))
