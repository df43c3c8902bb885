"""opsgen: Transformer operators, generated. Describe an op once, compile it for a device, load the library, call it.

    import opsgen as og

    @og.op
    def rms_norm(x: og.Tensor["...", "hidden"], weight: og.Tensor["hidden"], *, eps: float = 1e-6):
        return x * og.rsqrt(og.mean(x * x, over="hidden") + eps) * weight

    lib = og.compile([rms_norm], target="x86")
    y = lib.rms_norm(x, w, eps=1e-5)

Names are loaded when they are first used: importing opsgen loads no TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .compiler.compile import compile
    from .compiler.inspect import inspect
    from .compiler.problem import Variant, variant
    from .dsl import (
        Graph,
        Mut,
        Op,
        Results,
        Tensor,
        bfloat16,
        bool_,
        float8,
        float8_e4m3fn,
        float8_e5m2,
        float16,
        float32,
        float64,
        floating,
        int8,
        int16,
        int32,
        int64,
        integer,
        op,
        results,
        uint8,
    )
    from .dsl.bits import bitcast, wide_product
    from .dsl.functions import (
        abs,
        argmax,
        argmin,
        at,
        cast,
        ceil,
        compute,
        concat,
        cos,
        dot,
        erf,
        exp,
        exp2,
        floor,
        index,
        isnan,
        log,
        log1p,
        logical_not,
        logsumexp,
        max,
        mean,
        merge,
        min,
        prod,
        rename,
        require,
        require_lengths,
        require_offsets,
        require_sorted,
        round,
        rsqrt,
        segment,
        sigmoid,
        sin,
        size,
        softmax,
        split,
        sqrt,
        sum,
        tanh,
        transpose,
        where,
    )
    from .dsl.random import random_bits, random_uniform
    from .dsl.scan import cummax, cummin, cumprod, cumsum
    from .dsl.scatter import scatter_add, scatter_max, scatter_min, scatter_set
    from .errors import OpsgenError, OpsgenWarning
    from .runtime import Library, Packed, load

_HOMES = {
    "opsgen.compiler": ("Variant", "compile", "inspect", "variant"),
    "opsgen.runtime": ("Library", "Packed", "load"),
    "opsgen.errors": ("OpsgenError", "OpsgenWarning"),
    "opsgen.dsl": (
        "Graph", "Mut", "Op", "Results", "Tensor", "bfloat16", "bool_", "float16", "float32", "float64",
        "float8", "float8_e4m3fn", "float8_e5m2", "floating", "int16", "int32", "int64", "int8",
        "integer", "op", "results", "uint8",
    ),
    "opsgen.dsl.functions": (
        "abs", "argmax", "argmin", "at", "cast", "ceil", "compute", "concat", "cos", "dot", "erf", "exp", "exp2",
        "floor", "index", "isnan",
        "log", "log1p", "logical_not", "logsumexp", "max", "mean", "merge", "min", "prod", "rename", "require",
        "require_lengths", "require_offsets", "require_sorted", "round", "rsqrt", "segment", "sigmoid", "sin",
        "size", "softmax", "split", "sqrt", "sum", "tanh", "transpose", "where",
    ),
    "opsgen.dsl.bits": ("bitcast", "wide_product"),
    "opsgen.dsl.random": ("random_bits", "random_uniform"),
    "opsgen.dsl.scan": ("cummax", "cummin", "cumprod", "cumsum"),
    "opsgen.dsl.scatter": ("scatter_add", "scatter_max", "scatter_min", "scatter_set"),
}  # fmt: skip
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    home = _WHERE.get(name)
    if home is None:
        if name in ("ops", "runtime", "dsl", "errors", "analysis", "compiler", "lowering", "schedules", "targets"):
            return importlib.import_module(f"opsgen.{name}")
        raise AttributeError(f"module 'opsgen' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
