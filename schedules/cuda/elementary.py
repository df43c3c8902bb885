"""Elementary functions on NVIDIA GPUs: CUDA's own accurate ones (one or two ulp), never the approximate intrinsics; and
the conversions of 8-bit floats."""

from __future__ import annotations

from tvm import tirx

from opsgen.lowering.narrow_floats import NARROW as AS_BITS
from opsgen.lowering.narrow_floats import Narrow
from opsgen.lowering.statements import Expr
from opsgen.lowering.vector_math import Function

_NAMES = {
    "exp": "exp", "exp2": "exp2", "log": "log", "log1p": "log1p", "tanh": "tanh", "erf": "erf", "sin": "sin",
    "cos": "cos", "sqrt": "sqrt",
}  # fmt: skip
_OURS = ("sigmoid", "rsqrt")  # in templates/cuda/prelude.cuh


def _call(dtype: str, name: str) -> Function:
    return lambda x, bind: tirx.call_pure_extern(dtype, name, x)


def rounded(op: str, x: Expr) -> Expr:
    """floor, ceil or round, the last half to even."""
    dtype = x.ty.dtype
    name = {"floor": "floor", "ceil": "ceil", "round": "nearbyint"}[op]
    return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", x)


def power(a: Expr, b: Expr) -> Expr:
    """a^b."""
    dtype = a.ty.dtype
    return tirx.call_pure_extern(dtype, "pow" if dtype == "float64" else "powf", a, b)


FLOAT32: dict[str, Function] = {
    **{op: _call("float32", f"{name}f") for op, name in _NAMES.items()},
    **{op: _call("float32", f"opsgen_{op}") for op in _OURS},
}
FLOAT64: dict[str, Function] = {
    **{op: _call("float64", name) for op, name in _NAMES.items()},
    **{op: _call("float64", f"opsgen_{op}") for op in _OURS},
}


def _float8(name: str) -> Narrow:
    """By functions of templates/cuda/float8.cuh: there are instructions from sm_89 on."""
    return Narrow(
        "uint8",
        lambda bits: tirx.call_pure_extern("float32", f"opsgen_from_{name}", bits),
        lambda x, bind: tirx.call_pure_extern("uint8", f"opsgen_to_{name}", x),
    )


_BFLOAT16 = Narrow(
    AS_BITS["bfloat16"].storage,
    AS_BITS["bfloat16"].load,
    lambda x, bind: tirx.call_pure_extern("uint16", "opsgen_bfloat16", x),
)

NARROW: dict[str, Narrow] = {
    **AS_BITS,
    "bfloat16": _BFLOAT16,
    **{name: _float8(name) for name in ("float8_e4m3fn", "float8_e5m2")},
}
