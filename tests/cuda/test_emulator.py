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
