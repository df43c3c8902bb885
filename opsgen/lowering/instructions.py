"""Instructions that TIR has no name for, as TIR operators of our own.

They may stand in vectorised loops. Code generation for a target says what each becomes (`targets/<kind>/instructions`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr

PREFIX = "opsgen."

ARGUMENTS = {
    "maximum": 2,  # the larger of two floats; NaN if one is NaN
    "minimum": 2,
    "scale_by_power": 2,  # x * 2^floor(n), rounded once; n is a float of any size
    "reciprocal_estimate": 1,  # 1/x with a relative error below 2^-14
    **{f"erf_coefficient{i}": 1 for i in range(6)},  # of the erf's polynomial in the interval whose number is in the
    # low four bits of an int32
}


@lru_cache(maxsize=1)
def _operators() -> dict[str, Any]:
    register = tvm_ffi.get_global_func("ir.RegisterOp")
    found = {}
    for name, count in ARGUMENTS.items():
        register(PREFIX + name, "")
        found[name] = operator = tvm.ir.Op.get(PREFIX + name)
        operator.set_num_inputs(count)
        operator.set_attr("TVectorizable", True)
        operator.set_attr("TScriptPrinterName", PREFIX + name)  # without it, printing IR warns
        operator.set_attr("TCallEffectKind", int(tirx.CallEffectKind.Pure.value))
    return found


def operator(name: str) -> Any:
    """The TIR operator of an instruction."""
    return _operators()[name]


def call(name: str, dtype: str, *args: Expr) -> Expr:
    """The instruction's result, of type ``dtype``."""
    return tvm.ir.Call(operator(name), list(args), ret_ty=tvm.ir.PrimType(dtype))
