"""Element types, and the rules that give an expression its type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DType:
    """An element type.

    ``kind`` is one of ``"float"``, ``"int"``, ``"uint"``, ``"bool"``; ``bits`` is the width in storage.
    """

    name: str
    kind: str
    bits: int

    def __repr__(self) -> str:
        return "og.bool_" if self.kind == "bool" else f"og.{self.name}"

    @property
    def bytes(self) -> int:
        """The size of an element in storage."""
        return max(1, self.bits // 8)


@dataclass(frozen=True)
class DTypeClass:
    """A set of element types that a parameter accepts; bound to one of them when the op is compiled."""

    name: str
    members: tuple[DType, ...]

    def __repr__(self) -> str:
        return f"og.{self.name}"


float64 = DType("float64", "float", 64)
float32 = DType("float32", "float", 32)
float16 = DType("float16", "float", 16)
bfloat16 = DType("bfloat16", "float", 16)
float8_e4m3fn = DType("float8_e4m3fn", "float", 8)
float8_e5m2 = DType("float8_e5m2", "float", 8)
int64 = DType("int64", "int", 64)
int32 = DType("int32", "int", 32)
int16 = DType("int16", "int", 16)
int8 = DType("int8", "int", 8)
uint8 = DType("uint8", "uint", 8)
bool_ = DType("bool", "bool", 8)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        float64,
        float32,
        float16,
        bfloat16,
        float8_e4m3fn,
        float8_e5m2,
        int64,
        int32,
        int16,
        int8,
        uint8,
        bool_,
    )
}

floating = DTypeClass("floating", (float32, float16, bfloat16, float64))
float8 = DTypeClass("float8", (float8_e4m3fn, float8_e5m2))
integer = DTypeClass("integer", (int64, int32))

LARGEST: dict[str, float] = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "int64": 2**63 - 1,
    "int32": 2**31 - 1,
    "int16": 2**15 - 1,
    "int8": 127,
    "uint8": 255,
}


def as_dtype(value: Any) -> DType | None:
    """An element type by its name, as a numpy dtype or scalar class (``np.float32``), or as it is; None for others."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        return DTYPES.get(value)
    if isinstance(value, type):
        return DTYPES.get(value.__name__.rstrip("_"))  # numpy 1 calls its class bool_
    name = getattr(value, "name", None)
    return DTYPES.get(name) if isinstance(name, str) and getattr(value, "isnative", False) else None


def holds(dtype: DType, value: float) -> bool:
    """Whether ``dtype`` has the magnitude of a number. Infinities and NaN are meant, and every number has a truth
    value.
    """
    if dtype.kind == "bool" or not math.isfinite(value):
        return True
    lowest = {"float": -LARGEST[dtype.name], "int": -LARGEST[dtype.name] - 1, "uint": 0}[dtype.kind]
    return lowest <= value <= LARGEST[dtype.name]


def compute_type(dtype: DType) -> DType:
    """The type in which arithmetic on ``dtype`` is done: half types and float8 compute in float32 and round once, when
    stored."""
    if dtype.kind == "float" and dtype.bits < 32:
        return float32
    return dtype


def _rank(dtype: DType) -> tuple[int, int]:
    return ({"bool": 0, "uint": 1, "int": 1, "float": 2}[dtype.kind], dtype.bits)


def promote(a: DType, b: DType) -> DType:
    """The common type of two operands: float over int over bool, then the wider one.

    float16 with bfloat16 gives float32, which holds both, and so do the two kinds of float8; uint8 with int8 gives
    int16.
    """
    if a == b:
        return a
    if a.kind == b.kind == "float" and a.bits == b.bits:
        return float32
    if {a.kind, b.kind} == {"uint", "int"}:
        signed, unsigned = (a, b) if a.kind == "int" else (b, a)
        return signed if signed.bits > unsigned.bits else int16
    return max(a, b, key=_rank)
