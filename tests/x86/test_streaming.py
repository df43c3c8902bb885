"""Results that go past the caches: right at every length and place in a line, and nothing beside them is touched."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.ops import all_ops
from opsgen.runtime.host import host_levels
from tests import arrays

ARCHS = ("avx2", "avx512")
OPS = all_ops()
LINE = 64
LENGTHS = (1, 15, 16, 511, 512, 513, 600, 4096 + 17)  # 512 is the shortest row that streams, 4096 a task of a map
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
F32 = 2.0**-24


def to(dtype: str) -> og.Op:
    @og.op(name=f"to_{dtype}")
    def cast(x: og.Tensor["...", "n"]) -> og.Tensor:
        return x > 0.0 if dtype == "bool" else og.cast(x, dtype)

    return cast


@og.op
def plus_one(x: og.Tensor["n"]):
    return x + 1.0


@og.op
def mixed(x: og.Tensor["...", "n"]):
    """Results of several types; only those of the first one's stream."""
    return og.results(double=x + x, half=og.cast(x, "float16"), positive=x > 0.0, square=x * x)


@og.op
def mixed_rows(x: og.Tensor["...", "n"]):
    centered = x - og.max(x, over="n")
    return og.results(half=og.cast(centered, "float16"), top=centered >= 0.0, total=og.sum(x, over="n"), y=centered)


@og.op
def add_to(total: og.Mut["...", "n"], x: og.Tensor["...", "n"]):
    return og.results(total=total + x)


@og.op
def lower(x: og.Mut["...", "n"]):
    return og.results(x=x - og.max(x, over="n"))


@og.op
def over_two(x: og.Tensor["rows_", "a", "b"]):
    return x - og.max(x, over=("a", "b"))


@og.op
def turned(x: og.Tensor["m", "n"]):
    """One result as it is read, one transposed, which cannot stream."""
    y = x - og.max(x, over="n")
    return og.results(y=y, z=og.transpose(y, "n", "m"))


USERS = [plus_one, mixed, mixed_rows, add_to, lower, over_two, turned, *map(to, DTYPES)]


@dataclass
class Built:
    """One file for both archs, in which every result streams that can."""

    path: Path
    arch: str
    lib: Any


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from opsgen.compiler.compile import build

    found = tmp_path_factory.mktemp("streaming") / "streaming.so"
    every = {"stream_bytes": 1}
    build(
        [*USERS, OPS["add_rms_norm"], OPS["softmax"]],
        found,
        [f"x86/{arch}" for arch in ARCHS],
        configs={"x86.map": every, "x86.row_reduction": every},
    )
    return found


@pytest.fixture(scope="module", params=ARCHS)
def built(request: pytest.FixtureRequest, path: Path) -> Iterator[Built]:
    if request.param not in host_levels():
        pytest.skip(f"this CPU has no {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSGEN_CPU_LEVEL", request.param)
        lib = og.load(path)
    yield Built(path, request.param, lib)


@pytest.fixture
def lib(built: Built) -> Any:
    return built.lib


class Frame:
    """A result of ``rows`` rows somewhere in memory full of other bytes, which must stay."""

    def __init__(self, rows: int, length: int, dtype: str, offset: int = 0, gap: int = 0) -> None:
        """The first row starts ``offset`` elements into a line; ``gap`` elements lie between two rows."""
        kind = arrays.numpy_dtype(dtype)
        size = kind.itemsize
        self.memory = np.full((rows * (length + gap) + offset) * size + 5 * LINE, 0xA5, np.uint8)
        start = -self.memory.ctypes.data % LINE + LINE + offset * size
        whole = self.memory[start : start + rows * (length + gap) * size].view(kind)
        self.out = whole.reshape(rows, length + gap)[:, :length]
        self.before = self.memory.copy()

    def check(self, wanted: Any) -> None:
        assert np.array_equal(self.out, wanted)
        self.out[...] = np.broadcast_to(np.uint8(0xA5), self.out.itemsize).copy().view(self.out.dtype)
        assert np.array_equal(self.memory, self.before), "something beside the result was written"


def numbers(*shape: int) -> Any:
    """Whole numbers in [0, 100) that every type holds, and a sign for some."""
    return np.random.default_rng(shape).integers(0, 100, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_map_at_every_place_in_a_line(lib: Any, dtype: str) -> None:
    places = LINE // arrays.numpy_dtype(dtype).itemsize
    for length in LENGTHS:
        x = numbers(2, length)
        wanted = x > 0 if dtype == "bool" else x.astype(arrays.numpy_dtype(dtype))
        for offset in range(places):
            for gap in (0, 3):
                frame = Frame(2, length, dtype, offset, gap)
                assert lib[f"to_{dtype}"](x, out=frame.out) is frame.out
                frame.check(wanted)


def test_a_single_row(lib: Any) -> None:
    for length in LENGTHS:
        x = numbers(length)
        for offset in range(16):
            frame = Frame(1, length, "float32", offset)
            lib.plus_one(x, out=frame.out[0])
            frame.check(x[None] + 1)


def test_a_result_between_two_elements(lib: Any) -> None:
    """An address that is no multiple of the element's size."""
    for shift in (1, 2, 3):
        memory = np.zeros(4 * 600 + 8, np.uint8)
        out = memory[shift : shift + 2400].view(np.float32)
        lib.plus_one(numbers(600), out=out)
        assert np.array_equal(out, numbers(600) + 1)
        assert not memory[:shift].any() and not memory[shift + 2400 :].any()


def test_no_rows_and_no_columns(lib: Any) -> None:
    for shape in ((0, 600), (3, 0), (0, 0)):
        assert lib.to_float16(numbers(*shape)).shape == shape
        assert lib.softmax(numbers(*shape)).shape == shape


# (offset of sum, gap, offset of out, gap): alike in a line, apart in it, with rows that drift apart
PAIRS = [
    (0, 0, 0, 0),
    (5, 0, 5, 0),
    (1, 0, 17, 0),
    (3, 0, 4, 0),
    (0, 8, 0, 8),
    (7, 3, 7, 19),
    (0, 0, 0, 3),
    (2, 5, 2, 4),
]


@pytest.mark.parametrize(("first", "first_gap", "second", "second_gap"), PAIRS)
def test_two_results(lib: Any, first: int, first_gap: int, second: int, second_gap: int) -> None:
    for length in LENGTHS:
        rng = np.random.default_rng(length)
        x, residual = (rng.standard_normal((4, length)).astype(np.float32) for _ in range(2))
        weight = rng.standard_normal(length).astype(np.float32)
        y, z = Frame(4, length, "float32", first, first_gap), Frame(4, length, "float32", second, second_gap)
        lib.add_rms_norm(x, residual, weight, out=(y.out, z.out))
        wide = (x + residual).astype(np.float64)
        wanted = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * weight
        np.testing.assert_allclose(y.out, wanted, rtol=(np.sqrt(length) + 16) * F32)
        y.check(y.out.copy())
        z.check(x + residual)


def test_rows_at_every_place_in_a_line(lib: Any) -> None:
    for length in LENGTHS:
        x = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
        wide = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        for offset in range(16):
            frame = Frame(3, length, "float32", offset, gap=offset % 4)
            lib.softmax(x, out=frame.out)
            # The error of the difference comes out as a relative one; then the exponential, the sum and the quotient.
            np.testing.assert_allclose(frame.out, wide / wide.sum(-1, keepdims=True), rtol=(np.sqrt(length) + 24) * F32)
            frame.check(frame.out.copy())


@pytest.mark.parametrize("length", [513, 600, 4096 + 17])
def test_results_of_several_types(lib: Any, length: int) -> None:
    x = numbers(3, length) - 50
    for offsets in ((0, 0, 0, 0), (3, 3, 3, 3), (0, 1, 5, 16), (1, 0, 63, 17)):
        frames = [Frame(3, length, t, o) for t, o in zip(("float32", "float16", "bool", "float32"), offsets)]
        lib.mixed(x, out=tuple(f.out for f in frames))
        for frame, wanted in zip(frames, (x + x, x.astype(np.float16), x > 0, x * x)):
            frame.check(wanted)
        centered = x - x.max(-1, keepdims=True)
        half, top, y = (Frame(3, length, t, o) for t, o in zip(("float16", "bool", "float32"), offsets))
        total = np.empty(3, np.float32)
        lib.mixed_rows(x, out=(half.out, top.out, total, y.out))
        half.check(centered.astype(np.float16))
        top.check(centered >= 0)
        y.check(centered)
        assert np.array_equal(total, x.sum(-1))


@pytest.mark.parametrize("length", LENGTHS)
def test_updates_in_place(lib: Any, length: int) -> None:
    x = numbers(3, length)
    for offset in (0, 1, 15):
        frame = Frame(3, length, "float32", offset)
        frame.out[...] = x + 7
        lib.add_to(frame.out, x)
        frame.check(x + 7 + x)
        frame = Frame(3, length, "float32", offset)
        frame.out[...] = x
        lib.lower(frame.out)
        frame.check(x - x.max(-1, keepdims=True))


def test_two_reduced_dims(lib: Any) -> None:
    for a, b in ((3, 600), (2, 4113), (600, 1), (5, 511)):
        x = numbers(2, a, b)
        wanted = x - x.max((1, 2), keepdims=True)
        for offset in range(16):
            frame = Frame(2, a * b, "float32", offset)
            lib.over_two(x, out=frame.out.reshape(2, a, b))
            frame.check(wanted.reshape(2, -1))


def test_a_transposed_result_beside_one_that_streams(lib: Any) -> None:
    x = numbers(7, 1030)
    y = lib.turned(x)
    assert np.array_equal(y.y, x - x.max(-1, keepdims=True))
    assert np.array_equal(y.z, (x - x.max(-1, keepdims=True)).T)


def test_many_rows_in_threads(built: Built) -> None:
    """The results of the threads are there when the call returns; each has its own rows, whose lines they share."""
    code = f"""
import numpy as np, opsgen as og
lib = og.load({str(built.path)!r})
x = np.random.default_rng(0).integers(-50, 50, (3001, 517)).astype(np.float32)
for _ in range(3):
    assert np.array_equal(lib.to_float16(x), x.astype(np.float16))
    assert np.array_equal(lib.mixed_rows(x).y, x - x.max(-1, keepdims=True))
print("right")
"""
    for threads in ("1", "4"):
        env = {**os.environ, "OPSGEN_CPU_LEVEL": built.arch, "OMP_NUM_THREADS": threads}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
        assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", [OPS["softmax"], OPS["relu"], OPS["add_rms_norm"]], ids=lambda op: op.name)
def test_machine_code(op: og.Op, arch: str) -> None:
    assembly = og.inspect(op, "asm", f"x86/{arch}")
    assert "vmovntps" in assembly
    assert "sfence" in assembly
    assert f"vmovntps %{'zmm' if arch == 'avx512' else 'ymm'}" in " ".join(assembly.split())
