"""TIRx functions to CUDA source: kernels that drive TMA and wgmma.

Unlike other kernels they need passes of TVM, which resolve threads, shared memory and barriers, and come with device
functions of their own. No simplifier runs here either.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

SCRIPT = "opsgen.script"
"""The attribute of functions that are lowered here."""

_PREAMBLE_END = "#define ushort unsigned short\n#endif\n"


def is_script(function: Any) -> bool:
    """Whether a function is lowered here."""
    return function.attrs is not None and SCRIPT in function.attrs


def lowering() -> Any:
    """The passes: of TVM's pipeline "tirx" what has to do with code for the device, without `StmtSimplify`."""
    passes = tirx.transform
    return tvm.ir.transform.Sequential(
        [
            passes.LowerTIRx(),
            tvm.s_tir.transform.UnifyThreadBinding(),
            passes.LowerTIRxOpaque(),
            passes.FlattenBuffer(),
            passes.NarrowDataType(32),
            passes.UnrollLoop(),
            passes.VerifyMemory(),
            passes.LowerWarpMemory(),
            passes.LowerIntrin(),
        ]
    )


def kernel_source(name: str, text: str) -> str:
    """A kernel and its device functions, in a namespace: other kernels have some of the same."""
    start = text.index(_PREAMBLE_END) + len(_PREAMBLE_END)
    return f"namespace opsgen_{name} {{\n{text[start:].strip()}\n}}\n"
