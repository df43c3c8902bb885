"""TIR functions to an x86 object file and its assembly, through TVM's LLVM."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx import compilation_pipeline

from opsgen.errors import error

from . import ARCHS, instructions

_PIPELINE = "opsgen_x86"


@lru_cache(maxsize=1)
def _register_pipeline() -> str:
    """Kernels arrive as plain loops over flat buffers and need little lowering.

    No simplifier: TVM's computes with real numbers (x - x is 0, x != x is false), which is wrong for NaN and
    infinities.
    """
    passes = tirx.transform

    @tvm.transform.module_pass(opt_level=0)
    def pipeline(module: Any, _: Any) -> Any:
        return tvm.ir.transform.Sequential(
            [
                passes.VectorizeLoop(True),
                passes.UnrollLoop(),
                passes.VerifyMemory(),
                passes.AnnotateEntryFunc(),
                passes.SplitHostDevice(),
                passes.MakePackedAPI(),
            ]
        )(module)

    compilation_pipeline.register_tir_pipeline(
        _PIPELINE,
        lambda: (pipeline, compilation_pipeline.finalize_host_passes, compilation_pipeline.finalize_device_passes),
    )
    return _PIPELINE


def build(functions: dict[str, Any], arch: str) -> Any:
    """The compiled module of the kernels (by exported name).

    Raises:
        CompileError: E3005, TVM or LLVM refuses them.
    """
    level = ARCHS[arch]
    instructions.register()
    first, *_ = functions
    functions = {**functions, first: _with_instructions(functions[first], arch)}
    options: dict[str, Any] = {"kind": "llvm", "mcpu": level.mcpu, "mtriple": "x86_64-linux-gnu"}
    if level.mattr:
        options["mattr"] = list(level.mattr)
    try:
        return tvm.tirx.build(tvm.IRModule(functions), tvm.target.Target(options), pipeline=_register_pipeline())
    except Exception as failure:  # TVM raises many classes, some of them plain RuntimeError
        if os.environ.get("OPSGEN_TRACEBACK"):
            raise
        lines = str(failure).strip().splitlines()
        raise error(
            "E3005", tool="TVM", status="an exception", found=lines[-1] if lines else type(failure).__name__
        ) from failure


def _with_instructions(function: Any, arch: str) -> Any:
    """The function, taking the LLVM IR of our instructions into the module with it."""
    source = tvm.ir.StringImm(instructions.functions(arch))
    body = tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", source, function.body)
    return function.with_body(body)


def write_object(module: Any, path: str) -> None:
    """The module as an object file."""
    module.write_to_file(path)


def assembly(module: Any) -> str:
    return str(module.inspect_source("asm"))
