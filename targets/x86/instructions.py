"""What the operators of `opsgen.lowering.instructions` become on x86: functions in LLVM IR, always inlined.

TVM takes LLVM IR along (`pragma_import_llvm`) and links it before it optimises, so that nothing is left of the calls. A
function exists for every vector length that kernels use; those of 512-bit instructions are made of one for a register,
wider vectors cut into registers and narrower ones padded.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import tirx

from opsgen.lowering import instructions

from . import scans

LENGTHS = (1, 2, 4, 8, 16, 32, 64)
_LLVM = {"float32": "float", "float64": "double", "int32": "i32"}

_ERF_INTERVALS = 16
ERF_STEP = 0.25350001454353333
"""Between the midpoints of the intervals (a float32): 15.5 of them reach where the erf rounds to 1."""

# erf(i * ERF_STEP + f) = sum of c[k][i] f^k, |f| <= ERF_STEP / 2. Weighted minimax in each interval (relative error
# 2.1e-8), the first with odd powers alone, so that the relative error holds down to 0. One row for each k.
_ERF = (
    (
        0.0, 0.2800332009792328, 0.5266298055648804, 0.717853307723999, 0.8484313488006592, 0.9269496202468872,
        0.9685252904891968, 0.9879105091094971, 0.9958695769309998, 0.9987469911575317, 0.9996629357337952,
        0.9999197125434875, 0.9999830722808838, 0.9999968409538269, 0.999999463558197, 0.9999999403953552,
    ),
    (
        1.1283791065216064, 1.05814790725708, 0.8726098537445068, 0.6328144669532776, 0.4035665690898895,
        0.226327046751976, 0.11161954700946808, 0.048409052193164825, 0.018462708219885826, 0.0061922259628772736,
        0.0018263364909216762, 0.0004736935952678323, 0.00010804310295497999, 2.167103230021894e-05,
        3.8224816307774745e-06, 5.929184112574148e-07,
    ),
    (
        0.0, -0.2682346701622009, -0.4424059987068176, -0.48125168681144714, -0.40921735763549805, -0.2868726849555969,
        -0.169776052236557, -0.08590303361415863, -0.03744236379861832, -0.014127127826213837, -0.004629375413060188,
        -0.0013206761796027422, -0.00032857406768016517, -7.13850895408541e-05, -1.3557021702581551e-05,
        -2.2524557152792113e-06,
    ),
    (
        -0.37612247467041016, -0.30740487575531006, -0.14134962856769562, 0.03304897993803024, 0.14210419356822968,
        0.1669624149799347, 0.1349455863237381, 0.08548744022846222, 0.04446864128112793, 0.019424084573984146,
        0.0072153350338339806, 0.002297454047948122, 0.0006304144044406712, 0.0001496346085332334,
        3.080841270275414e-05, 5.5137393246695865e-06,
    ),
    (
        0.0, 0.12739808857440948, 0.18210358917713165, 0.14723344147205353, 0.06450062990188599, -0.009667744860053062,
        -0.04558529704809189, -0.04702109098434448, -0.03261270374059677, -0.017521319910883904, -0.007666497956961393,
        -0.0027991500683128834, -0.0008647311478853226, -0.00022802455350756645, -5.163287642062642e-05,
        -1.0082349945150781e-05,
    ),
    (
        0.11219139397144318, 0.08000166714191437, 0.006090440321713686, -0.05411333590745926, -0.06829067319631577,
        -0.044873472303152084, -0.012657158076763153, 0.00767385121434927, 0.013022026978433132, 0.010082474909722805,
        0.005563539452850819, 0.0024125450290739536, 0.0008556331158615649, 0.000253416714258492, 6.346899317577481e-05,
        1.355787298962241e-05,
    ),
)  # fmt: skip


def _vector(dtype: str, lanes: int) -> str:
    return _LLVM[dtype] if lanes == 1 else f"<{lanes} x {_LLVM[dtype]}>"


def _name(name: str, dtype: str, lanes: int) -> str:
    return f"opsgen_{name}_{dtype}x{lanes}"


def _extreme(name: str, dtype: str, lanes: int) -> str:
    """``a > b ? a : b`` is one instruction, which gives b where either is NaN; then a, where that is NaN."""
    kind, bools = _vector(dtype, lanes), "i1" if lanes == 1 else f"<{lanes} x i1>"
    compare = "ogt" if name == "maximum" else "olt"
    return f"""
define {kind} @{_name(name, dtype, lanes)}({kind} %a, {kind} %b) {{
  %first = fcmp {compare} {kind} %a, %b
  %larger = select {bools} %first, {kind} %a, {kind} %b
  %nan = fcmp uno {kind} %a, %a
  %result = select {bools} %nan, {kind} %a, {kind} %larger
  ret {kind} %result
}}
"""


def _lanes(indices: range) -> str:
    return f"<{len(indices)} x i32> <" + ", ".join(f"i32 {i}" for i in indices) + ">"


def _resized(name: str, arguments: list[str], lanes: int) -> str:
    """A function for ``lanes`` float32 results, made of the one for 16."""
    kinds = [_vector(t, lanes) for t in arguments]
    registers = [_vector(t, 16) for t in arguments]
    result, register = _vector("float32", lanes), _vector("float32", 16)
    head = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kinds))
    lines = [f"define {result} @{_name(name, 'float32', lanes)}({head}) {{"]

    def call(number: int, values: list[str]) -> str:
        given = ", ".join(f"{kind} {value}" for kind, value in zip(registers, values, strict=True))
        lines.append(f"  %r{number} = call {register} @{_name(name, 'float32', 16)}({given})")
        return f"%r{number}"

    if lanes == 1:
        for i, kind in enumerate(registers):
            lines.append(f"  %w{i} = insertelement {kind} zeroinitializer, {kinds[i]} %a{i}, i32 0")
        call(0, [f"%w{i}" for i in range(len(kinds))])
        lines.append(f"  %result = extractelement {register} %r0, i32 0")
    elif lanes < 16:
        padded = f"<16 x i32> <{', '.join(f'i32 {min(i, lanes)}' for i in range(16))}>"
        for i, kind in enumerate(kinds):
            lines.append(f"  %w{i} = shufflevector {kind} %a{i}, {kind} zeroinitializer, {padded}")
        call(0, [f"%w{i}" for i in range(len(kinds))])
        lines.append(f"  %result = shufflevector {register} %r0, {register} poison, {_lanes(range(lanes))}")
    else:
        parts = []
        for number in range(lanes // 16):
            values = []
            for i, kind in enumerate(kinds):
                lines.append(
                    f"  %p{number}_{i} = shufflevector {kind} %a{i}, {kind} poison, "
                    f"{_lanes(range(16 * number, 16 * number + 16))}"
                )
                values.append(f"%p{number}_{i}")
            parts.append(call(number, values))
        width = 16
        while len(parts) > 1:
            joined: list[str] = []
            for low, high in zip(parts[::2], parts[1::2], strict=True):
                kind = f"<{width} x float>"
                value = f"%j{2 * width}_{len(joined)}"
                lines.append(f"  {value} = shufflevector {kind} {low}, {kind} {high}, {_lanes(range(2 * width))}")
                joined.append(value)
            parts, width = joined, 2 * width
        lines.append(f"  ret {result} {parts[0]}\n}}")
        return "\n".join(lines)
    lines.append(f"  ret {result} %result\n}}")
    return "\n".join(lines)


_SCALE = "llvm.x86.avx512.mask.scalef.ps.512"
_RECIPROCAL = "llvm.x86.avx512.rcp14.ps.512"
_PERMUTE = "llvm.x86.avx512.permvar.sf.512"
_DECLARATIONS_512 = f"""
declare <16 x float> @{_SCALE}(<16 x float>, <16 x float>, <16 x float>, i16, i32)
declare <16 x float> @{_RECIPROCAL}(<16 x float>, <16 x float>, i16)
declare <16 x float> @{_PERMUTE}(<16 x float>, <16 x i32>)
define <16 x float> @{_name("scale_by_power", "float32", 16)}(<16 x float> %x, <16 x float> %n) {{
  %r = call <16 x float> @{_SCALE}(<16 x float> %x, <16 x float> %n, <16 x float> zeroinitializer, i16 -1, i32 4)
  ret <16 x float> %r
}}
define <16 x float> @{_name("reciprocal_estimate", "float32", 16)}(<16 x float> %x) {{
  %r = call <16 x float> @{_RECIPROCAL}(<16 x float> %x, <16 x float> zeroinitializer, i16 -1)
  ret <16 x float> %r
}}
"""


def _double(value: float) -> str:
    """A float32 constant as LLVM writes it: the bits of the same number in double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _lookup(name: str, table: tuple[float, ...]) -> str:
    """A row of a table of 16 by one permutation; it looks at the four low bits of each index."""
    values = ", ".join(f"float {_double(v)}" for v in table)
    return f"""
define <16 x float> @{_name(name, "float32", 16)}(<16 x i32> %i) {{
  %r = call <16 x float> @{_PERMUTE}(<16 x float> <{values}>, <16 x i32> %i)
  ret <16 x float> %r
}}
"""


_STREAMED = {
    "float32": ("float", 4), "float64": ("double", 8), "float16": ("half", 2), "uint16": ("i16", 2),
    "int16": ("i16", 2), "int8": ("i8", 1), "uint8": ("i8", 1), "int32": ("i32", 4), "uint32": ("i32", 4),
    "int64": ("i64", 8), "uint64": ("i64", 8),
}  # fmt: skip


def _stream(dtype: str, size: int) -> str:
    """Stores a register of ``size`` bytes past the caches, to an address that is a multiple of it."""
    name, each = _STREAMED[dtype]
    kind = f"<{size // each} x {name}>"
    return f"""
define i32 @opsgen_stream_{dtype}x{size // each}(ptr %place, {kind} %value) {{
  store {kind} %value, ptr %place, align {size}, !nontemporal !{{i32 1}}
  ret i32 0
}}
"""


_STREAM_HELPERS = """
declare void @llvm.x86.sse.sfence()
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define i32 @opsgen_prefetch(ptr %place) {
  call void @llvm.prefetch.p0(ptr %place, i32 0, i32 3, i32 1)
  ret i32 0
}
define i32 @opsgen_prefetch_write(ptr %place) {
  call void @llvm.prefetch.p0(ptr %place, i32 1, i32 3, i32 1)
  ret i32 0
}
define i64 @opsgen_address(ptr %place) {
  %address = ptrtoint ptr %place to i64
  ret i64 %address
}
define i32 @opsgen_stream_end() {
  call void @llvm.x86.sse.sfence()
  ret i32 0
}
"""


@lru_cache(maxsize=4)
def functions(arch: str) -> str:
    """The LLVM IR of all of them for an arch."""
    parts = [_extreme(n, t, k) for n in ("maximum", "minimum") for t in ("float32", "float64") for k in LENGTHS]
    parts += [_stream(dtype, size) for dtype in _STREAMED for size in (16, 32, 64)] + [_STREAM_HELPERS]
    parts.append(scans.functions())
    if arch == "avx512":
        parts.append(_DECLARATIONS_512)
        shapes = {"scale_by_power": ["float32", "float32"], "reciprocal_estimate": ["float32"]}
        for k, table in enumerate(_ERF):
            shapes[f"erf_coefficient{k}"] = ["int32"]
            parts.append(_lookup(f"erf_coefficient{k}", table))
        parts += [_resized(n, types, k) for n, types in shapes.items() for k in LENGTHS if k != 16]
    return "\n".join(parts)


def _lower(call: Any) -> Any:
    dtype, _, lanes = call.ty.dtype.partition("x")
    name = str(call.op.name).removeprefix(instructions.PREFIX)
    return tirx.call_pure_extern(call.ty.dtype, _name(name, dtype, int(lanes or 1)), *call.args)


@lru_cache(maxsize=1)
def register() -> None:
    """Tells TVM's LLVM code generator what the operators become."""
    for name in instructions.ARGUMENTS:
        instructions.operator(name).set_attr("llvm.FLowerIntrinsic", tvm_ffi.convert(_lower))
