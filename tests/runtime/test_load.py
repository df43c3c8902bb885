"""opsgen.runtime.library and host: which files and archs are loaded, and what a Library offers."""

import copy
import os
import pickle
import re

import numpy as np
import pytest

from opsgen.errors import CallError, CompileError, TargetError
from opsgen.runtime import Library, host, load
from opsgen.runtime.manifest import Signature, TensorParam
from opsgen.runtime.packed import Packed
from tests.runtime import handmade
from tests.runtime.handmade import scale_add

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([10, 20, 30], np.float32)


def raises(text, kind=CallError):
    return pytest.raises(kind, match="^" + re.escape(text))


# --- a library --------------------------------------------------------------------------------------------------------


def test_what_a_library_offers(lib, library_path):
    assert lib.ops == tuple(handmade.SIGNATURES)
    assert lib.path == library_path and lib.paths == (library_path,)
    assert lib.manifest == handmade.manifest() and lib.manifests == (lib.manifest,)
    assert set(handmade.SIGNATURES) < set(dir(lib)) and "save" in dir(lib)
    assert repr(lib).startswith("<opsgen.Library handmade.so (x86: baseline); ops: scale_add, bounds,")
    assert lib.scale_add is lib["scale_add"] is lib.scale_add


def test_stats_are_a_snapshot(lib):
    before = lib.stats["same"]
    lib.same(X)
    assert (before.calls, lib.stats["same"].calls, lib.stats["bounds"].calls) == (0, 1, 0)
    before.calls = 99
    assert lib.stats["same"].calls == 1


def test_unknown_op(lib):
    with raises("E4001: this library has no op 'softmax'; it has scale_add, bounds,"):
        _ = lib.softmax
    with raises("E4001: this library has no op 'softmax'", AttributeError):
        lib["softmax"]
    assert not hasattr(lib, "softmax") and getattr(lib, "softmax", 3) == 3
    assert not hasattr(lib, "__array__") and not hasattr(lib, "_private")


def test_op_with_a_name_of_the_class(tmp_path):
    kernel = handmade.Kernel(
        "same_float32", "stats", "baseline", (handmade.tensor("x", "rows n"),), (handmade.tensor("out", "rows n"),)
    )
    path = handmade.write(tmp_path / "a.so", kernel, stats=Signature((TensorParam("x", ("...", "n")),)))
    lib = load(path)
    np.testing.assert_array_equal(lib["stats"](X), X)
    assert lib.stats["stats"].calls == 1


def test_save(lib, tmp_path):
    lib.save(tmp_path / "copy.so")
    assert (tmp_path / "copy.so").read_bytes() == lib.path.read_bytes()
    np.testing.assert_array_equal(load(tmp_path / "copy.so").same(X), X)
    with raises(f"E3006: {tmp_path / 'none' / 'a.so'} cannot be written: No such file", CompileError):
        lib.save(tmp_path / "none" / "a.so")
    assert [entry.name for entry in tmp_path.iterdir()] == ["copy.so"]


def test_save_after_the_file_is_gone(tmp_path):
    lib = load(handmade.write(tmp_path / "a.so"))
    lib.path.unlink()
    np.testing.assert_array_equal(lib.same(X), X)
    with raises(f"E4021: {tmp_path / 'a.so'} cannot be opened: No such file"):
        lib.save(tmp_path / "b.so")


def test_a_file_that_is_replaced_while_loaded(tmp_path):
    path = handmade.write(tmp_path / "a.so", scale_add())
    first = load(path)
    handmade.write(path, scale_add("scale_add_f32_low"))
    second = load(path)
    for _ in range(2):
        np.testing.assert_array_equal(first.scale_add(X, W), X + W)
        np.testing.assert_array_equal(second.scale_add(X, W), 2 * X + W)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda lib: pickle.loads(pickle.dumps(lib))])
def test_copies_and_pickles(lib, make):
    other = make(lib)
    assert isinstance(other, Library) and other.paths == lib.paths
    np.testing.assert_array_equal(other.same(X), X)
    assert lib.stats["same"].calls == 0


def test_two_libraries_are_independent(tmp_path):
    one = load(handmade.write(tmp_path / "a.so", scale_add()))
    other = load(handmade.write(tmp_path / "b.so", scale_add("scale_add_f32_low")))
    np.testing.assert_array_equal(one.scale_add(X, W), X + W)
    np.testing.assert_array_equal(other.scale_add(X, W), 2 * X + W)
    assert one.stats["scale_add"].calls == other.stats["scale_add"].calls == 1


@pytest.mark.parametrize("name", ["library", "lib.opsgen", "with space.so", "ü.so"])
def test_any_file_name(tmp_path, monkeypatch, name):
    handmade.write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    lib = load(name)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(lib.same(X), X)
    assert lib.path == tmp_path / name


# --- several files ----------------------------------------------------------------------------------------------------


def test_several_files(tmp_path):
    one = handmade.write(tmp_path / "a.so", scale_add())
    other = handmade.write(tmp_path / "b.so", scale_add("scale_add_f64", "float64"), handmade.kernels()[2])
    lib = load(one, other)
    assert lib.ops == ("scale_add", "bounds") and len(lib.manifests) == 2
    np.testing.assert_array_equal(lib.scale_add(X, W), X + W)
    np.testing.assert_array_equal(lib.scale_add(X.astype("f8"), W.astype("f8")), X + W)
    for what, act in {
        "path": lambda: lib.path,
        "manifest": lambda: lib.manifest,
        "save": lambda: lib.save("x"),
    }.items():
        with raises(f"E4023: this library was loaded from 2 files; {what} is of one."):
            act()
    assert pickle.loads(pickle.dumps(lib)).paths == (one, other)


def test_the_same_op_and_dtypes_in_two_files(tmp_path):
    one = handmade.write(tmp_path / "a.so", scale_add())
    other = handmade.write(tmp_path / "b.so", scale_add("scale_add_f32_low"))
    with raises(f"E4015: {other}: kernels scale_add_f32 and scale_add_f32_low of op 'scale_add' claim the same calls"):
        load(one, other)


def test_two_files_that_describe_an_op_differently(tmp_path):
    one = handmade.write(tmp_path / "a.so", scale_add())
    params = handmade.SIGNATURES["scale_add"].params
    wider = Signature((*params, handmade.ScalarParam("more", 0.0, keyword=True)))
    kernel = scale_add(
        "scale_add_f64",
        "float64",
        scalars=(handmade.ScalarSpec("scale", "float64"), handmade.ScalarSpec("more", "float64")),
    )
    other = handmade.write(tmp_path / "b.so", kernel, scale_add=wider)
    with raises(f"E4022: {other}: op 'scale_add' takes other arguments than in {one}."):
        load(one, other)


# --- ambiguity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one, other, ambiguous",
    [
        ((), (), True),
        (("rows > 4",), ("rows > 4",), True),
        (("rows > 4", "hidden > 1"), ("hidden > 1", "rows > 4"), True),
        (("rows > 4",), ("rows <= 4",), False),
        (("rows >= 4",), ("rows <= 4",), True),
        (("rows > 4",), (), True),
        (("rows >= 5000",), ("rows <= 5000",), True),
        (("rows > 5000",), ("rows <= 5000",), False),
        (("rows > 5000",), ("rows < 5002",), True),
        (("rows > 4",), ("hidden > 4",), True),
        (("rows > 4", "hidden < 9"), ("rows > 4", "hidden >= 9"), False),
        (("hidden % 16 == 0",), ("hidden % 16 != 0",), False),
        (("hidden % 16 == 0",), ("hidden % 24 == 0",), True),
        (("rows * hidden < 100000",), ("rows * hidden >= 100000",), False),
        (("rows < 10 and hidden < 7000",), ("rows < 11 and hidden >= 6999",), True),
        (("hidden // rows > 1",), ("rows == 0",), False),
    ],
)
def test_regions_that_overlap(tmp_path, one, other, ambiguous):
    path = handmade.write(tmp_path / "a.so", scale_add(region=one), scale_add("scale_add_f32_low", region=other))
    if ambiguous:
        with raises(
            f"E4015: {path}: kernels scale_add_f32 and scale_add_f32_low of op 'scale_add' claim the same calls"
        ):
            load(path)
    else:
        load(path)


def test_bound_dims_count_in_regions(tmp_path):
    load(
        handmade.write(
            tmp_path / "a.so",
            scale_add(hidden="8", region=("rows * hidden > 64",)),
            scale_add("scale_add_f32_low", hidden="8", region=("rows <= 8",)),
        )
    )


def test_an_overlap_that_sampling_missed_is_refused_when_called(tmp_path):
    path = handmade.write(
        tmp_path / "a.so",
        scale_add(region=("rows * hidden == 7007",)),
        scale_add("scale_add_f32_low", region=("rows == 7 * 11",)),
    )
    lib = load(path)
    with raises(f"E4015: {path}: kernels scale_add_f32 and scale_add_f32_low of op 'scale_add' claim the same calls"):
        lib.scale_add(np.zeros((77, 91), np.float32), np.zeros(91, np.float32))


# --- archs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def levels(tmp_path):
    """A file with avx512 (x + w), avx2 (2x + w) and, in float64, baseline."""
    return handmade.write(
        tmp_path / "levels.so",
        scale_add("scale_add_f64", "float64"),
        scale_add("scale_add_f32_low", arch="avx2"),
        scale_add(arch="avx512"),
        archs=("avx512", "baseline", "avx2"),
    )


def test_the_best_arch_is_taken(levels, monkeypatch):
    for level, wanted in (("avx512", X + W), ("avx2", 2 * X + W)):
        monkeypatch.setattr(host, "_cpu_flags", lambda level=level: FLAGS[level])
        np.testing.assert_array_equal(load(levels).scale_add(X, W), wanted)
    monkeypatch.setattr(host, "_cpu_flags", lambda: FLAGS["baseline"])
    with raises("E4003: scale_add: argument 'x' has dtype float32; this library takes float64"):
        load(levels).scale_add(X, W)  # only the chosen arch counts, which is held completely


def test_no_arch_for_this_cpu(tmp_path, monkeypatch):
    path = handmade.write(tmp_path / "a.so", scale_add(arch="avx512"), archs=("avx512",))
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", "avx2")
    monkeypatch.setattr(host, "_cpu_flags", lambda: FLAGS["avx512"])
    with raises(
        f"E4014: {path} holds kernels for x86/avx512; this CPU offers x86/avx2. Compile it with --target x86/avx2."
    ):
        load(path)
    nothing = (
        f"E4014: {path} holds kernels for x86/avx512; this CPU has none of the levels that kernels can be compiled for "
        "(x86/avx2, x86/avx512). "
    )
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", "baseline")
    with raises(nothing + "OPSGEN_CPU_LEVEL may be what takes them away: unset it. Compile it for"):
        load(path)
    monkeypatch.delenv("OPSGEN_CPU_LEVEL")
    monkeypatch.setattr(host, "_cpu_flags", lambda: FLAGS["baseline"])
    with raises(nothing + "Compile it for the machine that it is to run on, and load it there."):
        load(path)


@pytest.mark.parametrize("path", [None, 3, 1.5, ["a.so"]])
def test_what_is_no_path(library_path, path):
    wanted = f"E4021: {path!r} cannot be opened: it is of type {type(path).__name__}, not a path."
    with raises(wanted):
        load(path)
    with raises(wanted):
        load(library_path, path)
    with raises(wanted):
        Packed.load(path)
    assert load(os.fsencode(library_path)).path == library_path


def test_no_kind_for_this_machine(tmp_path, monkeypatch):
    path = handmade.write(tmp_path / "a.so", scale_add(arch="gfx90a"), kind="rocm", archs=("gfx90a",))
    monkeypatch.setattr(host, "_cpu_flags", lambda: FLAGS["avx512"])
    with raises(
        f"E4014: {path} holds kernels for rocm/gfx90a; this CPU offers x86/avx2, x86/avx512. "
        "Compile it with --target x86/avx512."
    ):
        load(path)
    path = handmade.write(tmp_path / "b.so")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with raises(f"E4014: {path} holds kernels for x86/baseline; this CPU has none of the levels"):
        load(path)


FLAGS = {"baseline": frozenset({"sse2", "avx", "avx512f"})}
FLAGS["avx2"] = FLAGS["baseline"] | {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
FLAGS["avx512"] = FLAGS["avx2"] | {"avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize("level", FLAGS)
def test_levels_of_a_cpu(monkeypatch, level):
    monkeypatch.setattr(host, "_cpu_flags", lambda: FLAGS[level])
    count = list(FLAGS).index(level) + 1
    assert host.host_levels() == ("baseline", "avx2", "avx512")[:count]
    for place, lower in enumerate(FLAGS):
        monkeypatch.setenv("OPSGEN_CPU_LEVEL", lower)
        assert host.host_levels() == ("baseline", "avx2", "avx512")[: min(count, place + 1)]
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", "avx9")
    wanted = (
        "E2006: the environment variable OPSGEN_CPU_LEVEL is 'avx9'; it can be baseline or avx2 or avx512. Unset it"
    )
    with raises(wanted, TargetError):
        host.host_levels()


@pytest.mark.parametrize("flag", sorted(FLAGS["avx512"] - {"sse2"}))
def test_a_level_needs_every_flag(monkeypatch, flag):
    monkeypatch.setattr(host, "_cpu_flags", lambda: FLAGS["avx512"] - {flag})
    assert host.host_levels()[-1] == ("avx2" if flag.startswith("avx512") else "baseline")


def test_flags_are_read_from_the_kernel(tmp_path):
    read = host._cpu_flags.__wrapped__
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nprocessor\t: 1\nflags\t\t: none\n")
    assert read(str(tmp_path / "cpuinfo")) == {"fpu", "avx2", "fma"}
    assert read(str(tmp_path / "none")) == frozenset()
    assert "sse2" in read()


# --- what is wrong with a file ----------------------------------------------------------------------------------------


def test_a_launcher_that_is_not_exported(tmp_path):
    path = handmade.write(tmp_path / "a.so", scale_add(), scale_add("scale_add_f16", "float16"))
    with raises(
        f"E4016: {path}: the manifest breaks the schema at kernels[1].symbol: the object does not export "
        "__tvm_ffi_scale_add_f16."
    ):
        load(path)


def test_an_object_that_the_dynamic_loader_refuses(tmp_path):
    from opsgen.runtime import library_file

    library_file.write(tmp_path / "a.so", b"\x7fELF" + bytes(200), handmade.manifest())
    with raises(f"E4021: {tmp_path / 'a.so'} cannot be opened: the dynamic loader says: "):
        load(tmp_path / "a.so")
