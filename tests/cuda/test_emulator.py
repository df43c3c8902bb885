"""The emulator's own instructions, each beside numpy: kernels written by hand."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opsgen.targets.cuda import ARCHS, codegen
from tests.cuda import emulated

_HEADER = struct.calcsize("<8sQ")


def run(source: str, folder: Path, threads: int, *arrays: np.ndarray[Any, Any]) -> None:
    """Runs one block of the kernel ``test``, which takes pointers to the arrays."""
    image, _ = emulated.compile_for_host(codegen.prelude() + source, ARCHS["sm_80"])
    path = folder / "kernel.so"
    path.write_bytes(image[_HEADER:])
    library = ctypes.CDLL(str(path))
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    arguments = (ctypes.c_void_p * len(arrays))(*(ctypes.addressof(p) for p in pointers))
    library.emulate(library.launch_test, 1, threads, 0, arguments)


# a: 16×16 row by row; b: 8 columns of 16; c: 16×8. Pairs of elements as the PTX manual places them.
_MMA = """
extern "C" __global__ void test(uint* a, uint* b, float* c) {{
  int group = threadIdx.x / 4, place = threadIdx.x % 4;
  uint left[4], right[2];
  float sums[4];
  for (int i = 0; i < 4; ++i) left[i] = a[(group + i % 2 * 8) * 8 + place + i / 2 * 4];
  for (int i = 0; i < 2; ++i) right[i] = b[group * 8 + place + i * 4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(group + i / 2 * 8) * 8 + place * 2 + i % 2];
  opsgen_mma_{dtype}(sums, left, right);
  for (int i = 0; i < 4; ++i) c[(group + i / 2 * 8) * 8 + place * 2 + i % 2] = sums[i];
}}
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mma(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(s).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for s in ((16, 16), (8, 16))
    )
    c = rng.standard_normal((16, 8)).astype(np.float32)
    wanted = c + a.astype(np.float64) @ b.astype(np.float64).T
    run(_MMA.format(dtype=dtype), tmp_path, 32, a, b, c)
    np.testing.assert_allclose(c, wanted, rtol=1e-6, atol=1e-6)


# Two matrices of 16 × 16 halves in one shared tile; each thread keeps what ldmatrix gives it.
_MATRICES = """
extern "C" __global__ void test(uint16_t* a, uint* found) {
  __shared__ alignas(16) uint16_t tile[256];
  for (int i = 0; i < 8; ++i) tile[threadIdx.x * 8 + i] = a[threadIdx.x * 8 + i];
  __syncthreads();
  uint16_t* row = tile + threadIdx.x % 16 * 16 + threadIdx.x / 16 * 8;
  opsgen_load_matrices(found + threadIdx.x * 8, row);
  opsgen_load_transposed(found + threadIdx.x * 8 + 4, row);
}
"""


def test_ldmatrix(tmp_path: Path) -> None:
    a = np.arange(256, dtype=np.uint16).reshape(16, 16)
    found = np.zeros((32, 8, 2), np.uint16)
    run(_MATRICES, tmp_path, 32, a, found)
    for t in range(32):
        for i in range(4):
            block = a[i % 2 * 8 :, i // 2 * 8 :][:8, :8]
            pair = slice(t % 4 * 2, t % 4 * 2 + 2)
            assert found[t, i].tolist() == block[t // 4, pair].tolist()
            assert found[t, 4 + i].tolist() == block[pair, t // 4].tolist()


# The second copy is awaited only in the end: what it brings is not there before.
_COPIES = """
extern "C" __global__ void test(float* a, float* found) {
  __shared__ alignas(16) float tile[256];
  for (int i = 0; i < 8; ++i) tile[threadIdx.x * 8 + i] = -1;
  opsgen_copy16(tile + threadIdx.x * 8, a + threadIdx.x * 8, true);
  opsgen_copies_are_a_group();
  opsgen_copy8(tile + threadIdx.x * 8 + 4, a + threadIdx.x * 8 + 4, true);
  opsgen_copy8(tile + threadIdx.x * 8 + 6, a, false);
  opsgen_copies_are_a_group();
  opsgen_wait_for_copies<1>();
  for (int i = 0; i < 8; ++i) found[threadIdx.x * 16 + i] = tile[threadIdx.x * 8 + i];
  opsgen_wait_for_copies<0>();
  for (int i = 0; i < 8; ++i) found[threadIdx.x * 16 + 8 + i] = tile[threadIdx.x * 8 + i];
}
"""


def test_copies_beside_the_threads(tmp_path: Path) -> None:
    a, found = np.arange(256, dtype=np.float32), np.zeros((32, 2, 8), np.float32)
    run(_COPIES, tmp_path, 32, a, found)
    early, late = found[:, 0], found[:, 1]
    a = a.reshape(32, 8)
    assert (early[:, :4] == a[:, :4]).all() and (early[:, 4:] == -1).all()
    assert (late[:, :6] == a[:, :6]).all() and (late[:, 6:] == 0).all()


@pytest.mark.parametrize("value", [1.0, 1.00390625, -3.3e38, 3.4e38, np.inf, -np.inf, np.nan, 1e-40, 0.1])
def test_parts_of_a_float(value: float, tmp_path: Path) -> None:
    source = """
extern "C" __global__ void test(float* x) {
  float near = opsgen_nearest_bfloat16(x[0]);
  x[1] = near;
  x[2] = opsgen_beyond(x[0], near);
}
"""
    x = np.array([value, 0, 0], np.float32)
    run(source, tmp_path, 32, x)
    near = x[:1].astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(x[1], near[0])
    np.testing.assert_array_equal(x[2], x[0] - near[0] if np.isfinite(near[0]) else 0)
