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
# With memory: what one block wrote the others read.
_CLUSTER_BARRIER = device_function(
    "og_cluster_barrier",
    "void",
    "",
    'asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");',
)
_CLUSTER_RANK = device_function(
    "og_cluster_rank", "int", "", 'int y; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(y)); return y;'
)
_CLUSTER_SIZE = device_function(
    "og_cluster_size", "int", "", 'int y; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(y)); return y;'
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


_LOAD_PAIR = device_function(
    "og_load_pair",
    "unsigned long long",
    "const void* p",
    'unsigned long long y; asm volatile("ld.global.b64 %0, [%1];" : "=l"(y) : "l"(p)); return y;',
)
_STORE_PAIR = device_function(
    "og_store_pair",
    "void",
    "void* p, uint32_t a, uint32_t b",
    'asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(a), "r"(b) '
    ': "memory");',
)
_STORE_WORD = device_function(
    "og_store_word",
    "void",
    "void* p, uint32_t a",
    'asm volatile("st.global.b32 [%0], %1;" :: "l"(p), "r"(a) : "memory");',
)
_STORE_WORDS = device_function(
    "og_store_words",
    "void",
    "void* p, uint32_t a, uint32_t b",
    'asm volatile("st.global.v2.b32 [%0], {%1, %2};" :: "l"(p), "r"(a), "r"(b) : "memory");',
)
_LOAD_MATRICES = device_function(
    "og_load_matrices",
    "void",
    "uint32_t* y, const void* p",
    'asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" '
    ': "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"((uint32_t)__cvta_generic_to_shared(p)) : "memory");',
)
_STORE_FOUR = device_function(
    "og_store_four",
    "void",
    "void* p, const float* x",
    'asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"((uint32_t)__cvta_generic_to_shared(p)), '
    '"f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");',
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


def load_pair(address: Expr) -> Any:
    """The 64 bits at an address of device memory."""
    return T.cuda.func_call("og_load_pair", address, source_code=_LOAD_PAIR, return_type="uint64")


def prefetch_map(tensor_map: Expr) -> Any:
    """Brings a tensor map into the cache that TMA reads it through."""
    return T.cuda.func_call("og_prefetch_map", T.address_of(tensor_map), source_code=_PREFETCH_MAP)


def arrive_at(barrier: Expr, rank: Expr) -> Any:
    """Arrives at a barrier of another block of the cluster."""
    return T.cuda.func_call("og_arrive_at", barrier, rank, source_code=_ARRIVE_AT)


def cluster_sync() -> Any:
    """Waits for all threads of the cluster."""
    return T.cuda.func_call("og_cluster_sync", source_code=_CLUSTER_SYNC)


def cluster_barrier() -> Any:
    """Waits for all threads of the cluster, and shows each what the others wrote before."""
    return T.cuda.func_call("og_cluster_barrier", source_code=_CLUSTER_BARRIER)


def cluster_rank() -> Any:
    """The block's number in its cluster."""
    return T.cuda.func_call("og_cluster_rank", source_code=_CLUSTER_RANK, return_type="int32")


def cluster_size() -> Any:
    """The blocks of a cluster."""
    return T.cuda.func_call("og_cluster_size", source_code=_CLUSTER_SIZE, return_type="int32")


def store_pair(address: Expr, first: Expr, second: Expr) -> Any:
    """Stores two registers side by side in shared memory."""
    return T.cuda.func_call("og_store_pair", address, first, second, source_code=_STORE_PAIR)


def store_word(address: Expr, word: Expr) -> Any:
    """Stores a register in device memory."""
    return T.cuda.func_call("og_store_word", address, word, source_code=_STORE_WORD)


def store_words(address: Expr, first: Expr, second: Expr) -> Any:
    """Stores two registers side by side in device memory."""
    return T.cuda.func_call("og_store_words", address, first, second, source_code=_STORE_WORDS)


def load_matrices(words: Any, at: int, address: Expr) -> Any:
    """Four 8×8 matrices of halves from shared memory into four registers of a buffer, as stmatrix stores them."""
    return T.cuda.func_call("og_load_matrices", T.address_of(words[at]), address, source_code=_LOAD_MATRICES)


def store_four(address: Expr, values: Expr) -> Any:
    """Stores four floats, from the address of the first, in shared memory."""
    return T.cuda.func_call("og_store_four", address, values, source_code=_STORE_FOUR)


def add_remote(sums: Any, count: int, address: Expr, step: int, rank: Expr) -> Any:
    """Adds fours of floats, ``step`` bytes apart in the shared memory of a block of the cluster, to a buffer: first all
    loads, so that they are in flight together.
    """
    fours = count // 4
    name = f"og_add_remote{count}"
    body = (
        f"float v[{count}]; uint32_t a; "
        'asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) '
        ': "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(rank)); '
        f'_Pragma("unroll") for (int i = 0; i < {fours}; ++i) '
        'asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" '
        ': "=f"(v[4 * i]), "=f"(v[4 * i + 1]), "=f"(v[4 * i + 2]), "=f"(v[4 * i + 3]) '
        f': "r"(a + i * {step}) : "memory"); '
        f'_Pragma("unroll") for (int i = 0; i < {count}; ++i) s[i] += v[i];'
    )
    source = device_function(name, "void", "float* s, void* p, int rank", body)
    return T.cuda.func_call(name, T.address_of(sums[0]), address, rank, source_code=source)


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
