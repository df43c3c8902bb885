"""Device functions for what TIRx of TVM 0.27 has no call for, or a slower one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T
from tvm.script.parser._core import parse, utils
from tvm.script.parser.core.parser import ScriptMacro

from opsgen.lowering.statements import Expr


def device_function(name: str, result: str, params: str, body: str) -> str:
    return f"__forceinline__ __device__ {result} {name}({params}) {{ {body} }}\n"


_PREFETCH_MAP = device_function(
    "og_prefetch_map",
    "void",
    "unsigned long long map",
    'asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");',
)
# Without .release.cluster, which ptxas turns into MEMBAR.ALL.GPU: a third of the speed (nvcc 13.0).
_ARRIVE_AT = device_function(
    "og_arrive_at",
    "void",
    "void* barrier, int rank",
    'asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }" '
    ':: "r"((uint32_t)__cvta_generic_to_shared(barrier)), "r"(rank) : "memory");',
)
# Relaxed: the fence after the barriers' initialisation orders what matters.
_CLUSTER_SYNC = device_function(
    "og_cluster_sync", "void", "", 'asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");'
)
_FENCE_INIT = device_function(
    "og_fence_init", "void", "", 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");'
)
_GRID = device_function("og_grid", "int", "", "return gridDim.x;")


# Volatile, and so in its place: ptxas would load for all boxes at once, and spill.
_LOAD_WORD = device_function(
    "og_load_word",
    "uint32_t",
    "const void* p",
    'uint32_t y; asm volatile("ld.global.b32 %0, [%1];" : "=r"(y) : "l"(p)); return y;',
)


def _parser_around(macro: Any) -> Any:
    """The parser that calls an inline function: a global variable of a frame around the call."""
    frame = sys._getframe()
    while (found := frame.f_globals.get(ScriptMacro.parser_object_name)) is None:
        assert frame.f_back is not None
        frame = frame.f_back
    return found


def script(function: Callable[..., None]) -> Any:
    """Reads a TIRx script, as T.prim_func does, but in less time.

    TVM 0.27 has `inspect` look for the source lines of all frames, once for the script and again at each call of an
    inline function: more than half of the time, and seconds in a deep stack. Remove this when it does not.

    Variables of the functions around it are its parameters to be: a script need not declare what it uses.
    """
    ScriptMacro._find_parser_def = _parser_around
    return parse(function, utils.inspect_function_capture(function), check_well_formed=False)


script.dispatch_token = "tirx"  # type: ignore[attr-defined]


def load_word(address: Expr) -> Any:
    """The 32 bits at an address of device memory."""
    return T.cuda.func_call("og_load_word", address, source_code=_LOAD_WORD, return_type="uint32")


def prefetch_map(tensor_map: Expr) -> Any:
    """Brings a tensor map into the cache that TMA reads it through."""
    return T.cuda.func_call("og_prefetch_map", T.address_of(tensor_map), source_code=_PREFETCH_MAP)


def arrive_at(barrier: Expr, rank: Expr) -> Any:
    """Arrives at a barrier of another block of the cluster."""
    return T.cuda.func_call("og_arrive_at", barrier, rank, source_code=_ARRIVE_AT)


def cluster_sync() -> Any:
    """Waits for all threads of the cluster."""
    return T.cuda.func_call("og_cluster_sync", source_code=_CLUSTER_SYNC)


def fence_init() -> Any:
    """Shows initialised barriers to the cluster."""
    return T.cuda.func_call("og_fence_init", source_code=_FENCE_INIT)


def grid() -> Any:
    """The number of blocks."""
    return T.cuda.func_call("og_grid", source_code=_GRID, return_type="int32")


def uniform(value: Expr) -> Any:
    """A value that all threads of a warp share, known as such to the compiler."""
    return T.cuda.func_call("__shfl_sync", T.uint32(0xFFFFFFFF), value, 0, source_code="", return_type="int32")


def hold(buffer: Any, count: int) -> Any:
    """Keeps the compiler from moving what computes the registers of a buffer below this place, and uses above it."""
    kind, letter = ("float", "f") if buffer.dtype == "float32" else ("uint32_t", "r")
    name = f"og_hold_{letter}{count}"
    registers = ", ".join(f'"+{letter}"(p[{i}])' for i in range(count))
    source = device_function(name, "void", f"{kind}* p", f'asm volatile("" : {registers} :: "memory");')
    return T.cuda.func_call(name, T.address_of(buffer[0]), source_code=source)


def pack(low: Expr, high: Expr, dtype: str) -> Any:
    """Two floats, rounded to nearest even, in one register."""
    short = {"bfloat16": "bf16", "float16": "f16"}[dtype]
    body = f'uint32_t y; asm("cvt.rn.{short}x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;'
    source = device_function(f"og_pack_{short}", "uint32_t", "float low, float high", body)
    return T.cuda.func_call(f"og_pack_{short}", low, high, source_code=source, return_type="uint32")
