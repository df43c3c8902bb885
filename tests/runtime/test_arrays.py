"""Arrays of numpy, torch and other DLPack producers, in and out of a call, with every layout and dtype."""

import ml_dtypes
import numpy as np
import pytest

from opsgen.errors import CallError
from opsgen.runtime import layout, numpy_arrays
from opsgen.runtime.arrays import describe
from opsgen.runtime.ffi import from_dlpack
from tests.runtime import handmade


class Foreign:
    """A DLPack producer that is neither numpy nor torch. ``old``: it knows no versions of DLPack."""

    def __init__(self, array, old=False, namespace=None):
        self.array = array
        self.old = old
        if namespace is not None:
            self.__array_namespace__ = lambda: namespace

    def __dlpack__(self, **asked):
        if self.old and asked:
            raise TypeError("no such argument")
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Namespace:
    """What `__array_namespace__` of a producer gives."""

    @staticmethod
    def from_dlpack(exported):
        return Foreign(exported)


def values(shape, dtype="float32"):
    """Different small integers, so that a wrong layout shows."""
    return (np.arange(np.prod(shape, dtype=int)) % 127).reshape(shape).astype(dtype)


# --- layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, strides, leading, direct",
    [
        ((4, 8), (8, 1), 1, True),
        ((4, 8), (16, 1), 1, True),
        ((4, 8), (-8, 1), 1, True),
        ((4, 8), (0, 1), 1, True),
        ((4, 8), (1, 4), 1, False),
        ((4, 8), (16, 2), 1, False),
        ((4, 8), (8, -1), 1, False),
        ((4, 8), (8, 0), 1, False),
        ((4, 1), (8, 77), 1, True),
        ((1, 8), (77, 1), 1, True),
        ((2, 3, 8), (24, 8, 1), 2, True),
        ((2, 3, 8), (48, 16, 1), 2, True),
        ((2, 3, 8), (24, 16, 1), 2, False),
        ((2, 3, 8), (0, 8, 1), 2, False),
        ((2, 1, 3, 8), (24, 99, 8, 1), 3, True),
        ((1, 3, 8), (99, 8, 1), 2, True),
        ((2, 3, 8), (3, 8, 1), None, True),
        ((0, 8), (5, 3), 1, True),
        ((8,), (1,), 0, True),
        ((8,), (2,), 0, False),
        ((8,), (2,), None, False),
        ((), (), 0, True),
        ((), (), None, True),
        ((6,), (1,), 1, True),
        ((6,), (2,), 1, False),
        ((2, 3), (3, 1), 2, True),
        ((2, 3), (6, 1), 2, False),
        ((3, 1), (7, 1), 2, False),
    ],
)
def test_which_layouts_are_direct(shape, strides, leading, direct):
    assert layout.is_direct(shape, strides, leading) is direct


@pytest.mark.parametrize(
    "shape, strides, shares",
    [
        ((3, 4), (4, 1), False),
        ((3, 4), (1, 3), False),
        ((3, 4), (-4, 1), False),
        ((3, 4), (0, 1), True),
        ((3, 4), (3, 1), True),
        ((1, 4), (0, 1), False),
        ((0, 4), (0, 0), False),
        ((), (), False),
    ],
)
def test_which_layouts_share_elements(shape, strides, shares):
    assert layout.shares_elements(shape, strides) is shares


def layouts():
    """Views of shape (2, 3, 5), each with how many copies a call with it takes."""
    base = values((8, 12, 20))
    wide = np.lib.stride_tricks.as_strided(values((400,)), (2, 3, 5), (200, 60, 4))
    one_off = np.zeros(4 * 30 + 1, np.uint8)[1:].view(np.float32).reshape(2, 3, 5)
    one_off[...] = values((2, 3, 5))
    packed = np.zeros(30, np.dtype([("pad", "i1"), ("value", "f4")]))["value"].reshape(2, 3, 5)
    packed[...] = values((2, 3, 5))
    yield "contiguous", values((2, 3, 5)), 0
    yield "an element further", values((31,))[1:].reshape(2, 3, 5), 0
    yield "rows apart", base[:2, :3, :5][:, :, :], 1
    yield "evenly apart", values((6, 20))[:, :5].reshape(2, 3, 5, copy=False), 0
    yield "transposed", values((5, 3, 2)).T, 1
    yield "columns apart", base[0:2, 0:3, 0:10:2], 1
    yield "reversed innermost", values((2, 3, 5))[:, :, ::-1], 1
    yield "reversed rows", values((2, 3, 5))[::-1, ::-1], 0
    yield "reversed rows of one dim", values((2, 3, 5))[:, ::-1], 1
    yield "expanded rows", np.broadcast_to(values((5,)), (2, 3, 5)), 0
    yield "expanded outer", np.broadcast_to(values((3, 5)), (2, 3, 5)), 1
    yield "expanded innermost", np.broadcast_to(values((2, 3, 1)), (2, 3, 5)), 1
    yield "overlapping windows", wide, 1
    yield "misaligned", one_off, 1
    yield "a field of a packed record", packed, 1
    yield "Fortran", np.asfortranarray(values((2, 3, 5))), 1
    read_only = values((2, 3, 5))
    read_only.flags.writeable = False
    yield "read-only", read_only, 0
    yield "of bytes", np.frombuffer(values((30,)).tobytes(), np.float32).reshape(2, 3, 5), 0
    yield "memory of a subclass", values((2, 3, 5)).view(type("Sub", (np.ndarray,), {})), 0


LAYOUTS = list(layouts())


@pytest.mark.parametrize("name, x, copies", LAYOUTS, ids=[name for name, _, _ in LAYOUTS])
def test_any_layout_gives_the_same_answer(lib, name, x, copies):
    weight = values((10,))[::-2]  # of 5 elements, and never direct
    wanted = np.asarray(x, np.float64) * 3 + weight
    for turn in (1, 2):  # planned, and from the plan
        found = lib.scale_add(x, weight, scale=3)
        assert type(found) is np.ndarray and found.dtype == np.float32 and found.flags.c_contiguous
        np.testing.assert_array_equal(found, wanted)
        stats = lib.stats["scale_add"]
        assert (stats.calls, stats.copies_in, stats.copies_out) == (turn, turn * (copies + 1), 0)


TORCH_LAYOUTS = [  # torch has neither negative strides nor parts of elements, and warns of read-only memory
    entry
    for entry in LAYOUTS
    if entry[1].flags.writeable and not any(stride % 4 or stride < 0 for stride in entry[1].strides)
]


@pytest.mark.parametrize("name, x, copies", TORCH_LAYOUTS, ids=[name for name, _, _ in TORCH_LAYOUTS])
def test_any_layout_of_torch_gives_the_same_answer(lib, torch, name, x, copies):
    tensor, weight = torch.from_numpy(np.asarray(x)), torch.arange(10.0)[::2]
    wanted = tensor.double() * 3 + weight
    for turn in (1, 2):
        found = lib.scale_add(tensor, weight, scale=3)
        assert type(found) is torch.Tensor and found.dtype == torch.float32 and found.is_contiguous()
        assert torch.equal(found.double(), wanted)
        stats = lib.stats["scale_add"]
        assert (stats.calls, stats.copies_in, stats.copies_out) == (turn, turn * (copies + 1), 0)


def test_arrays_of_one_layout_that_differ_otherwise(lib):
    """Each is told from the one before, though shapes, strides and dtypes are the same."""
    plain, weight = values((2, 3)), values((3,))
    read_only = plain.copy()
    read_only.flags.writeable = False
    odd = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    odd[...] = plain
    for turn in (1, 2):
        for x in (plain, read_only, odd):
            np.testing.assert_array_equal(lib.scale_add(x, weight), plain + weight)
        assert lib.stats["scale_add"].copies_in == turn
    lib.scale_add(plain, weight, out=np.empty_like(plain))
    with pytest.raises(CallError, match="E4017: scale_add: argument 'out' is a read-only array"):
        lib.scale_add(plain, weight, out=read_only)


OUTS = {
    "contiguous": (lambda a: a, 0),
    "rows apart": (lambda a: np.zeros((2, 3, 9), np.float32)[:, :, 2:7], 0),
    "reversed": (lambda a: a[::-1, ::-1], 0),
    "reversed innermost": (lambda a: a[:, :, ::-1], 1),
    "transposed": (lambda a: np.zeros((5, 3, 2), np.float32).T, 1),
    "columns apart": (lambda a: np.zeros((2, 3, 10), np.float32)[:, :, ::2], 1),
    "misaligned": (lambda a: np.zeros(121, np.uint8)[1:].view(np.float32).reshape(2, 3, 5), 1),
}


@pytest.mark.parametrize("name", OUTS)
def test_any_layout_of_out(lib, name):
    make, copies = OUTS[name]
    x, weight = values((2, 3, 5)), values((5,))
    for turn in (1, 2):
        out = make(np.zeros((2, 3, 5), np.float32))
        outside = None if out.base is None else np.asarray(out.base).copy()
        assert lib.scale_add(x, weight, scale=2, out=out) is out
        np.testing.assert_array_equal(out, x * 2 + weight)
        assert outside is None or np.asarray(out.base).nbytes == outside.nbytes
        assert lib.stats["scale_add"].copies_out == turn * copies
        assert lib.stats["scale_add"].copies_in == 0


def test_out_between_other_elements_leaves_them_alone(lib):
    memory = np.full((2, 3, 10), -1, np.float32)
    lib.scale_add(values((2, 3, 5)), values((5,)), out=memory[:, :, ::2])
    assert (memory[:, :, 1::2] == -1).all() and (memory[:, :, ::2] >= 0).all()


def test_mutable_argument_of_any_layout(lib):
    memory = np.zeros((5, 4), np.float32)
    x = values((4, 5))
    total = lib.accumulate(memory.T, x)
    np.testing.assert_array_equal(memory.T, x)
    np.testing.assert_array_equal(total, x.sum(1))
    lib.accumulate(memory.T, x, subtract=True)
    np.testing.assert_array_equal(memory, 0)
    assert (lib.stats["accumulate"].copies_in, lib.stats["accumulate"].copies_out) == (2, 2)


# --- dtypes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", handmade.SAME_DTYPES)
@pytest.mark.parametrize("kind", ["plain", "read-only", "transposed", "given out", "strided out"])
def test_numpy_dtypes(lib, dtype, kind):
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = values((3, 4), numpy_dtype)
    if kind == "transposed":
        x = values((4, 3), numpy_dtype).T
    x.flags.writeable = kind != "read-only"
    out = {"given out": np.zeros((3, 4), numpy_dtype), "strided out": np.zeros((4, 3), numpy_dtype).T}.get(kind)
    for _ in range(2):
        found = lib.same(x, out=out)
        assert found.dtype == numpy_dtype and (out is None or found is out)
        np.testing.assert_array_equal(found.astype(np.float64), x.astype(np.float64))


@pytest.mark.parametrize("dtype", handmade.SAME_DTYPES)
def test_torch_dtypes(lib, torch, dtype):
    x = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    out = torch.zeros_like(x)
    for given in (None, out):
        found = lib.same(x, out=given)
        assert found.dtype == x.dtype and torch.equal(found.double(), x.double())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_old_numpy_reads_read_only_arrays_too(dtype, monkeypatch, lib):
    monkeypatch.setattr(numpy_arrays, "_SIGNALS_READONLY", False)
    x = values((3, 4), getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    x.flags.writeable = False
    np.testing.assert_array_equal(lib.same(x), x)


def test_half_results_without_ml_dtypes(lib, monkeypatch):
    x = values((2, 3), ml_dtypes.bfloat16)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(CallError, match=r"E4017: same: argument 'out' is missing; wanted one.*pip install ml_dtypes"):
        lib.same(x)


@pytest.mark.parametrize("dtype", [">f4", "O", "U3", "complex64", "float128", [("a", "f4")], "M8[s]", "float8_e3m4"])
def test_dtypes_that_no_kernel_has(lib, dtype):
    x = np.zeros((2, 3), getattr(ml_dtypes, dtype) if dtype == "float8_e3m4" else dtype)
    shown = str(x.dtype).replace("[", r"\[").replace("]", r"\]").replace("(", r"\(").replace(")", r"\)")
    wanted = rf"E4003: scale_add: argument 'x' has dtype {shown}; this library takes float32 or float64\."
    with pytest.raises(CallError, match=wanted + r" Convert it: x.astype\(np.float32\)\."):
        lib.scale_add(x, np.zeros(3, np.float32))


# --- frameworks -------------------------------------------------------------------------------------------------------


def test_dlpack_in_numpy_out(lib):
    x, weight = values((2, 3)), values((3,))
    for _ in range(2):
        found = lib.scale_add(Foreign(x), Foreign(weight), scale=2)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, x * 2 + weight)
    assert lib.stats["scale_add"].calls == 2 and lib.stats["scale_add"].copies_in == 0


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_result_by_the_namespace_of_the_argument(lib, old):
    x = values((2, 3))
    found = lib.same(Foreign(x, old, Namespace))
    assert type(found) is Foreign
    np.testing.assert_array_equal(np.from_dlpack(found), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dlpack_of_what_numpy_has_not(lib, dtype):
    x = values((2, 3), getattr(ml_dtypes, dtype))
    tensor = numpy_arrays.export(x, dtype)
    np.testing.assert_array_equal(lib.same(tensor), x)
    found = lib.same(Foreign(tensor, namespace=Namespace)).array
    assert str(found.dtype) == dtype and found.shape == (2, 3)


def test_dlpack_out_and_layouts(lib):
    x, weight, out = values((5, 4)).T, values((5,)), np.zeros((5, 4), np.float32).T
    given = Foreign(out)
    assert lib.scale_add(Foreign(x), Foreign(weight), out=given) is given
    np.testing.assert_array_equal(out, x + weight)
    assert (lib.stats["scale_add"].copies_in, lib.stats["scale_add"].copies_out) == (1, 1)


def test_dlpack_read_only(lib):
    x = values((2, 3))
    x.flags.writeable = False
    np.testing.assert_array_equal(lib.same(Foreign(x)), x)
    with pytest.raises(CallError, match="E4017: same: argument 'out' is a read-only array"):
        lib.same(Foreign(values((2, 3))), out=Foreign(x))


def test_dlpack_that_fails(lib):
    with pytest.raises(CallError, match=r"E4017: same: argument 'x' is an array that cannot be exported by DLPack \("):
        lib.same(Foreign(np.zeros(3, object)))


def test_dlpack_of_another_device(lib):
    class Elsewhere(Foreign):
        def __dlpack_device__(self):
            return (2, 1)

    with pytest.raises(CallError, match=r"E4006: same: argument 'x' is on cuda:1; this library runs on x86 \(cpu\)"):
        lib.same(Elsewhere(values((2, 3))))


def test_frameworks_may_not_be_mixed(lib, torch):
    x, weight = values((2, 3)), values((3,))
    wanted = r"E4020: scale_add: arguments come from numpy \('x'\) and torch \('weight'\)"
    with pytest.raises(CallError, match=wanted):
        lib.scale_add(x, torch.from_numpy(weight))
    with pytest.raises(CallError, match=r"E4020: .* torch \('x'\) and numpy \('out'\)"):
        lib.scale_add(torch.from_numpy(x), torch.from_numpy(weight), out=np.zeros_like(x))
    with pytest.raises(CallError, match=r"E4020: .* numpy \('x'\) and .*\('weight'\)"):
        lib.scale_add(x, Foreign(weight))


def test_masked_array_is_refused(lib):
    with pytest.raises(CallError, match=r"E4017: same: argument 'x' is a masked array; wanted .*x\.filled\(0\)"):
        lib.same(np.ma.masked_array(values((2, 3)), values((2, 3)) > 1))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1, 1), (2, 0, 3)])
def test_small_and_empty_shapes(lib, shape):
    index = np.zeros(shape, np.int64)
    found = lib.pick(np.array([7.0], np.float32), index)
    assert found.shape == shape and (found == 7).all()
    low, high = lib.bounds(np.ones((*shape, 0), np.float32))
    assert low.shape == shape and not low.any() and not high.any()
    assert lib.same(np.ones((*shape, 2), np.float32)).shape == (*shape, 2)


@pytest.mark.parametrize("shape", [(65536, 1), (1, 65537), (2, 127, 3)])
def test_long_and_thin(lib, shape):
    x, weight = values(shape), values(shape[-1:])
    np.testing.assert_array_equal(lib.scale_add(x, weight), x + weight)


def test_more_than_2_31_elements(lib):
    whole = np.empty((2, (1 << 31) + 8), np.int8)  # only the pages that are touched cost memory
    x = whole[:, :8]
    x[...] = values((2, 8), "int8")
    np.testing.assert_array_equal(lib.same(x), values((2, 8), "int8"))
    assert lib.stats["same"].copies_in == 0
    info = describe("op", "x", np.broadcast_to(np.float32(1), (1 << 32, 3)))[1]
    assert info.shape == (1 << 32, 3) and info.strides == (0, 0)
    assert not layout.is_direct(info.shape, info.strides, 1)


def test_expanded_torch_tensors(lib, torch):
    row, weight = torch.arange(5.0), torch.arange(5.0).expand(5)
    for shape, copies in (((2, 3, 5), 0), ((5,), 0)):
        x = row.expand(shape)
        assert torch.equal(lib.scale_add(x, weight), x + weight)
        assert lib.stats["scale_add"].copies_in == copies
    column = torch.arange(3.0)[:, None].expand(3, 5)
    assert torch.equal(lib.scale_add(column, weight), column + weight)
    assert lib.stats["scale_add"].copies_in == 1


# --- torch's own ways -------------------------------------------------------------------------------------------------


def test_tensors_that_require_grad_are_read_as_values(lib, torch):
    weight = torch.nn.Parameter(torch.arange(3.0))
    x = torch.ones(2, 3, requires_grad=True) * 2
    found = lib.scale_add(x, weight)
    assert not found.requires_grad and torch.equal(found, (x + weight).detach())
    np.testing.assert_array_equal(lib.scale_add(x.T.contiguous().T, weight).numpy(), found.numpy())


def test_torch_tensors_that_cannot_be_used(lib, torch):
    weight = torch.zeros(3)

    def refused(x, words):
        with pytest.raises(CallError, match=f"E4017: scale_add: argument 'x' is {words}"):
            lib.scale_add(x, weight)

    refused(torch.zeros(2, 3, device="meta"), "a meta tensor")
    refused(
        torch.ones(2, 3).to_sparse(), r"a tensor of layout torch.sparse_coo; wanted a dense one, such as x.to_dense"
    )
    refused(torch.zeros(2, 3, dtype=torch.complex64).conj(), r"a conjugate view; wanted .*x.resolve_conj")
    refused(torch.zeros(2, 3, dtype=torch.complex64).conj().imag, r"a negated view; wanted .*x.resolve_neg")
    lib.scale_add(torch.zeros(2, 3), weight)  # and not because of a plan that is missing
    refused(torch.zeros(2, 3, dtype=torch.complex64).conj().imag.contiguous()._neg_view(), "a negated view")
    refused(torch.ones(2, 3).to_sparse(), "a tensor of layout")
    with pytest.raises(CallError, match=r"E4003: .* 'x' has dtype complex64; .*x.to\(torch.float32\)"):
        lib.scale_add(torch.zeros(2, 3, dtype=torch.complex64), weight)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        refused(mode.from_tensor(torch.zeros(2, 3)), "a tensor without memory")


def test_out_that_requires_grad(lib, torch):
    x, weight = torch.zeros(2, 3), torch.zeros(3)
    lib.scale_add(x, weight, out=torch.zeros(2, 3))
    out = torch.zeros(2, 3, requires_grad=True)
    with pytest.raises(CallError, match=r"E4017: scale_add: argument 'out' is a tensor that requires grad.*out.detach"):
        lib.scale_add(x, weight, out=out)
    lib.scale_add(x, weight, out=out.detach())


def test_misaligned_torch_tensor_is_told_from_an_aligned_one(lib, torch):
    memory = torch.zeros(25, dtype=torch.uint8)
    odd = torch.frombuffer(bytearray(25), dtype=torch.float32, count=6, offset=1).reshape(2, 3)
    even = torch.frombuffer(memory.numpy(), dtype=torch.float32, count=6).reshape(2, 3)
    weight = torch.ones(3)
    for x, copies in ((even, 0), (odd, 1), (even, 1), (odd, 2)):
        assert torch.equal(lib.scale_add(x, weight), x + weight)
        assert lib.stats["scale_add"].copies_in == copies


@pytest.mark.parametrize("value", [[1.0, 2.0], (1.0,), 3, 2.5, np.float32(1), None, "text", object()])
def test_what_is_no_array(lib, value):
    with pytest.raises(CallError, match=r"E4017: same: argument 'x' is .*; wanted an array \(numpy, torch or DLPack\)"):
        lib.same(value)


def test_exported_dtype_is_what_was_asked_for():
    x = values((3,), ml_dtypes.bfloat16)
    tensor = numpy_arrays.export(x, "bfloat16")
    assert str(tensor.dtype) == "bfloat16" and tensor.data_ptr() == x.ctypes.data
    assert str(from_dlpack(x.view(np.uint16)).dtype) == "uint16"
