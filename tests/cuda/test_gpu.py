"""Kernels on a real NVIDIA GPU, with torch tensors; skipped without one.

On a machine without TVM, OPSGEN_TEST_CUDA_LIBRARIES names a folder of library files made by
``python -m tests.cuda.test_gpu FOLDER TARGET``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opsgen as og
from tests import float8, integer_products
from tests.cuda import cases

DTYPES = ("float32", "float16", "bfloat16", "float64")
FOLDER = os.environ.get("OPSGEN_TEST_CUDA_LIBRARIES")
HALVES = [c for c in cases.ATTENTION if c in cases.test_attention.HALVES]


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


pytestmark = pytest.mark.skipif("not has_gpu()", reason="no GPU that torch can use")


def write(name: str, path: Path, target: str) -> None:
    """Compiles one of the libraries that the tests here need."""
    from opsgen.compiler.compile import build

    if name == "users":
        build([*cases.USERS.values(), cases.columns_total], path, target)
    elif name == "float8":
        build(float8.OPS, path, target)
    elif name == "integers":
        build(integer_products.OPS, path, target)
    elif name == "half_functions":
        build([cases.half_functions], path, target, ["float16", "bfloat16"])
    elif name == "ptx":
        build(cases.OPS["softmax"], path, "cuda/compute_80")
    elif name == "attention":
        build(cases.test_attention.variants(cases.ATTENTION), path, target)
    elif name == "half_attention":
        build(cases.test_attention.variants(HALVES), path, target, ["bfloat16"])
    else:
        build(cases.items(list(cases.OPS)), path, target, [name])


LIBRARIES = (*DTYPES, "users", "half_functions", "attention", "half_attention", "ptx", "float8", "integers")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Libraries by name, compiled for this GPU if they are not there."""
    import torch

    loaded: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in loaded:
            path = Path(FOLDER or tmp_path_factory.mktemp("gpu")) / f"{name}.so"
            if not path.exists():
                major, minor = torch.cuda.get_device_capability()
                exact = "a" if major >= 9 else ""
                write(name, path, f"cuda/sm_{major}{minor}{exact}")
            loaded[name] = og.load(path)
        return loaded[name]

    return get


def on(device: str) -> Callable[[Any], Any]:
    import torch

    def convert(x: Any) -> Any:
        if x.dtype.isbuiltin != 1:  # a type of ml_dtypes
            bits = torch.from_numpy(np.array(x).view({1: np.uint8, 2: np.int16}[x.dtype.itemsize]))
            return bits.to(device).view(getattr(torch, x.dtype.name))
        return torch.from_numpy(np.array(x)).to(device)

    return convert


def back(y: Any) -> Any:
    import torch

    y, name = y.cpu(), str(y.dtype).removeprefix("torch.")
    if not hasattr(ml_dtypes, name):
        return y.numpy()
    bits = y.view({1: torch.uint8, 2: torch.int16}[y.dtype.itemsize])
    return bits.numpy().view(getattr(ml_dtypes, name))


def check(lib: Any, op: Any, given: dict[str, Any], device: str = "cuda:0") -> None:
    cases.check(lib, op, given, on(device), back)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", cases.OPS)
def test_ops(library: Callable[[str], Any], name: str, dtype: str) -> None:
    for given in cases.calls(name, dtype):
        check(library(dtype), cases.OPS[name], given)


def test_float8(library: Callable[[str], Any]) -> None:
    float8.check_conversions(library("float8"), on("cuda:0"), back)


def test_products_of_integers(library: Callable[[str], Any]) -> None:
    more = ((300, 520, 272), (1000, 1008, 1024), (129, 264, 80))
    integer_products.check_products(library("integers"), (*integer_products.SIZES, *more), on("cuda:0"), back)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "add_rms_norm"])
def test_long_rows(library: Callable[[str], Any], name: str, dtype: str) -> None:
    for given in cases.long_calls(name, dtype):
        check(library(dtype), cases.OPS[name], given)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles(library: Callable[[str], Any], dtype: str) -> None:
    for given in cases.linear_calls(dtype, (*cases.TILES, *cases.LARGE_TILES)):
        check(library(dtype), cases.OPS["linear"], given)


@pytest.mark.parametrize("name", [n for n in cases.USERS if n != "shift"])
def test_ops_of_users(library: Callable[[str], Any], name: str) -> None:
    for given in cases.user_calls(name, np.random.default_rng(0)):
        check(library("users"), cases.USERS[name], given)


def test_a_contraction_contiguous_along_results(library: Callable[[str], Any]) -> None:
    rng = np.random.default_rng(0)
    for n, m, k in ((3, 5, 7), (65, 129, 63), (1, 200, 300), (1500, 20, 1500)):
        given = {
            "x": rng.standard_normal((n, m)).astype(np.float32),
            "y": rng.standard_normal((m, k)).astype(np.float32),
        }
        check(library("users"), cases.columns_total, given)


@pytest.mark.parametrize(("name", "absent", "attributes"), cases.ATTENTION)
@pytest.mark.parametrize("kind", ["attention", "half_attention"])
def test_attention(
    library: Callable[[str], Any], kind: str, name: str, absent: tuple[str, ...], attributes: dict[str, Any]
) -> None:
    if kind == "half_attention" and (name, absent, attributes) not in HALVES:
        pytest.skip("compiled in one precision only")
    op = cases.test_attention.OPS[name]
    dtype = "float32" if kind == "attention" else "bfloat16"
    for title, sizes in cases.test_attention.SIZES.items():
        if name == "documents" and title == "no keys":
            continue  # it reads a document at a query's position
        given = {n: x for n, x in cases.test_attention.arguments(op, sizes, dtype).items() if n not in absent}
        check(library(kind), op, {**given, **attributes})


def test_views_of_other_memory_are_not_copied(library: Callable[[str], Any]) -> None:
    import torch

    lib = library("float32")
    before = lib.stats["softmax"].copies_in
    wide = torch.randn(5, 4131, device="cuda")
    for first in range(4):
        x = wide[:, first : 4128 - first]
        torch.testing.assert_close(lib.softmax(x), torch.softmax(x.double(), -1).float(), rtol=1e-5, atol=1e-7)
    assert lib.stats["softmax"].copies_in == before
    x = wide.t()[:, ::2]
    torch.testing.assert_close(lib.softmax(x), torch.softmax(x.double(), -1).float(), rtol=1e-5, atol=1e-7)


def test_results_stay_on_the_device_and_in_the_callers_memory(library: Callable[[str], Any]) -> None:
    import torch

    lib, x = library("bfloat16"), torch.randn(3, 5, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    assert lib.softmax(x, out=out) is out
    torch.testing.assert_close(out, torch.softmax(x.float(), -1).bfloat16(), rtol=2**-7, atol=1e-3)
    assert lib.softmax(x).device == x.device
    with pytest.raises(og.errors.CallError, match=r"E4007: softmax: 'out' is written to and overlaps"):
        lib.softmax(x, out=x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_for_half_results(library: Callable[[str], Any], dtype: str) -> None:
    """All numbers of a half type: within a rounding of the value, and 2^-17 of it for the function."""
    import torch

    kind = getattr(torch, dtype)
    every = torch.arange(-(2**15), 2**15, device="cuda").to(torch.int16).view(kind)
    x = every[every.isfinite()]
    wide, unit = x.double(), 2.0**-11 if dtype == "float16" else 2.0**-8
    erfc = torch.special.erfc(-wide)
    expected = {
        "exp": torch.exp(wide),
        "sigmoid": torch.sigmoid(wide),
        "gelu": wide * erfc,
        "tanh": 2 / (1 + torch.exp(-2 * wide)),
    }
    found = library("half_functions").half_functions(x)._asdict()
    for name, value in expected.items():
        got = found[name].double()
        least = 2.0**-25 if dtype == "float16" else 2.0**-126  # halves round to that, or float32 is flushed
        largest = torch.finfo(kind).max
        # Half the distance of neighbours: of the power of two below the value.
        spacing = unit * torch.exp2(torch.floor(torch.log2(value.abs().clamp(min=2.0**-200))))
        near = (got - value).abs() <= spacing + 2.0**-17 * value.abs() + least
        beyond = (value.abs() >= largest) & (got.abs() >= largest) & (got.sign() == value.sign())
        wrong = ~(near | beyond)
        assert not wrong.any(), f"{name}({wide[wrong][0].item()}): {got[wrong][0].item()}, not {value[wrong][0].item()}"


def test_the_callers_stream(library: Callable[[str], Any]) -> None:
    """What the stream does before is seen, and nothing waits for anything else."""
    import torch

    lib, x = library("float32"), torch.zeros(64, 1024, device="cuda")
    lib.gelu(x, approximate="none")
    stream = torch.cuda.Stream()
    for _ in range(20):
        x.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x.fill_(3.0)
            y = lib.gelu(x, approximate="none")
        stream.synchronize()
        torch.testing.assert_close(y, torch.nn.functional.gelu(x))


def test_a_graph_is_captured_and_replayed(library: Callable[[str], Any]) -> None:
    import torch

    lib, x = library("float32"), torch.randn(2, 3, 40, device="cuda")
    mask = torch.ones(2, 3, dtype=torch.bool, device="cuda")
    fresh = og.load(lib.path)  # its kernels are loaded inside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fresh.masked_mean_pool(x, mask)
        z = fresh.softmax(y)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, x.mean(1))
        torch.testing.assert_close(z, torch.softmax(y, -1))


def test_threads(library: Callable[[str], Any]) -> None:
    import torch

    lib, wrong = og.load(library("float32").path), []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((seed + 1, 300), float(seed), device="cuda")
            for _ in range(50):
                if not torch.allclose(lib.softmax(x), torch.full_like(x, 1 / 300), rtol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_another_device(library: Callable[[str], Any]) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    for given in cases.calls("softmax", "float32"):
        check(library("float32"), cases.OPS["softmax"], given, "cuda:1")
    assert torch.cuda.current_device() == 0
    x, y = torch.ones(2, 3, device="cuda:0"), torch.ones(2, 3, device="cuda:1")
    with pytest.raises(og.errors.CallError, match="E4006"):
        library("float32").swiglu(x, y)


def test_tensors_that_are_elsewhere(library: Callable[[str], Any]) -> None:
    import torch

    with pytest.raises(og.errors.CallError, match=r"E4006: softmax: argument 'x' is on cpu; this library runs on cuda"):
        library("float32").softmax(torch.ones(2, 3))


def test_no_memory_for_results(library: Callable[[str], Any]) -> None:
    import torch

    x = torch.ones(1, device="cuda").expand(1 << 20, 1 << 20)
    with pytest.raises(
        og.errors.ResourceError, match=r"E6002: relu: 4398046511104 bytes of device memory are needed, \d+"
    ):
        library("float32").relu(x)


def test_the_same_bits_each_time(library: Callable[[str], Any]) -> None:
    import torch

    lib, x, w = library("float32"), torch.randn(300, 500, device="cuda"), torch.randn(200, 500, device="cuda")
    for f in (
        lambda: lib.softmax(x),
        lambda: lib.linear(x, w, x.new_zeros(200), x.new_zeros(300, 200), activation="silu"),
    ):
        first = f()
        assert all(torch.equal(first, f()) for _ in range(10))


def test_ptx_is_translated_for_this_gpu(tmp_path: Path) -> None:
    import torch

    path = Path(FOLDER or tmp_path) / "ptx.so"
    if not path.exists():
        write("ptx", path, "cuda/compute_80")
    lib, x = og.load(path), torch.randn(300, 70, device="cuda")
    torch.testing.assert_close(lib.softmax(x), torch.softmax(x.double(), -1).float(), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_more_elements_than_an_int32_counts(library: Callable[[str], Any]) -> None:
    import torch

    lib, rows, columns = library("bfloat16"), 65537, 32776
    free, _ = torch.cuda.mem_get_info()
    if free < 6 * rows * columns:
        pytest.skip("too little memory")
    assert rows * columns > 2**31
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    for f, wanted in ((lib.softmax, lambda x: torch.softmax(x.float(), -1)), (lib.relu, torch.relu)):
        y = f(x)
        for part in (slice(0, 50), slice(rows // 2, rows // 2 + 50), slice(rows - 50, rows)):
            torch.testing.assert_close(y[part].float(), wanted(x[part]).float(), rtol=2**-7, atol=1e-6)
        del y
    line = x.view(-1)  # one row
    torch.testing.assert_close(lib.relu(line)[-100:], torch.relu(line[-100:]))
    a, w = (torch.randn(n, 64, device="cuda", dtype=torch.bfloat16) for n in (rows, columns))
    del x, line
    zeros = torch.zeros(columns, device="cuda", dtype=torch.bfloat16)
    y = lib.linear(a, w, zeros, torch.zeros(1, device="cuda", dtype=a.dtype).expand(rows, columns), activation="silu")
    for part in (slice(0, 50), slice(rows // 2, rows // 2 + 50), slice(rows - 50, rows)):
        wanted = torch.nn.functional.silu(a[part].double() @ w.double().t()).float()
        torch.testing.assert_close(y[part].float(), wanted, rtol=2**-7, atol=1e-4)


def test_bench(library: Callable[[str], Any], tmp_path: Path) -> None:
    """The command, and its timing against itself: two contenders that do the same take the same time."""
    import torch

    from opsgen.bench import cuda_timing
    from opsgen.cli.main import main

    path = tmp_path / "record.json"
    words = ["bench", str(library("bfloat16").path), "softmax", "--dims", "rows=3000,columns=5000", "--rounds", "20"]
    assert main([*words, "--json", str(path)]) == 0
    record = json.loads(path.read_text())
    assert record["device"]["kind"] == "cuda" and record["device"]["name"] == torch.cuda.get_device_name()
    (row,) = record["results"]
    assert row["checked"]["whole"] and set(row["seconds"]) == {"opsgen", "torch", "copy"}
    # No kernel is faster than memory: an H200's reaches 4.8 TB/s, and a copy here is of data that no cache holds.
    assert 100 < row["copy_gbs"] < 10000 and 0 < row["of_roofline"] < 1
    x = torch.randn(4096, 4096, device="cuda")
    same = cuda_timing.interleaved(torch, "cuda:0", {n: [lambda: x.softmax(-1)] for n in "ab"}, 30)
    assert 0.9 < same.ratio("a", "b") < 1.1


if __name__ == "__main__":
    for each in LIBRARIES:
        write(each, Path(sys.argv[1]) / f"{each}.so", sys.argv[2])
        print(each, flush=True)
