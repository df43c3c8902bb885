"""What the benchmark of NVIDIA GPUs measures: sets of ops, types and shapes. A set's kernels are one library file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALF, SINGLE = "bfloat16", "float32"


@dataclass(frozen=True)
class Entry:
    """One case.

    Attributes:
        nearby: a shape that nobody chose, near those that were.
        compiled: beside torch.compile too.
        quick: part of a quick run.
        replaced: values of integer inputs.
        readonly: beside the fastest kernel of torch that only reads this input.
    """

    op: str
    dims: Mapping[str, int]
    dtype: str = HALF
    absent: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    nearby: bool = False
    compiled: bool = False
    quick: bool = False
    replaced: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    readonly: str = ""
    label: str = ""


@dataclass(frozen=True)
class Set:
    """Entries, and the file that holds their kernels. ``dtypes``: what it is compiled for."""

    file: str
    dtypes: tuple[Any, ...]
    entries: Callable[[], list[Entry]]


def _linear(rows: int, columns: int, summed: int, **more: Any) -> Entry:
    """x [rows, summed] times weightᵀ [summed, columns]: M x N x K."""
    dims = {"rows": rows, "in_features": summed, "out_features": columns}
    fixed: dict[str, Any] = {"absent": ("bias", "residual"), "attributes": {"activation": "none"}}
    fixed["label"] = f"{rows}x{columns}x{summed}"
    return Entry("linear", dims, **{**fixed, **more})


GEMM = (
    (8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 1024), (16384, 1024, 1024), (4096, 11008, 4096),
    (1000, 1000, 1000), (2048, 2048, 2048),
)  # fmt: skip
GEMM_NEARBY = ((8000, 8200, 8072), (4000, 4104, 4160), (16300, 4040, 1048), (1100, 1048, 968))
EPILOGUE = (16384, 4096, 1024)
EPILOGUE_NEARBY = ((16300, 4040, 1048), (8000, 4104, 1160), (12345, 3000, 1000))
"""M, N, K."""


def gemm() -> list[Entry]:
    """A product alone, and with epilogues."""
    found = [_linear(*shape, quick=shape in GEMM[:3]) for shape in GEMM]
    found += [_linear(*shape, nearby=True) for shape in GEMM_NEARBY]
    for absent, activation in ((("residual",), "gelu_tanh"), (("residual",), "gelu"), ((), "none")):
        same: dict[str, Any] = {"absent": absent, "attributes": {"activation": activation}}
        found.append(_linear(*EPILOGUE, **same, compiled=True, quick=True))
        found += [_linear(*shape, **same, compiled=True, nearby=True) for shape in EPILOGUE_NEARBY]
    return found


def few_rows() -> list[Entry]:
    """Few rows: what counts is how fast the weight is read."""
    listed = [(m, 4096, 4096) for m in (1, 16, 24, 32, 64)]
    nearby = [(m, n, k) for m in (1, 15, 33) for n, k in ((4000, 4100), (4096, 11008), (6144, 4000))]
    same: dict[str, Any] = {"readonly": "weight"}
    return [_linear(*s, **same, quick=True) for s in listed] + [_linear(*s, **same, nearby=True) for s in nearby]


ROWS = ((16384, 1024), (8192, 4096), (4096, 8192), (32768, 768), (2048, 65536))
ROWS_NEARBY = ((16000, 1000), (8000, 4111), (3000, 20000))
_ROW_OPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("layer_norm", "hidden", ("residual",)),
    ("rms_norm", "hidden", ("residual",)),
    ("rms_norm", "hidden", ()),
    ("add_rms_norm", "hidden", ()),
    ("softmax", "columns", ()),
    ("gelu", "", ()),
    ("swiglu", "", ()),
)


def rows() -> list[Entry]:
    """What is read once and written once."""
    found = []
    for dtype in (HALF, SINGLE):
        for op, dim, absent in _ROW_OPS:
            attributes = {"approximate": "none"} if op == "gelu" else {}
            for shape in (*ROWS, *ROWS_NEARBY):
                m, n = shape
                dims = {"rows": m, dim: n} if dim else {"rows": m * n}
                half, nearby = dtype == HALF, shape in ROWS_NEARBY
                quick, label = half and shape in ROWS[:2], f"{m}x{n}"
                found.append(Entry(op, dims, dtype, absent, attributes, nearby, half, quick, label=label))
    return found


QUANTISED = ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 1024))
QUANTISED_NEARBY = ((8000, 8208, 8080), (4000, 4112, 4176), (16300, 4048, 1040))


def _quantised(op: str, dtype: str, absent: tuple[str, ...], attributes: Mapping[str, Any]) -> list[Entry]:
    found = []
    for shapes, nearby in ((QUANTISED, False), (QUANTISED_NEARBY, True)):
        for m, n, k in shapes:
            dims = {"rows": m, "in_features": k, "out_features": n}
            found.append(Entry(op, dims, dtype, absent, attributes, nearby, quick=not nearby, label=f"{m}x{n}x{k}"))
    return found


def fp8() -> list[Entry]:
    """float8 with one scale for all, and with one for each row and column."""
    tensorwise = _quantised("fp8_linear", "float8_e4m3fn", ("x_scale", "weight_scale", "bias"), {})
    return tensorwise + _quantised("fp8_linear", "float8_e4m3fn", ("scale", "bias"), {})


def int8() -> list[Entry]:
    """int8 with a scale for each row and column."""
    return _quantised("int8_linear", "int8", ("bias",), {"out_dtype": "bfloat16"})


_GROUPED = (
    (16384, 4096, 14336, False), (16300, 4096, 14336, True), (12345, 2048, 8200, True), (8000, 4000, 6144, True),
)  # fmt: skip
"""Tokens, in and out features, and whether nobody chose them."""


def grouped() -> list[Entry]:
    """Eight experts: groups of equal and of different lengths, one of them empty."""
    found = []
    parts = np.array([0.31, 0.2, 0.17, 0.12, 0.09, 0.07, 0.04, 0.0])
    for tokens, k, n, nearby in _GROUPED:
        even = np.linspace(0, tokens, 9).astype(np.int64)
        uneven = np.r_[0, np.cumsum(np.floor(parts * tokens))].astype(np.int64)
        uneven[-2:] = tokens  # what rounding left
        dims = {"tokens": tokens, "in_features": k, "out_features": n, "experts": 8, "offsets": 9}
        for label, offsets in (("even groups", even), ("uneven groups", uneven)):
            same: dict[str, Any] = {"absent": ("bias", "scale"), "attributes": {"activation": "none"}}
            quick, replaced = not nearby, {"offsets": offsets}
            found.append(
                Entry("grouped_linear", dims, nearby=nearby, quick=quick, replaced=replaced, label=label, **same)
            )
    return found


SETS: dict[str, Set] = {
    "gemm": Set("linear", (HALF,), gemm),
    "few_rows": Set("linear", (HALF,), few_rows),
    "rows": Set("rows", (HALF, SINGLE), rows),
    "fp8": Set("fp8", (HALF,), fp8),
    "int8": Set("int8", (HALF,), int8),
    "grouped": Set("grouped", ({"*": HALF, "offsets": "int64"},), grouped),
}
