"""The dtypes a library file can name, with their DLPack codes."""

from __future__ import annotations

from typing import NamedTuple

# DLPack type codes (DLDataTypeCode of dlpack.h).
INT, UINT, FLOAT, BFLOAT, BOOL, FLOAT8_E4M3FN, FLOAT8_E5M2 = 0, 1, 2, 4, 6, 10, 12


class DType(NamedTuple):
    """One dtype: its name, DLPack code and size.

    ``raw`` is the numpy dtype of the same size that carries its bytes. ``native`` says that numpy itself has the dtype
    and can export it by DLPack, so ``raw`` is the dtype itself.
    """

    name: str
    code: int
    itemsize: int
    raw: str
    native: bool


DTYPES: dict[str, DType] = {
    entry.name: entry
    for entry in (
        DType("float64", FLOAT, 8, "float64", True),
        DType("float32", FLOAT, 4, "float32", True),
        DType("float16", FLOAT, 2, "float16", True),
        DType("bfloat16", BFLOAT, 2, "uint16", False),
        DType("float8_e4m3fn", FLOAT8_E4M3FN, 1, "uint8", False),
        DType("float8_e5m2", FLOAT8_E5M2, 1, "uint8", False),
        DType("int64", INT, 8, "int64", True),
        DType("int32", INT, 4, "int32", True),
        DType("int16", INT, 2, "int16", True),
        DType("int8", INT, 1, "int8", True),
        DType("uint64", UINT, 8, "uint64", True),
        DType("uint32", UINT, 4, "uint32", True),
        DType("uint16", UINT, 2, "uint16", True),
        DType("uint8", UINT, 1, "uint8", True),
        DType("bool", BOOL, 1, "bool", True),
    )
}

CLASSES: dict[str, tuple[str, ...]] = {
    "integer": ("int64", "int32"),
    "float8": ("float8_e4m3fn", "float8_e5m2"),
}
"""Sets of dtypes of which a parameter takes one, chosen when its op is compiled."""
