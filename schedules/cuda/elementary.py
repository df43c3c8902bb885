"""Elementary functions on NVIDIA GPUs: CUDA's own accurate ones (one or two ulp), never the approximate intrinsics."""

from __future__ import annotations

from tvm import tirx

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
