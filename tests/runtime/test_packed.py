"""Packed weights: packing, calls that take them, files, and every error; by hand-made kernels and by real ones."""

import copy
import itertools
import os
import pickle
import re
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

import opsgen as og
from opsgen.errors import CallError, CompileError
from opsgen.runtime import Packed, dispatch, host, library_file, load
from tests.runtime import handmade

X = np.arange(6, dtype=np.float32).reshape(2, 3)
F = np.array([10, 20, 30], np.float32)
T = np.array([1, 2, 3], np.float32)
MIXED = X * F + T
REVERSED = "baseline.reversed.float32"


def raises(text, kind=CallError):
    """A context that wants an error whose message starts with this text, word for word."""
    return pytest.raises(kind, match="^" + re.escape(text))


@pytest.fixture
def factor(lib):
    return lib.pack("mix.factor", F)


@pytest.fixture
def term(lib):
    return lib.pack("mix.term", T)


# --- packing ----------------------------------------------------------------------------------------------------------


def test_what_a_packed_weight_says(factor):
    assert type(factor) is Packed is og.Packed
    assert (factor.op, factor.parameter, factor.layout) == ("mix", "factor", REVERSED)
    assert (factor.shape, factor.dtype, factor.nbytes) == ((3,), "float32", 140)
    assert repr(factor) == f"<opsgen.Packed mix.factor float32[3] as {REVERSED}, 140 bytes>"
    assert factor.buffer.ctypes.data % 64 == 0
    assert factor.buffer[128:].view(np.float32).tolist() == [30, 20, 10]


def test_a_packed_weight_does_not_change(factor):
    with pytest.raises(AttributeError):
        factor.shape = (4,)
    with pytest.raises(ValueError, match="read-only"):
        factor.buffer[0] = 0
    assert copy.copy(factor) is copy.deepcopy(factor) is factor


def test_packing_keeps_nothing_of_the_array(lib):
    weight = F.copy()
    packed = lib.pack("mix.factor", weight)
    weight[:] = 0
    np.testing.assert_array_equal(lib.mix(X, packed), X * F)


@pytest.mark.parametrize("step", [2, -1, 0])
def test_packing_a_strided_array(lib, step):
    weight = np.lib.stride_tricks.as_strided(F, (2,), (4 * step,)) if step >= 0 else F[1::-1]
    packed = lib.pack("mix.factor", weight)
    assert packed.buffer[128:].view(np.float32).tolist() == weight[::-1].tolist()


def test_packing_a_misaligned_and_a_read_only_array(lib):
    odd = np.zeros(13, np.uint8)[1:].view(np.float32)
    odd[:] = F
    odd.flags.writeable = False
    np.testing.assert_array_equal(lib.mix(X, lib.pack("mix.factor", odd)), X * F)


def test_packing_other_frameworks(lib, torch):
    class Foreign:
        def __dlpack__(self, **options):
            return F.__dlpack__(**options)

        def __dlpack_device__(self):
            return F.__dlpack_device__()

    tensor = torch.nn.Parameter(torch.from_numpy(F))
    wanted = lib.pack("mix.factor", F).tobytes()
    for weight in (tensor, torch.from_numpy(np.repeat(F, 2))[::2], Foreign()):
        assert lib.pack("mix.factor", weight).tobytes() == wanted


def test_packing_nothing(lib):
    packed = lib.pack("mix.factor", np.empty(0, np.float32))
    assert packed.nbytes == 128
    assert lib.mix(np.empty((2, 0), np.float32), packed).shape == (2, 0)


MIX = "mix(x, factor, term=None, *, negate=False, out=None)"
PACKS = 'lib.pack("mix.factor", ...) or lib.pack("mix.term", ...)'


@pytest.mark.parametrize(
    "what, weight, text",
    [
        ("mux.factor", F, "E4001: this library has no op 'mux'; it has scale_add, "),
        ("mix.fictor", F, f"E4002: mix: 'fictor' is no parameter of it. The call is {PACKS}."),
        ("mix", F, f"E4002: mix: '' is no parameter of it. The call is {PACKS}."),
        ("mix.negate", F, f"E4002: mix: 'negate' is no parameter of it. The call is {PACKS}."),
        ("mix.x", F, f"E4002: mix: no kernel takes 'x' packed. The call is {PACKS}."),
        (
            "same.x",
            F,
            "E4002: same: no kernel takes 'x' packed. The call is same(x, *, out=None), with nothing packed.",
        ),
        ("mix.factor", [1.0], "E4017: mix: argument 'factor' is a list; wanted an array"),
        ("mix.factor", None, "E4017: mix: argument 'factor' is None; wanted an array"),
        (
            "mix.factor",
            F.astype("f8"),
            "E4003: mix: argument 'factor' has dtype float64; this library takes float32. Convert it: "
            "factor.astype(np.float32), or compile",
        ),
        ("mix.factor", X, "E4004: mix: argument 'factor' has 2 dims (shape (2, 3)); wanted 1, [hidden]."),
    ],
)
def test_what_cannot_be_packed(lib, what, weight, text):
    with raises(text):
        lib.pack(what, weight)


def test_packing_twice(lib, factor):
    with raises("E4017: mix: argument 'factor' is packed already; wanted the array that it was made of."):
        lib.pack("mix.factor", factor)


def test_bound_dims(tmp_path):
    x, out = handmade.tensor("x", "rows 3"), handmade.tensor("out", "rows 3")
    spec = replace(handmade.packed("factor", "hidden"), dims=(3,))
    kernel = handmade.Kernel("mix_alone_packed", "mix", handmade.ARCH, (x, spec), (out,), (), {"negate": False})
    lib = load(handmade.write(tmp_path / "bound.so", replace(kernel, absent=("term",))))
    np.testing.assert_array_equal(lib.mix(X, lib.pack("mix.factor", F)), X * F)
    with raises("E4005: mix: argument 'factor' has hidden=2 (shape (2,)); wanted 3, compiled with hidden=3."):
        lib.pack("mix.factor", F[:2])


def test_another_device(lib, torch, monkeypatch):
    from opsgen.runtime import torch_arrays

    with raises("E4017: mix: argument 'factor' is a meta tensor"):
        lib.pack("mix.factor", torch.empty(3, device="meta"))
    plain = torch_arrays.ADAPTER.describe
    monkeypatch.setattr(torch_arrays.TorchAdapter, "describe", lambda self, x: plain(x)._replace(device="cuda:0"))
    with raises("E4006: mix: argument 'factor' is on cuda:0; this library runs on x86 (cpu). Move it there."):
        lib.pack("mix.factor", torch.empty(3))


def test_two_files_of_different_archs(tmp_path, monkeypatch):
    """The better arch's layout is what is packed; the other one's is still taken, by its own kernels."""
    monkeypatch.setattr(host, "_cpu_flags", lambda: frozenset().union(*host._NEEDS.values()))
    form = handmade.packed("", "hidden", "avx2.reversed.float32").packed
    better = [
        replace(kernel, arch="avx2", inputs=tuple(replace(i, packed=i.packed and form) for i in kernel.inputs))
        for kernel in handmade.mixes()
    ]
    paths = [tmp_path / "baseline.so", tmp_path / "avx2.so"]
    handmade.write(paths[0], *handmade.mixes())
    handmade.write(paths[1], *better, archs=("avx2",))
    for files in (paths, paths[::-1]):
        lib = load(*files)
        best = lib.pack("mix.factor", F)
        assert best.layout == "avx2.reversed.float32"
        for packed in (best, lib.pack("mix.factor", F, layout=REVERSED), load(paths[0]).pack("mix.factor", F)):
            np.testing.assert_array_equal(lib.mix(X, packed), X * F)


def test_what_the_launcher_leaves_is_zero(tmp_path):
    """Nothing that memory held before gets into a file."""
    spec = handmade.packed("weight", "hidden")
    spec = replace(spec, packed=replace(spec.packed, pack="nothing"))
    kernel = next(k for k in handmade.kernels() if k.symbol == "idle_packed")
    lib = load(handmade.write(tmp_path / "zero.so", replace(kernel, inputs=(kernel.inputs[0], spec))))
    for _ in range(20):
        before = [np.full(size, 255, np.uint8) for size in range(140, 240, 4)]
        del before
        assert not lib.pack("idle.weight", F).buffer[128:].any()


def test_kernels_that_differ_in_layout(tmp_path):
    lib = load(handmade.write(tmp_path / "two.so", *handmade.mixes("baseline.other.float32")))
    both = "layout='baseline.other.float32' or 'baseline.reversed.float32'"
    found = "it can have the layouts baseline.other.float32 and baseline.reversed.float32"
    with raises(f"E4019: mix: packed weight 'factor': {found}; wanted {both}. Pack it with this library."):
        lib.pack("mix.factor", F)
    with raises(f"E4019: mix: packed weight 'factor': layout 'none'; wanted {both}."):
        lib.pack("mix.factor", F, layout="none")
    one, other = (lib.pack("mix.factor", F, layout=layout) for layout in (REVERSED, "baseline.other.float32"))
    np.testing.assert_array_equal(lib.mix(X, one), X * F)
    np.testing.assert_array_equal(lib.mix(X, other, T, negate=True), T - X * F)
    for _ in range(2):
        with raises(
            "E4019: mix: packed weight 'factor': it has layout baseline.other.float32; wanted "
            "baseline.reversed.float32. Pack it with this library."
        ):
            lib.mix(X, other)


def test_a_library_without_the_launcher_that_packs(tmp_path):
    spec = handmade.packed("factor", "hidden")
    kernel = next(k for k in handmade.mixes() if k.symbol == "mix_alone_packed")
    gone = replace(spec, packed=replace(spec.packed, pack="pack_gone"))
    path = handmade.write(tmp_path / "gone.so", replace(kernel, inputs=(kernel.inputs[0], gone)))
    where = "kernels[0].inputs[1].packed.pack: the object does not export __tvm_ffi_pack_gone"
    with raises(f"E4016: {path}: the manifest breaks the schema at {where}"):
        load(path)


# --- calls ------------------------------------------------------------------------------------------------------------


def test_packed_and_plain_go_to_their_own_kernels(lib, factor, term):
    """By the launchers, which read one for the other as garbage or refuse it."""
    for given in ((F, T), (factor, term)):
        for _ in range(2):
            np.testing.assert_array_equal(lib.mix(X, *given), MIXED)
            np.testing.assert_array_equal(lib.mix(X, *given, negate=True), T - X * F)
            np.testing.assert_array_equal(lib.mix(X, given[0]), X * F)
    assert (lib.stats["mix"].calls, lib.stats["mix"].copies_in) == (12, 0)


def test_the_rest_is_packed_for_the_call(lib, factor, term):
    strided = np.repeat(T, 2)[::2]
    for count, given in enumerate(((factor, T), (F, term), (factor, strided), (factor, T)), 1):
        np.testing.assert_array_equal(lib.mix(X, *given), MIXED)
        assert lib.stats["mix"].copies_in == count
    out = np.empty_like(X)
    assert lib.mix(X, factor, T, out=out) is out
    np.testing.assert_array_equal(out, MIXED)
    with raises("E4007: mix: 'out' is written to and overlaps the memory of 'term'."):
        lib.mix(X, factor, out[1], out=out)


def test_memory_and_names(lib, factor, term):
    out = np.empty((2, 3), np.float32)
    assert lib.mix(term=term, factor=factor, x=X, out=out) is out
    np.testing.assert_array_equal(out, MIXED)
    wide = np.empty((2, 6), np.float32)
    lib.mix(X, factor, term, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], MIXED)
    assert lib.stats["mix"].copies_out == 1
    columns = np.asfortranarray(X)
    np.testing.assert_array_equal(lib.mix(columns, factor, term), MIXED)
    assert lib.stats["mix"].copies_in == 1


@pytest.mark.torch
def test_torch_and_others(lib, torch, factor, term):
    x = torch.from_numpy(X)
    for _ in range(2):
        y = lib.mix(x, factor, term)
        assert isinstance(y, torch.Tensor)
        np.testing.assert_array_equal(y.numpy(), MIXED)
        np.testing.assert_array_equal(lib.mix(X, factor, term), MIXED)
        np.testing.assert_array_equal(lib.mix(x, factor, torch.from_numpy(T)).numpy(), MIXED)
    out = torch.empty(2, 3)
    assert lib.mix(x, factor, term, out=out) is out
    with raises("E4020: mix: arguments come from torch ('x') and numpy ('term'); pass arrays of one framework."):
        lib.mix(x, factor, T)


def test_a_dlpack_argument(lib, factor, term):
    class Foreign:
        def __dlpack__(self, **options):
            return X.__dlpack__(**options)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    for _ in range(2):
        np.testing.assert_array_equal(lib.mix(Foreign(), factor, term), MIXED)


def test_overlap(lib, factor, term):
    memory = np.zeros((2, 6), np.float32)
    x, out = memory[:, :3], memory[:, 3:]
    x[:] = X
    np.testing.assert_array_equal(lib.mix(x, factor, term, out=out), MIXED)  # ranges overlap, and no elements
    for target in (x, memory[:, 1:4]):
        for _ in range(2):
            with raises("E4007: mix: 'out' is written to and overlaps the memory of 'x'."):
                lib.mix(x, factor, term, out=target)


def test_out_in_the_memory_of_a_packed_weight(lib):
    """Only who lifts the write protection comes that far."""
    weight = lib.pack("mix.factor", np.ones(96, np.float32))
    memory = weight.buffer.view()
    memory.flags.writeable = True
    before = weight.tobytes()
    with raises("E4007: mix: 'out' is written to and overlaps the memory of 'factor'."):
        lib.mix(np.ones((1, 96), np.float32), weight, out=memory[128:].view(np.float32)[None])
    assert weight.tobytes() == before


def test_dims_of_a_packed_weight_are_checked(lib, factor, term):
    with raises(
        "E4005: mix: argument 'factor' has hidden=3 (shape (3,)); wanted 4, as argument 'x' has (shape (2, 4))."
    ):
        lib.mix(np.ones((2, 4), np.float32), factor)
    with raises("E4005: mix: argument 'term' has hidden=2 (shape (2,)); wanted 3, as argument 'x' has (shape (2, 3))."):
        lib.mix(X, factor, lib.pack("mix.term", T[:2]))


def test_packed_where_an_array_is_wanted(lib, factor):
    for _ in range(2):
        with raises(
            "E4017: mix: argument 'x' is a packed weight; wanted an array (those that can be packed: factor, term)."
        ):
            lib.mix(factor, F)
        with raises("E4017: same: argument 'x' is a packed weight; wanted an array (those that can be packed: none)."):
            lib.same(factor)
        with raises("E4017: mix: argument 'out' is of type Packed; wanted an array (numpy, torch or DLPack)."):
            lib.mix(X, F, out=factor)


def test_a_weight_of_another_dtype(lib, factor):
    other = Packed("mix", "factor", REVERSED, (3,), "float16", factor.buffer.copy())
    with raises(
        "E4003: mix: argument 'factor' has dtype float16; this library takes float32. Pack a weight of float32, or"
    ):
        lib.mix(X, other)


def test_a_call_that_no_kernel_takes_packed(tmp_path, factor, term):
    some = [k for k in handmade.mixes() if k.symbol in ("mix_alone", "mix_packed", "mix_negated")]
    lib = load(handmade.write(tmp_path / "some.so", *some))
    with raises(
        "E4008: mix: no kernel serves this call (factor packed). This library has: kernels for no packed weight."
    ):
        lib.mix(X, factor)
    with raises(
        "E4008: mix: no kernel serves this call (no packed weight). This library has: kernels for factor, term"
    ):
        lib.mix(X, F, T)  # nothing is packed, so nothing is packed for the call


def test_only_packed_tensors(tmp_path):
    """The framework of the result has nothing to go by but ``out``."""
    signature = handmade.Signature((handmade.TensorParam("weight", ("hidden",)),))
    spec, out = handmade.packed("weight", "hidden"), handmade.tensor("out", "hidden")
    kernel = handmade.Kernel("idle_packed", "only", handmade.ARCH, (spec,), (out,))
    lib = load(handmade.write(tmp_path / "only.so", kernel, only=signature))
    packed = lib.pack("only.weight", F)
    for _ in range(2):
        with raises(
            "E4002: only: it has no array to tell the framework and the device by. The call is one with out=...."
        ):
            lib.only(packed)
        memory = np.empty(3, np.float32)
        assert lib.only(packed, out=memory) is memory


def test_calls_are_planned_once(lib, factor, term):
    plans = lib._ops["mix"]._plans
    lib.mix(X, factor, term)
    lib.mix(X, lib.pack("mix.factor", F + 1), Packed.from_bytes(term.tobytes()))
    assert len(plans) == 1
    lib.mix(X, F, T)
    lib.mix(X, factor, T)
    assert len(plans) == 3


def test_a_call_that_was_planned_takes_the_fast_path(library_path, monkeypatch, torch):
    load(library_path).same(torch.ones(2, 3))  # torch's types are known from the first tensor on
    made = []
    plain = dispatch.OpDispatch._make_plan
    monkeypatch.setattr(
        dispatch.OpDispatch, "_make_plan", lambda self, key, *rest: made.append(key) or plain(self, key, *rest)
    )
    lib = load(library_path)
    factor, term, out = lib.pack("mix.factor", F), lib.pack("mix.term", T), np.empty_like(X)
    for _ in range(3):
        lib.mix(X, factor, term, out=out)
        lib.mix(X, F, T, out=out)
    assert len(made) == 2
    for _ in range(3):
        lib.mix(torch.from_numpy(X), factor, term)
        lib.mix(torch.from_numpy(X), factor)
    assert len(made) == 4


def test_the_namespace_of_a_result(tmp_path):
    """It is that of the first array; a packed weight before it has none."""

    class Foreign:
        def __array_namespace__(self):
            return Namespace

        def __dlpack__(self, **options):
            return X.__dlpack__(**options)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    class Namespace:
        @staticmethod
        def from_dlpack(value):
            return "theirs"

    weight, x = handmade.packed("weight", "hidden"), handmade.tensor("x", "rows hidden")
    signature = handmade.Signature((handmade.WEIGHT, handmade.X))
    kernel = handmade.Kernel(
        "idle_packed", "turned", handmade.ARCH, (weight, x), (handmade.tensor("out", "rows hidden"),)
    )
    lib = load(handmade.write(tmp_path / "turned.so", kernel, turned=signature))
    assert lib.turned(lib.pack("turned.weight", F), Foreign()) == "theirs"


@pytest.mark.parametrize("dims", ["rows hidden", "a b c d e f g h i"])
def test_leading_and_very_many_dims_are_never_packed(tmp_path, dims):
    signature = handmade.Signature((handmade.TensorParam("x", tuple(dims.replace("rows", "...").split())),))
    x, out = handmade.packed("x", dims), handmade.tensor("out", dims)
    kernels = [
        handmade.Kernel("idle", "odd", handmade.ARCH, (handmade.tensor("x", dims),), (out,)),
        handmade.Kernel("idle_packed", "odd", handmade.ARCH, (x,), (out,)),
    ]
    lib = load(handmade.write(tmp_path / "odd.so", *kernels, odd=signature))
    ones = np.ones((1,) * len(dims.split()), np.float32)
    assert lib.odd(ones).shape == ones.shape
    with raises("E4002: odd: no kernel takes 'x' packed."):
        lib.pack("odd.x", ones)


@pytest.mark.parametrize(
    "change, found",
    [
        ({"bytes": "128 + size"}, "bytes: '128 + size' uses the unknown dim 'size'"),
        ({"bytes": 128}, "bytes: 128 is not a string"),
        ({"layout": None}, "layout: None is not a string"),
        ({"pack": "a b"}, "pack: 'a b' is not an identifier"),
        ({"more": 1}, "packed: unknown field 'more'"),
    ],
)
def test_schema(change, found):
    data = handmade.manifest().to_json()
    kernel = next(k for k in data["kernels"] if k["symbol"] == "mix_packed")
    assert og.runtime.manifest.Manifest.from_json(data).to_json() == data
    kernel["inputs"][1]["packed"] |= change
    with pytest.raises(CallError, match=r"E4016: manifest: .*inputs\[1\]\.packed") as failure:
        og.runtime.manifest.Manifest.from_json(data)
    assert found in str(failure.value)


def test_schema_of_what_cannot_be_packed():
    for place, text in (("inputs", "packed: the input is mutable"), ("outputs", "unknown field 'packed'")):
        data = handmade.manifest().to_json()
        kernel = next(k for k in data["kernels"] if k["op"] == "accumulate")
        kernel[place][0]["packed"] = {"layout": "a", "bytes": "128", "pack": "p"}
        with pytest.raises(CallError, match=r"E4016: .*" + text):
            og.runtime.manifest.Manifest.from_json(data)


# --- bytes, files, pickles --------------------------------------------------------------------------------------------


def same(one, other):
    fields = ("op", "parameter", "layout", "shape", "dtype", "nbytes")
    return all(getattr(one, f) == getattr(other, f) for f in fields) and one.tobytes() == other.tobytes()


def test_bytes_and_pickle(lib, factor, term):
    data = factor.tobytes()
    for again in (
        Packed.from_bytes(data),
        Packed.from_bytes(bytearray(data)),
        Packed.from_bytes(memoryview(data)),
        pickle.loads(pickle.dumps(factor)),
    ):
        assert same(again, factor)
        assert again.buffer.ctypes.data % 64 == 0
        np.testing.assert_array_equal(lib.mix(X, again, term), MIXED)


def test_the_header_is_as_documented(factor):
    """docs/library-format.md, read by other means than the code's."""
    import hashlib
    import zlib

    data = factor.tobytes()
    information = data[140:]
    assert data[:8] == b"OPSGENPK"
    assert np.frombuffer(data, "<u4", 2, 8).tolist() == [1, 1]
    assert np.frombuffer(data, "<i8", 8, 16).tolist() == [3, 0, 0, 0, 0, 0, 0, 0]
    assert data[80:112] == hashlib.sha256(REVERSED.encode()).digest()
    assert np.frombuffer(data, "<u8", 1, 112).tolist() == [12]
    assert np.frombuffer(data, "<u4", 2, 120).tolist() == [len(information), zlib.crc32(data[:124] + information)]


def test_files(lib, factor, tmp_path):
    path = tmp_path / "factor.packed"
    path.write_bytes(b"what was there")
    factor.save(path)
    assert same(Packed.load(path), factor) and same(Packed.load(str(path)), factor)
    assert os.listdir(tmp_path) == ["factor.packed"]
    with raises(f"E3006: {tmp_path / 'no' / 'folder'}", CompileError):
        factor.save(tmp_path / "no" / "folder")
    with raises(f"E4021: {tmp_path / 'none'} cannot be opened: No such file or directory."):
        Packed.load(tmp_path / "none")
    with raises("E4021: 'a\\x00b' cannot be opened"):
        Packed.load("a\0b")
    path.write_bytes(factor.tobytes()[:-1])
    with raises(f"E4019: Packed.load: packed weight '{path}': it is cut short at"):
        Packed.load(path)


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda data: b"", "it starts with b''; wanted b'OPSGENPK', as a packed weight does."),
        (lambda data: b"PK\3\4" + data, "it starts with b'PK\\x03\\x04OPSG'; wanted"),
        (lambda data: data[:100], "it is cut short at 100 bytes; wanted a header of 128."),
        (lambda data: data[:130], "it is cut short at 130 bytes; wanted 2"),
        (lambda data: data[:-1], "it is cut short at "),
        (lambda data: data + b"\0", "its header does not fit its "),
        (lambda data: data[:8] + b"\2" + data[9:], "version 2; wanted version 1."),
        (lambda data: data[:12] + b"\11" + data[13:], "its header does not fit its "),
        (lambda data: data[:16] + b"\4" + data[17:], "its header has changed since it was written; wanted"),
        (lambda data: data.replace(b'"factor"', b'"fictor"'), "its header has changed since it was written; wanted"),
    ],
)
def test_what_is_no_packed_weight(factor, change, text):
    with raises(f"E4019: Packed.from_bytes: packed weight 'data': {text}"):
        Packed.from_bytes(change(factor.tobytes()))


@pytest.mark.parametrize(
    "shape, information",
    [
        ((3,), {"layout": "another"}),
        ((3,), {"dtype": "float31"}),
        ((3,), {"dtype": 1}),
        ((3,), {"more": "a"}),
        ((3,), {"op": 1}),
        ((3,), []),
        ((-3,), {}),
        ((1 << 40, 1 << 40), {}),
    ],
)
def test_a_header_that_contradicts_itself(shape, information):
    """With a right checksum: written so, not changed by accident."""
    import json

    from opsgen.runtime import packed

    whole = {"op": "mix", "parameter": "factor", "layout": REVERSED, "dtype": "float32"}
    text = json.dumps({**whole, **information} if isinstance(information, dict) else information).encode()
    with raises("E4019: Packed.from_bytes: packed weight 'data': its header contradicts itself; wanted"):
        Packed.from_bytes(packed._header(shape, REVERSED, 0, text) + text)
    assert Packed.from_bytes(
        packed._header((3,), REVERSED, 0, packed._information(**whole)) + packed._information(**whole)
    )


def test_a_buffer_of_another_size(lib):
    """A right header over too few elements: the kernel would read past the end."""
    from opsgen.runtime import packed

    information = packed._information("mix", "factor", REVERSED, "float32")
    for count in (0, 2, 4):
        data = packed._header((3,), REVERSED, 4 * count, information) + bytes(4 * count) + information
        with raises(
            f"E4019: mix: packed weight 'factor': it has {128 + 4 * count} bytes; wanted 140 for shape (3,). Pack it"
        ):
            lib.mix(X, Packed.from_bytes(data))


def test_changed_bits(lib, factor):
    """Any bit of the header, and of what it was packed for, is missed."""
    data = factor.tobytes()
    draw = np.random.default_rng(0)
    places = [*range(128), *range(140, len(data))]
    flips = [(place, bit) for place in places for bit in range(8)]
    for place, bit in [flips[i] for i in draw.choice(len(flips), 400, replace=False)]:
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        with raises("E4019: "):
            Packed.from_bytes(changed)
    for length in draw.integers(0, len(data), 100):
        with raises("E4019: "):
            Packed.from_bytes(data[:length])
    for _ in range(100):
        with raises("E4019: "):
            Packed.from_bytes(data[:8] + draw.bytes(len(data) - 8))


# --- real kernels -----------------------------------------------------------------------------------------------------

LEVELS = [level for level in host.host_levels() if level != "baseline"]
# rows, out_features, in_features
FEW_ROWS = [(1, 1, 1), (3, 5, 7), (4, 32, 64), (2, 33, 257), (0, 3, 4), (3, 0, 4), (3, 4, 0)]
MANY_ROWS = [(97, 1, 1), (97, 5, 7), (128, 32, 64), (101, 33, 257)]


@og.op
def two_layers(
    x: og.Tensor["...", "inside"], up: og.Tensor["middle", "inside"], down: og.Tensor["outside", "middle"]
) -> og.Tensor:
    """relu(x upᵀ) downᵀ"""
    return og.dot(og.max(og.dot(x, up, over="inside"), 0.0), down, over="middle")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """linear, with gelu and without, and two layers, both of whose weights can be packed; for both levels of x86."""
    from opsgen.ops import linear

    lib = og.compile(
        [
            og.variant(linear, absent=["residual"], activation="gelu"),
            og.variant(linear, absent=["bias", "residual"], activation="none"),
            two_layers,
        ],
        target=["x86/avx2", "x86/avx512"],
        dtypes=["float32", "float16"],
    )
    path = tmp_path_factory.mktemp("packed") / "linear.so"
    lib.save(path)
    return path


@pytest.fixture(params=LEVELS)
def real(request, compiled, monkeypatch):
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", request.param)
    return load(compiled)


def draw(*shapes, dtype="float32"):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows, n, k", [*FEW_ROWS, *MANY_ROWS])
def test_packed_and_plain(real, torch, rows, n, k, dtype):
    """Bit for bit where there are many rows, for which the plain kernel packs too; few are summed in another order."""
    x, weight, bias = draw((rows, k), (n, k), (n,), dtype=dtype)
    packed = real.pack("linear.weight", weight)
    found = real.linear(x, packed, bias, activation="gelu")
    for given in (packed, real.pack("linear.weight", torch.from_numpy(weight)), Packed.from_bytes(packed.tobytes())):
        assert real.linear(x, given, bias, activation="gelu").tobytes() == found.tobytes()
        y = real.linear(torch.from_numpy(x), given, torch.from_numpy(bias), activation="gelu")
        assert y.numpy().tobytes() == found.tobytes()
    if (rows, n, k) in MANY_ROWS:
        assert real.linear(x, weight, bias, activation="gelu").tobytes() == found.tobytes()
        assert real.linear(x, weight).tobytes() == real.linear(x, packed).tobytes()
    assert real.stats["linear"].copies_in == 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows, n, k", [*FEW_ROWS, *MANY_ROWS])
def test_packed_is_right(real, rows, n, k, dtype):
    """Against float64: k products of float32 are off by k u at most, of their absolute sum, and rounded once."""
    x, weight = draw((rows, k), (n, k), dtype=dtype)
    wide, wide_weight = x.astype("f8"), weight.astype("f8")
    wanted = wide @ wide_weight.T
    bound = (k + 1) * 2.0**-24 * (np.abs(wide) @ np.abs(wide_weight).T) + np.finfo(dtype).eps * np.abs(wanted)
    found = real.linear(x, real.pack("linear.weight", weight))
    assert (np.abs(found - wanted) <= bound).all()


def test_a_transposed_weight(real):
    x, weight = draw((3, 40), (40, 35))
    packed = real.pack("linear.weight", weight.T)
    rows = np.ascontiguousarray(weight.T)
    assert packed.tobytes() == real.pack("linear.weight", rows).tobytes()
    assert real.linear(x, packed).tobytes() == real.linear(x, real.pack("linear.weight", rows)).tobytes()


def test_some_of_several_weights(real):
    x, up, down = draw((17, 8), (21, 8), (8, 21))
    packed_up, packed_down = real.pack("two_layers.up", up), real.pack("two_layers.down", down)
    found = real.two_layers(x, packed_up, packed_down)
    assert real.two_layers(x, up, packed_down).tobytes() == found.tobytes()
    assert real.two_layers(x, packed_up, down).tobytes() == found.tobytes()
    assert real.stats["two_layers"].copies_in == 2
    np.testing.assert_allclose(found, two_layers.evaluate(x, up, down, dtype="float64"), rtol=0, atol=3e-5)


def test_in_another_process(compiled, tmp_path):
    lib = load(compiled)
    x, weight = draw((3, 40), (35, 40))
    lib.pack("linear.weight", weight).save(tmp_path / "weight.packed")
    np.save(tmp_path / "x.npy", x)
    script = f"""
        import sys
        import numpy as np
        import opsgen.runtime as runtime
        lib = runtime.load({str(compiled)!r})
        y = lib.linear(np.load("x.npy"), runtime.Packed.load("weight.packed"))
        np.save("y.npy", y)
        assert "tvm" not in sys.modules and "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True, timeout=120,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})  # fmt: skip
    assert np.load(tmp_path / "y.npy").tobytes() == lib.linear(x, lib.pack("linear.weight", weight)).tobytes()


def test_a_weight_packed_for_another_arch(compiled, real):
    """By its layout's name, so it can be tested on a machine that has one of the two."""
    x, weight = draw((3, 40), (35, 40))
    mine = real.pack("linear.weight", weight)
    kernels = [k for k in library_file.read_manifest(compiled).kernels if k.op == "linear"]
    layouts = {
        k.arch: k.inputs[1].packed.layout for k in kernels if k.inputs[1].packed and k.inputs[1].dtype == "float32"
    }
    assert sorted(layouts) == ["avx2", "avx512"]
    (other,) = {*layouts.values()} - {mine.layout}
    foreign = Packed("linear", "weight", other, mine.shape, mine.dtype, mine.buffer.copy())
    with raises(f"E4019: linear: packed weight 'weight': it has layout {other}; wanted {mine.layout}. Pack it with"):
        real.linear(x, foreign)
    real.linear(x, mine)


def test_a_weight_that_another_arch_packed(compiled, monkeypatch):
    x, weight = draw((3, 40), (35, 40))
    libraries = []
    for level in LEVELS:
        monkeypatch.setenv("OPSGEN_CPU_LEVEL", level)
        libraries.append(load(compiled))
    for one, other in itertools.permutations(libraries, 2):
        with raises("E4019: linear: packed weight 'weight': it has layout "):
            one.linear(x, other.pack("linear.weight", weight))


def test_changed_bits_of_a_real_weight(compiled):
    """A header that a kernel would trust with its loop bounds."""
    lib = load(compiled)
    x, weight = draw((3, 40), (35, 40))
    data = lib.pack("linear.weight", weight).tobytes()
    random = np.random.default_rng(1)
    for place in random.integers(0, 128, 100):
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        with raises("E4019: "):
            lib.linear(x, Packed.from_bytes(changed))
