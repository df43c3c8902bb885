"""Elementary functions under test: kernels of one function, references in float64, arguments where errors are large."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import numpy as np
import torch
import tvm
from numpy.typing import NDArray
from tvm import tirx

Array = NDArray[Any]

INFINITY, NAN = math.inf, math.nan
SMALLEST, SMALLEST_NORMAL, LARGEST = 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)


def function_of(
    function: Any, lanes: int, dtype: str = "float32", kind: Any = tirx.ForKind.VECTORIZED, name: str = "kernel"
) -> Any:
    """y[i] = function(x[i]) for i < len(x) // lanes * lanes, the inner loop of `lanes` steps being of `kind`."""
    x = tirx.decl_buffer((tirx.Var("n", "int64"),), dtype, "x")
    y = tirx.decl_buffer((x.shape[0],), dtype, "y")
    outer, lane = tirx.Var("outer", "int64"), tirx.Var("lane", "int64")
    zero, width = tirx.IntImm("int64", 0), tirx.IntImm("int64", lanes)
    statements = []

    def bind(value: Any) -> Any:
        variable = tirx.Var(f"t{len(statements)}", value.ty.dtype)
        statements.append(tirx.Bind(variable, value))
        return variable

    index = outer * width + lane
    statements.append(tirx.BufferStore(y, function(bind(tirx.BufferLoad(x, [index])), bind), [index]))
    inner = tirx.For(lane, zero, width, kind, tirx.SeqStmt(statements))
    body = tirx.For(outer, zero, tirx.floordiv(x.shape[0], width), tirx.ForKind.SERIAL, inner)
    return tirx.PrimFunc([x, y], body).with_attr("global_symbol", name).with_attr("tirx.noalias", True)


def stated_errors(documentation: str | None) -> dict[str, float]:
    """The bound of each function, in ulp, from the table in a module's docstring."""
    rows = re.findall(r"^    (\w+) +[0-9.]+ +([0-9.]+)$", documentation or "", re.MULTILINE)
    return {name: float(ulp) for name, ulp in rows}


def run(kernel: Any, x: Array, name: str = "kernel") -> Array:
    padded = np.concatenate([x, np.zeros(-len(x) % 64, x.dtype)])
    source, destination = tvm.runtime.tensor(padded), tvm.runtime.tensor(np.full_like(padded, 7.0))
    kernel[name](source, destination)
    return destination.numpy()[: len(x)]


def reference(name: str, x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = x.astype(np.float64)
    return getattr(torch, name)(torch.from_numpy(wide)).numpy()


def ulp_errors(actual: Array, expected: Array) -> Array:
    """Error in units of the last float32 place of the float64 `expected`; infinity where only one is special."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float32)
        place = np.ldexp(1.0, np.maximum(np.frexp(expected)[1], -125) - 24)
        errors = np.abs(actual.astype(np.float64) - expected) / place
    same = (np.isnan(actual) & np.isnan(expected)) | (actual == rounded)
    special = ~np.isfinite(actual) | ~np.isfinite(rounded)
    errors[special] = np.where(same[special], 0.0, np.inf)
    return errors


@functools.cache
def sample() -> Array:
    """Bit patterns evenly spread over all of float32, and denser for 2^-12 <= |x| < 2^8."""
    everywhere = np.arange(0, 2**32, 8191, dtype=np.uint64)
    usual = np.arange(115 << 23, 135 << 23, 601, dtype=np.uint64)
    return np.concatenate([everywhere, usual, usual + 2**31]).astype(np.uint32).view(np.float32)


@functools.cache
def near_thresholds() -> Array:
    """The neighbours, both signs, of where a reduction steps, a clamp begins, a result under- or overflows."""
    halves = np.arange(0.5, 152.0)
    centres = np.concatenate(
        [
            halves * math.log(2.0),  # exp, sigmoid
            halves * math.log(2.0) / 2,  # tanh
            halves,  # exp2
            np.arange(1.0, 152.0),
            np.ldexp(math.sqrt(0.5), np.arange(-148, 129)),  # log, log1p
            np.ldexp(1.0, np.arange(-149, 128)),
            math.sqrt(0.5) * 2.0 ** np.arange(129) - 1.0,
            np.arange(1, 400) * math.pi / 4,  # sin, cos
            [103.28, 103.972, 104.0, 87.336548, 88.722839, 89.0, 149.0, 150.0, 151.0, 128.0, 129.0],
            [9.0109, 10.0, 3.8325, 3.95, LARGEST, 16367173.0 * 2.0**72],
            np.abs(inverse_erf_steps()),
        ]
    )
    bits = centres.astype(np.float32).view(np.uint32).astype(np.int64)
    bits = (bits[:, None] + np.arange(-24, 25)).reshape(-1)
    bits = np.unique(bits[(bits >= 0) & (bits <= 0x7F800000)]).astype(np.uint32)
    return np.concatenate([bits, bits | np.uint32(2**31)]).view(np.float32)


def inverse_erf_steps() -> Array:
    """Where -log2(1 - erf(x)) is half an odd number: the polynomial's steps in erf."""
    return torch.erfinv(1.0 - 2.0 ** -torch.arange(0.5, 26.0, dtype=torch.float64)).numpy()


# Exact results, signs of zeros included.
SPECIAL = {
    "exp": [
        (-INFINITY, 0.0),
        (INFINITY, INFINITY),
        (0.0, 1.0),
        (-0.0, 1.0),
        (SMALLEST, 1.0),
        (-SMALLEST, 1.0),
        (LARGEST, INFINITY),
        (-LARGEST, 0.0),
        (-103.9720764, SMALLEST),
        (-103.98, 0.0),
        (88.7228470, INFINITY),
    ],
    "exp2": [
        (-INFINITY, 0.0),
        (INFINITY, INFINITY),
        (0.0, 1.0),
        (-0.0, 1.0),
        (LARGEST, INFINITY),
        (-LARGEST, 0.0),
        (128.0, INFINITY),
        (127.0, 2.0**127),
        (-126.0, SMALLEST_NORMAL),
        (-149.0, SMALLEST),
        (-150.0, 0.0),
    ],
    "log": [
        (0.0, -INFINITY),
        (-0.0, -INFINITY),
        (-1.0, NAN),
        (-SMALLEST, NAN),
        (-INFINITY, NAN),
        (-LARGEST, NAN),
        (INFINITY, INFINITY),
        (1.0, 0.0),
    ],
    "log1p": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (-1.0, -INFINITY),
        (-1.0000001, NAN),
        (-INFINITY, NAN),
        (INFINITY, INFINITY),
        (SMALLEST, SMALLEST),
        (-SMALLEST, -SMALLEST),
        (SMALLEST_NORMAL, SMALLEST_NORMAL),
    ],
    "tanh": [
        (INFINITY, 1.0),
        (-INFINITY, -1.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (SMALLEST, SMALLEST),
        (-SMALLEST, -SMALLEST),
        (LARGEST, 1.0),
        (-LARGEST, -1.0),
        (SMALLEST_NORMAL, SMALLEST_NORMAL),
    ],
    "erf": [
        (INFINITY, 1.0),
        (-INFINITY, -1.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (SMALLEST, SMALLEST),
        (-SMALLEST, -SMALLEST),
        (LARGEST, 1.0),
        (-LARGEST, -1.0),
        (4.0, 1.0),
        (-4.0, -1.0),
    ],
    "sigmoid": [
        (INFINITY, 1.0),
        (-INFINITY, 0.0),
        (0.0, 0.5),
        (-0.0, 0.5),
        (LARGEST, 1.0),
        (-LARGEST, 0.0),
        (-103.97, SMALLEST),
    ],
    "sqrt": [(INFINITY, INFINITY), (0.0, 0.0), (-0.0, -0.0), (-SMALLEST, NAN), (-INFINITY, NAN), (4.0, 2.0)],
    "rsqrt": [(INFINITY, 0.0), (0.0, INFINITY), (-0.0, -INFINITY), (-SMALLEST, NAN), (-INFINITY, NAN), (4.0, 0.5)],
    "sin": [(INFINITY, NAN), (-INFINITY, NAN), (0.0, 0.0), (-0.0, -0.0), (SMALLEST, SMALLEST), (-SMALLEST, -SMALLEST)],
    "cos": [(INFINITY, NAN), (-INFINITY, NAN), (0.0, 1.0), (-0.0, 1.0), (SMALLEST, 1.0)],
}

NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)


def assert_exact(actual: Array, expected: Array) -> None:
    """Equal, signs of zeros included; NaN for NaN."""
    np.testing.assert_array_equal(actual, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual)[numbers], np.signbit(expected)[numbers])
