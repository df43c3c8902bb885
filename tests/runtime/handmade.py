"""A library made by hand: a manifest and launchers (handmade.cc) that do what the compiler's would, but simply."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from opsgen.runtime import library_file
from opsgen.runtime.ffi import tvm_ffi
from opsgen.runtime.manifest import (
    AttributeParam,
    Constraint,
    Kernel,
    Manifest,
    PackedLayout,
    ScalarParam,
    ScalarSpec,
    Signature,
    TensorParam,
    TensorSpec,
)

SAME_DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
    "uint8", "bool",
]  # fmt: skip

ARCH = "baseline"

X = TensorParam("x", ("...", "hidden"))
WEIGHT = TensorParam("weight", ("hidden",))
SCALE = ScalarParam("scale", 1.0, keyword=True)

SIGNATURES = {
    "scale_add": Signature((X, WEIGHT, SCALE), doc="y = x * scale + weight"),
    "bounds": Signature((X, TensorParam("bias", ("hidden",), optional=True)), ("low", "high")),
    "pick": Signature((TensorParam("table", ("n",)), TensorParam("index", ("...",), "int64"))),
    "accumulate": Signature(
        (
            TensorParam("cache", ("...", "hidden"), mutable=True),
            X,
            AttributeParam("subtract", "bool", False, keyword=True),
        ),
        ("total",),
    ),
    "same": Signature((X,)),
    "ones": Signature((TensorParam("x", ("heads", "size")),)),
    "fail": Signature((TensorParam("x", ("hidden",)), ScalarParam("how"))),
    "nothing": Signature((X, WEIGHT, SCALE)),
    "mix": Signature(
        (
            X,
            TensorParam("factor", ("hidden",)),
            TensorParam("term", ("hidden",), optional=True),
            AttributeParam("negate", "bool", False, keyword=True),
        )
    ),
    "idle": Signature((X, WEIGHT, SCALE)),
}


def tensor(name: str, dims: str, dtype: str = "float32", **more: object) -> TensorSpec:
    """Such as ``tensor("x", "rows hidden")``; dims that start with ``rows`` are leading; digits are bound dims."""
    parts = tuple(int(dim) if dim.isdigit() else dim for dim in dims.split())
    return TensorSpec(name, dtype, parts, leading=parts[:1] == ("rows",), **more)  # type: ignore[arg-type]


def packed(name: str, dims: str, layout: str = "baseline.reversed.float32", **more: object) -> TensorSpec:
    """An input of ``dims`` that a kernel takes packed, in reverse order."""
    size = f"128 + 4 * {' * '.join(dims.split())}"
    return tensor(name, dims, packed=PackedLayout(layout, size, "pack_reversed"), **more)


def scale_add(symbol: str = "scale_add_f32", dtype: str = "float32", hidden: str = "hidden", **more: object) -> Kernel:
    """A kernel of ``scale_add``."""
    inputs = (tensor("x", f"rows {hidden}", dtype), tensor("weight", hidden, dtype))
    outputs = (tensor("out", f"rows {hidden}", dtype),)
    values: dict[str, object] = {"op": "scale_add", "arch": ARCH, "scalars": (ScalarSpec("scale", dtype),), **more}
    return Kernel(symbol=symbol, inputs=inputs, outputs=outputs, **values)  # type: ignore[arg-type]


def kernels() -> tuple[Kernel, ...]:
    """One of each, all of arch `ARCH`."""
    x, bias, low, high = (
        tensor("x", "rows hidden"),
        tensor("bias", "hidden"),
        tensor("low", "rows"),
        tensor("high", "rows"),
    )
    cache_, total = tensor("cache", "rows hidden", mutable=True), tensor("total", "rows")
    index = tensor("index", "rows", "int64", index_limit="n")
    out = tensor("out", "rows hidden")
    return (
        scale_add(),
        scale_add("scale_add_f64", "float64"),
        Kernel("bounds", "bounds", ARCH, (x,), (low, high), absent=("bias",)),
        Kernel("bounds_bias", "bounds", ARCH, (x, bias), (low, high)),
        Kernel("pick", "pick", ARCH, (tensor("table", "n"), index), (tensor("out", "rows"),)),
        Kernel("accumulate", "accumulate", ARCH, (cache_, x), (total,), attributes={"subtract": False}),
        Kernel("accumulate_subtract", "accumulate", ARCH, (cache_, x), (total,), attributes={"subtract": True}),
        *(
            Kernel(f"same_{t}", "same", ARCH, (tensor("x", "rows hidden", t),), (tensor("out", "rows hidden", t),))
            for t in SAME_DTYPES
        ),
        Kernel(
            "ones",
            "ones",
            ARCH,
            (tensor("x", "heads size"),),
            (TensorSpec("out", "float32", ("heads * size // 1",)),),
            constraints=(Constraint("size % heads == 0", "size must be a multiple of heads"),),
            region=("size <= 64",),
        ),
        Kernel(
            "fail", "fail", ARCH, (tensor("x", "hidden"),), (tensor("out", "hidden"),), (ScalarSpec("how", "float32"),)
        ),
        Kernel("nothing", "nothing", ARCH, (x, tensor("weight", "hidden")), (out,), (ScalarSpec("scale", "float32"),)),
        *mixes(),
        Kernel("idle", "idle", ARCH, (x, tensor("weight", "hidden")), (out,), (ScalarSpec("scale", "float32"),)),
        Kernel("idle_packed", "idle", ARCH, (x, packed("weight", "hidden")), (out,), (ScalarSpec("scale", "float32"),)),
    )


def mixes(negated_layout: str = "baseline.reversed.float32") -> tuple[Kernel, ...]:
    """The kernels of ``mix``: with and without a term, plain and packed; and negated, with a term alone."""
    x, out = tensor("x", "rows hidden"), tensor("out", "rows hidden")
    found: list[Kernel] = []
    for form in (tensor, packed):
        suffix = "_packed" if form is packed else ""
        factor, term = form("factor", "hidden"), form("term", "hidden")
        other = {"layout": negated_layout} if form is packed else {}
        negated = (x, form("factor", "hidden", **other), form("term", "hidden", **other))
        found += [
            Kernel(f"mix{suffix}", "mix", ARCH, (x, factor, term), (out,), attributes={"negate": False}),
            Kernel(f"mix_negated{suffix}", "mix", ARCH, negated, (out,), attributes={"negate": True}),
            Kernel(
                f"mix_alone{suffix}", "mix", ARCH, (x, factor), (out,), attributes={"negate": False}, absent=("term",)
            ),
        ]
    return tuple(found)


def manifest(*kernels_: Kernel, kind: str = "x86", archs: tuple[str, ...] = (ARCH,), **ops: Signature) -> Manifest:
    """A manifest of these kernels, or of all; ops are those that they are of, unless others are given."""
    chosen = kernels_ or kernels()
    signatures = {kernel.op: ops.get(kernel.op) or SIGNATURES[kernel.op] for kernel in chosen}
    return Manifest("0", kind, archs, signatures, chosen, created="2026-01-01T00:00:00Z")


@cache
def elf() -> bytes:
    """The shared object of handmade.cc."""
    here = Path(tvm_ffi.__file__).parent
    with TemporaryDirectory() as folder:
        target = Path(folder) / "handmade.so"
        source = Path(__file__).with_name("handmade.cc")
        flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall"]
        link = [f"-I{here / 'include'}", f"-L{here / 'lib'}", "-ltvm_ffi"]
        subprocess.run(["g++", *flags, str(source), "-o", str(target), *link], check=True)
        return target.read_bytes()


def write(path: Path, *kernels_: Kernel, **more: object) -> Path:
    """Write a library of these kernels, or of all, and return its path."""
    library_file.write(path, elf(), manifest(*kernels_, **more))  # type: ignore[arg-type]
    return path
