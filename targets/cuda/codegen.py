"""TIR functions to CUDA source and cubins.

Kernels are device functions already, with their threads bound and their parameters in the order of the launch, and of
operators they hold calls of the functions in templates/cuda/*.cuh. So they go to TVM's code generator as they
are. No pass runs, and above all no simplifier: TVM's computes with real numbers (x - x is 0, x != x is false), which is
wrong for NaN and infinities, and takes exponential time over long chains of `Select`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import resources
from typing import Any, TypeVar

import tvm
import tvm_ffi

from opsgen.errors import error

from . import ARCHS, asynchronous, toolchain

_DEVICE_KERNEL = 2  # tvm::CallingConv::kDeviceKernelLaunch

Made = TypeVar("Made")

BLOCKS = "opsgen.blocks_per_sm"
"""The attribute of a function that says how many of its blocks a multiprocessor has to hold; 1 without it."""

UNIT = 12
"""Kernels of one translation unit at most: a few, for nvcc's own start takes as long as some kernels do."""


@lru_cache(maxsize=1)
def prelude() -> str:
    """The device functions that kernels may call, as CUDA source that includes no header of CUDA's."""
    folder = resources.files("opsgen") / "templates" / "cuda"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in ("prelude.cuh", "float8.cuh"))


def kernel_source(name: str, function: Any, arch: str) -> str:
    """One kernel in CUDA, without the prelude.

    Raises:
        CompileError: E3005, TVM refuses it.
    """
    target = tvm.target.Target({"kind": "cuda", "arch": f"sm_{ARCHS[arch].number}"})
    device = (
        function.with_attr("global_symbol", name)
        .with_attr("calling_conv", _DEVICE_KERNEL)
        .with_attr("tirx.is_global_func", True)
        .with_attr("target", target)
    )
    try:
        module = tvm.IRModule({name: device})
        if asynchronous.is_script(function):
            module = asynchronous.lowering()(module)
        text = str(tvm_ffi.get_global_func("target.build.cuda")(module, target).inspect_source())
    except Exception as failure:  # TVM raises many classes, some of them plain RuntimeError
        if os.environ.get("OPSGEN_TRACEBACK"):
            raise
        lines = str(failure).strip().splitlines()
        found = lines[-1] if lines else type(failure).__name__
        raise error("E3005", tool="TVM", status="an exception", found=found) from failure
    if asynchronous.is_script(function):
        return asynchronous.kernel_source(name, text)
    # TVM's own preamble includes CUDA's headers, which NVRTC alone has not, and declares the kernel first.
    text = text[text.rindex('extern "C" __global__') :].rstrip() + "\n"
    text = _bits_by_value(text)
    # Without a number of blocks, ptxas (13.0) spills to reach the most that fit on a multiprocessor.
    blocks = int(function.attrs.get(BLOCKS, 1))
    return re.sub(r"__launch_bounds__\((\d+)\)", rf"__launch_bounds__(\1, {blocks})", text, count=1)


_CAST = re.compile(r"\(\*\((\w+) \*\)\(&\(")


def _bits_by_value(text: str) -> str:
    """Bits taken as another type by a function: TVM 0.27 takes the address of what it casts, literals too."""
    while found := _CAST.search(text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        inner = text[found.end() : end - 1]
        text = f"{text[: found.start()]}opsgen_as<{found[1]}>({inner}){text[end + 2 :]}"
    return text


def sources(functions: Mapping[str, Any], arch: str) -> dict[str, str]:
    """Each kernel in CUDA, by name."""
    return {name: kernel_source(name, function, arch) for name, function in functions.items()}


def units(kernels: Mapping[str, str]) -> list[tuple[tuple[str, ...], str]]:
    """Translation units: the names of the kernels of each, and its source."""
    names = list(kernels)
    cut = [tuple(names[i : i + UNIT]) for i in range(0, len(names), UNIT)]
    return [(group, "\n".join([prelude(), *(kernels[n] for n in group)])) for group in cut]


def compile_units(
    sources: Sequence[str], arch: str, using: toolchain.Compiler | None = None
) -> tuple[list[bytes], dict[str, toolchain.Usage]]:
    """The cubin of each unit, and what each kernel uses.

    Raises:
        TargetError, CompileError: see `toolchain.compile_source`.
    """
    chosen = using or toolchain.compiler()
    done = each(lambda source: toolchain.compile_source(source, ARCHS[arch], chosen), sources)
    used: dict[str, toolchain.Usage] = {}
    for _, found in done:
        used |= found
    return [cubin for cubin, _ in done], used


def each(
    make: Callable[[str], Made], sources: Sequence[str], told: Callable[[int], None] = lambda count: None
) -> list[Made]:
    """What is made of each source, as many at a time as there are CPUs; ``told`` how many are done."""
    made = []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for one in pool.map(make, sources):
            made.append(one)
            told(len(made))
    return made
