"""How far elementary functions and activations of compiled libraries are off, in every type.

The result for each argument is compared with the function of that very argument in float64 (torch's; tests compare it
with mpmath). Of float16 and bfloat16 all 65536 arguments are taken, of float32 as many as one asks for: patterns of
bits at equal distances, once of all and once of those with 2^-12 ≤ |x| < 2^8, the edges of the ranges, and small
integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import opsgen as og

from ..dsl import Op

Array = NDArray[Any]
DTYPES = ("float32", "float16", "bfloat16")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Format:
    """Of a type: bits of the mantissa with the hidden one, the least exponent of a normal number, the largest one."""

    bits: int
    least: int
    largest: float


FORMATS = {
    "float32": Format(24, -126, 3.4028234663852886e38),
    "float16": Format(11, -14, 65504.0),
    "bfloat16": Format(8, -126, 3.3895313892515355e38),
}


@dataclass(frozen=True)
class Worst:
    """The largest errors over all arguments at which both are finite.

    Attributes:
        ulp: in units of the last place of the right result, of the type of the result.
        at: the argument at which that is.
        absolute: in the function's own units.
        relative: where the right result is a normal number of the type.
        wrong: how many results are infinite or NaN where the right one is not, or the other way round.
        count: of arguments.
    """

    ulp: float
    at: float
    absolute: float
    relative: float
    wrong: int
    count: int


@dataclass(frozen=True)
class Variant:
    """A function in one of its forms: an op, its attributes, and what it is in float64, of a torch tensor."""

    function: str
    form: str
    op: Op
    attributes: dict[str, Any]
    exact: Callable[[Any], Any]

    @property
    def name(self) -> str:
        return f"{self.function}, {self.form}" if self.form else self.function


def _op(name: str) -> Op:
    function = getattr(og, name)

    def only(x: Any) -> Any:
        """y = f(x)"""
        return function(x)

    only.__annotations__ = {"x": og.Tensor.__class_getitem__("..."), "return": og.Tensor}
    return og.op(name=f"only_{name}")(only)


def _silu(x: Any) -> Any:
    """Not x / (1 + e^-x), which is 0 where e^-x is infinite, and x e^x is not."""
    import torch

    return torch.where(x > 0, x / (1 + torch.exp(-x)), x * torch.exp(x) / (1 + torch.exp(x)))


def _gelu(x: Any) -> Any:
    import torch

    return x * torch.special.erfc(-x * math.sqrt(0.5)) / 2


def _gelu_tanh(x: Any) -> Any:
    """x σ(2u), which is x/2 (1 + tanh u)."""
    import torch

    u = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return torch.where(u > 0, x / (1 + torch.exp(-u)), x * torch.exp(u) / (1 + torch.exp(u)))


def variants() -> list[Variant]:
    """Every function of the language that rounds, and the activations with forms of their own."""
    import torch

    from ..ops import gelu, silu

    names = ("exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos")
    found = [Variant(name, "", _op(name), {}, getattr(torch, name)) for name in names]
    found.append(Variant("gelu", "none", gelu, {"approximate": "none"}, _gelu))
    found.append(Variant("gelu", "tanh", gelu, {"approximate": "tanh"}, _gelu_tanh))
    found.append(Variant("silu", "", silu, {}, _silu))
    return found


def library_items() -> list[Any]:
    """What a library has to hold for `worst`."""
    return [og.variant(v.op, **v.attributes) for v in variants()]


def halves(dtype: str) -> Array:
    """All numbers of float16 or bfloat16 as float32."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    if dtype == "bfloat16":
        return (bits << 16).view(np.float32)
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


def singles(count: int) -> Iterator[Array]:
    """About ``count`` float32, in pieces; see the module."""
    yield np.concatenate([_edges(), np.arange(-4096, 4097, dtype=np.float32) / 8])
    low, high = (int(np.float32(v).view(np.uint32)) for v in (2.0**-12, 2.0**8))
    for first, last in ((0, 1 << 32), (low, high), (low | 1 << 31, high | 1 << 31)):
        each = max(1, (last - first) * (2 if last - first == 1 << 32 else 4) // max(count, 1))
        for start in range(first, last, each * _CHUNK):
            stop = min(start + each * _CHUNK, last)
            yield np.arange(start, stop, each, dtype=np.uint64).astype(np.uint32).view(np.float32)


def _edges() -> Array:
    """Numbers next to where ranges end, and the signs, infinities and NaN."""
    with np.errstate(over="ignore", divide="ignore"):
        powers = np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32)
    limits = np.array(
        [88.72284, 87.33655, 103.97208, 128, 126, 149, 10, 3.95, 9, 13, np.pi, np.pi / 2, 0.5, 1, 3], np.float32
    )
    near = [np.nextafter(v, np.float32(s * np.inf)) for v in (powers, limits) for s in (-1, 1)]
    found = np.concatenate([powers, limits, *near, np.array([0, np.inf, np.nan, 3.4028235e38], np.float32)])
    return np.concatenate([found, -found])


def worst(
    variant: Variant, dtype: str, compute: Callable[[Array], Array], count: int = 1 << 21, device: str = "cpu"
) -> Worst:
    """The largest errors of ``compute``, which takes float32 numbers that ``dtype`` has and gives results as float32.

    Args:
        count: about how many arguments of float32 are taken.
        device: of torch, where the function is computed in float64.
    """
    found = Worst(0.0, math.nan, 0.0, 0.0, 0, 0)
    for x in singles(count) if dtype == "float32" else [halves(dtype)]:
        found = _larger(found, _compare(variant, dtype, x, compute(x), device))
    return found


def _larger(a: Worst, b: Worst) -> Worst:
    first = a if a.ulp >= b.ulp else b
    return Worst(
        first.ulp, first.at, max(a.absolute, b.absolute), max(a.relative, b.relative), a.wrong + b.wrong,
        a.count + b.count,
    )  # fmt: skip


def _compare(variant: Variant, dtype: str, x: Array, y: Array, device: str) -> Worst:
    import torch

    of = FORMATS[dtype]
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = torch.from_numpy(x.astype(np.float64)).to(device)
    right = variant.exact(wide).cpu().numpy()
    with np.errstate(all="ignore"):
        got = y.astype(np.float64)
        # What rounds to infinity is infinite, and next to the largest number either is right.
        limit = of.largest * (1 + 2.0 ** -(of.bits + 1))
        over = np.abs(right) >= limit
        exponent = np.maximum(np.frexp(right)[1] - 1, of.least)
        unit = np.ldexp(1.0, exponent - (of.bits - 1))
        finite = np.isfinite(right) & ~over & np.isfinite(got)
        off = np.where(finite, np.abs(got - right), 0.0)
        near = (np.abs(right) > of.largest) & np.isinf(got) | over & (np.abs(got) == of.largest)
        same = np.where(
            np.isnan(right), np.isnan(got), np.where(over, got == np.sign(right) * np.inf, np.isfinite(got))
        )
        ulp = np.nan_to_num(off / unit, nan=0.0)
        normal = finite & (np.abs(right) >= 2.0**of.least)
        relative = np.where(normal, off / np.where(normal, np.abs(right), 1.0), 0.0)
    place = int(np.argmax(ulp)) if len(ulp) else 0
    wrong = int((~(same | near)).sum())
    return Worst(float(ulp[place]), float(x[place]), float(off.max()), float(relative.max()), wrong, len(x))


def of_numpy(lib: Any, variant: Variant, dtype: str) -> Callable[[Array], Array]:
    """The function in a library for CPUs."""
    import ml_dtypes

    kind = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]

    def compute(x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(lib[variant.op.name](x.astype(kind), **variant.attributes)).astype(np.float32)

    return compute


def of_torch(lib: Any, variant: Variant, dtype: str, device: str) -> Callable[[Array], Array]:
    """The function in a library for a device of torch."""
    import torch

    def compute(x: Array) -> Array:
        given = torch.from_numpy(x).to(device).to(getattr(torch, dtype))
        return np.asarray(lib[variant.op.name](given, **variant.attributes).float().cpu().numpy())

    return compute
