"""Which kernel serves a call: every check of a call's arrays, in a fixed order, each with its own error.

The order: device, optional tensors, dtype, rank, dims, attributes, scalars, packing, constraints, region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from opsgen.errors import OpsgenError, error
from opsgen.runtime.arrays import ArrayInfo
from opsgen.runtime.devices import Capabilities, runs
from opsgen.runtime.dtypes import CLASSES, DTYPES
from opsgen.runtime.expressions import Expression, expression
from opsgen.runtime.manifest import (
    AttributeParam,
    AttributeValue,
    Kernel,
    PackedLayout,
    Signature,
    TensorParam,
    TensorSpec,
)

Shape = tuple[int, ...]

_MOST_DIMS = 64  # kMaxDims of templates/common/arguments.cc.j2
_KINDS = {"cpu": ("x86",), "cuda": ("cuda", "rocm"), "rocm": ("rocm",), "npu": ("ascend",)}
_FLOATING = ("float32", "float16", "bfloat16", "float64")  # what a parameter without a dtype can be compiled for
_DEVICE_OF = {"x86": "cpu", "cuda": "cuda", "rocm": "cuda", "ascend": "npu"}


@dataclass(frozen=True)
class Candidate:
    """A kernel that is loaded.

    Attributes:
        kernel, kind: what the manifest says.
        path: the file that it is in.
        level: place of its arch among those of its kind; the higher one is preferred.
        launch: its launcher.
        bound: dims that were bound to a size when compiling.
        packs: the launchers that pack the inputs that it takes packed, by name.
        capabilities: of the devices, for a kernel of a GPU; it runs only on some.
    """

    kernel: Kernel
    kind: str
    path: str
    level: int
    launch: Callable[..., None]
    bound: dict[str, int]
    packs: dict[str, Callable[..., None]] = field(default_factory=dict)
    capabilities: Capabilities | None = None
    region: tuple[Expression, ...] = field(init=False)
    constraints: tuple[Expression, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "region", tuple(map(expression, self.kernel.region)))
        object.__setattr__(self, "constraints", tuple(expression(item.expr) for item in self.kernel.constraints))

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(spec.dtype for spec in self.kernel.inputs)

    @property
    def packed(self) -> dict[str, PackedLayout]:
        """The inputs that it takes packed, by name."""
        return {spec.name: spec.packed for spec in self.kernel.inputs if spec.packed is not None}


def bound_dims(signature: Signature, kernel: Kernel) -> dict[str, int]:
    """The dims of the signature that ``kernel`` has integers for."""
    params = {param.name: param for param in signature.tensors}
    return {
        declared: mine
        for spec in kernel.inputs
        for declared, mine in zip(params[spec.name].dims, spec.dims)
        if isinstance(declared, str) and isinstance(mine, int)
    }


@dataclass(frozen=True)
class Selection:
    """The kernel of a call, with the sizes of its dims.

    Attributes:
        candidate: the kernel.
        dims: sizes by name, the one that stands for ``...`` included.
        leading: the shape that ``...`` stands for; None if the op has none.
        outputs: shapes of the results.
    """

    candidate: Candidate
    dims: dict[str, int]
    leading: Shape | None
    outputs: tuple[Shape, ...]


def select(
    op: str,
    signature: Signature,
    candidates: Sequence[Candidate],
    arrays: Sequence[tuple[TensorParam, ArrayInfo]],
    attributes: dict[str, Any],
    check_scalars: Callable[[], None],
) -> Selection:
    """The kernel of ``candidates``, all of them of ``op``, that serves these arrays and attributes.

    Args:
        arrays: the tensors that the caller gave, in the order of the signature.
        attributes: values by name.
        check_scalars: raises E4017; called when the attributes are right.

    Raises:
        CallError: E4003 dtype, E4004 rank, E4005 dims, E4006 device, E4008 no kernel, E4010 a constraint, E4015 two
            kernels, E4018 an attribute, E4019 the layout of a packed weight, E4026 no kernel for that GPU.
    """
    left = _by_device(op, candidates, arrays)
    left = _by_presence(op, signature, left, [param.name for param, _ in arrays])
    left = _by_dtype(op, signature, left, arrays)
    for param, info in arrays:
        _check_rank(op, param, info)
    dims, leading = _bind_dims(op, arrays)
    left = _by_bound_dims(op, left, dims, arrays)
    for attribute in signature.attributes:
        left = _by_attribute(op, left, attribute, attributes[attribute.name])
    check_scalars()
    if leading is not None:
        dims |= {str(spec.dims[0]): prod(leading) for item in left for spec in item.kernel.inputs if spec.leading}
    left = _by_packing(op, left, arrays)
    left = _by_constraints(op, left, dims)
    chosen = _by_region(op, left, dims)
    _check_packed_sizes(op, chosen, dims, arrays)
    shapes = tuple(_output_shape(op, spec, dims, leading) for spec in chosen.kernel.outputs)
    return Selection(chosen, dims, leading, shapes)


def select_packing(
    op: str,
    signature: Signature,
    candidates: Sequence[Candidate],
    param: TensorParam,
    info: ArrayInfo,
    layout: str | None,
) -> tuple[Candidate, dict[str, int]]:
    """The kernel whose packing is right for a weight, and the sizes of the weight's dims.

    Args:
        candidates: those of ``op`` that take ``param`` packed.
        layout: which, where these kernels have several.

    Raises:
        CallError: E4003 dtype, E4004 rank, E4005 dims, E4006 device, E4019 the layout.
    """
    arrays = [(param, info)]
    left = _by_device(op, candidates, arrays)
    dtypes = [next(spec.dtype for spec in item.kernel.inputs if spec.name == param.name) for item in left]
    left = [item for item, dtype in zip(left, dtypes) if dtype == info.dtype]
    if not left:
        raise _dtype_error(op, signature, param, info, sorted(set(dtypes)), candidates)
    _check_rank(op, param, info)
    dims, _ = _bind_dims(op, arrays)
    left = _by_bound_dims(op, left, dims, arrays)
    layouts = sorted({item.packed[param.name].layout for item in left})
    if layout is None:
        rank = max((item.level, len(item.bound)) for item in left)
        left = [item for item in left if (item.level, len(item.bound)) == rank]
        found = f"it can have the layouts {' and '.join(layouts)}"
    else:
        left = [item for item in left if item.packed[param.name].layout == layout]
        found = f"layout {layout!r}"
    if len({item.packed[param.name].layout for item in left}) != 1:
        wanted = f"layout={' or '.join(map(repr, layouts))}"
        raise error("E4019", op=op, argument=param.name, found=found, wanted=wanted)
    return left[0], dims


def _by_device(
    op: str, candidates: Sequence[Candidate], arrays: Sequence[tuple[TensorParam, ArrayInfo]]
) -> Sequence[Candidate]:
    for param, info in arrays:
        found = on_device(op, candidates, param.name, info.device)
        if info.device != arrays[0][1].device:
            wanted = f"{arrays[0][1].device} here, where {arrays[0][0].name!r} is"
            raise error("E4006", op=op, argument=param.name, found=info.device, wanted=wanted)
        candidates = found
    return candidates


def on_device(op: str, candidates: Sequence[Candidate], argument: str, device: str) -> Sequence[Candidate]:
    """Those that run where ``argument`` is. Raises E4006, E4026."""
    kinds = _KINDS.get(device.partition(":")[0], ())
    found = [item for item in candidates if item.kind in kinds]
    if not found:
        places = {item.kind: _DEVICE_OF.get(item.kind, item.kind) for item in candidates}
        known = sorted(kind if kind == place else f"{kind} ({place})" for kind, place in places.items())
        raise error("E4006", op=op, argument=argument, found=device, wanted=" or ".join(known))
    usable = [c for c in found if c.capabilities is None or runs(c.kernel.arch, c.capabilities.of(device))]
    if not usable:
        asked = next(item.capabilities for item in found if item.capabilities is not None)
        capability = asked.of(device)
        known = sorted({f"{item.kind}/{item.kernel.arch}" for item in found})
        shown = f"{capability // 10}.{capability % 10}"
        raise error("E4026", op=op, argument=argument, device=device, found=shown, known=" and ".join(known))
    return usable


def _by_presence(
    op: str, signature: Signature, candidates: Sequence[Candidate], given: list[str]
) -> Sequence[Candidate]:
    absent = {param.name for param in signature.tensors} - set(given)
    found = [item for item in candidates if set(item.kernel.absent) == absent]
    if not found:
        known = sorted({_presence(item.kernel.absent) for item in candidates})
        raise error("E4008", op=op, found=_presence(sorted(absent)), known="kernels " + " or ".join(known))
    return found


def _presence(absent: Sequence[str]) -> str:
    return f"without {', '.join(absent)}" if absent else "with every optional tensor"


def _by_dtype(
    op: str, signature: Signature, candidates: Sequence[Candidate], arrays: Sequence[tuple[TensorParam, ArrayInfo]]
) -> Sequence[Candidate]:
    everything = candidates
    for index, (param, info) in enumerate(arrays):
        found = [item for item in candidates if item.dtypes[index] == info.dtype]
        if not found:
            wanted = sorted({item.dtypes[index] for item in candidates})
            raise _dtype_error(op, signature, param, info, wanted, everything)
        candidates = found
    return candidates


def _dtype_error(
    op: str,
    signature: Signature,
    param: TensorParam,
    info: ArrayInfo,
    wanted: Sequence[str],
    candidates: Sequence[Candidate],
) -> OpsgenError:
    """E4003, with the conversion in the caller's framework and the option that would compile for his dtype.

    Args:
        wanted: the dtypes that ``param`` can have in this call.
        candidates: those of ``op``.
    """
    best = min(wanted, key=lambda name: (name not in ("float32", "int64"), not DTYPES[name].native))
    if info.packed is not None:
        fix = f"Pack a weight of {best}"
    elif info.framework == "torch":
        fix = f"Convert it: {param.name}.to(torch.{best})"
    else:
        fix = f"Convert it: {param.name}.astype({_numpy_name(best)})"
    option = _dtype_option(signature, param, info.dtype, candidates)
    fix += f", or compile the op with {option}." if option else "."
    return error("E4003", op=op, argument=param.name, found=info.dtype, wanted=" or ".join(wanted), fix=fix)


def result_dtype_error(op: str, argument: str, info: ArrayInfo, wanted: str, shape: Shape) -> OpsgenError:
    """E4003 for the caller's memory for a result, which no conversion mends."""
    if info.framework == "torch":
        fix = f"Allocate it with torch.empty({shape}, dtype=torch.{wanted})."
    elif info.framework == "numpy":
        fix = f"Allocate it with np.empty({shape}, {_numpy_name(wanted)})."
    else:
        fix = f"Allocate memory of {wanted}."
    return error("E4003", op=op, argument=argument, found=info.dtype, wanted=wanted, fix=fix)


def _numpy_name(dtype: str) -> str:
    return f"{'np.' if DTYPES[dtype].native else 'ml_dtypes.'}{dtype}"


def _dtype_option(signature: Signature, param: TensorParam, dtype: str, candidates: Sequence[Candidate]) -> str | None:
    """The option that compiles an op for a ``param`` of ``dtype``; None where its definition does not admit that."""
    if param.dtype is None:
        return f"--dtype {dtype}" if dtype in _FLOATING else None
    if dtype not in CLASSES.get(param.dtype, ()):
        return None
    free = {other.name for other in signature.tensors if other.dtype is None}
    known = {spec.dtype for item in candidates for spec in item.kernel.inputs if spec.name in free}
    floating = [name for name in _FLOATING if name in known]
    return f"--dtype {','.join([*floating, f'{param.name}={dtype}'])}"


def _check_rank(op: str, param: TensorParam, info: ArrayInfo) -> None:
    rank, least = len(info.shape), len(param.dims) - param.leading
    if rank > _MOST_DIMS:
        raise error("E4004", op=op, argument=param.name, found=rank, shape="...", wanted=f"at most {_MOST_DIMS}")
    if rank < least or (rank > least and not param.leading):
        names = f"[{', '.join(map(str, param.dims))}]"
        wanted = f"at least {least}, {names}" if param.leading else f"{least}, {names}"
        raise error("E4004", op=op, argument=param.name, found=rank, shape=info.shape, wanted=wanted)


def _bind_dims(op: str, arrays: Sequence[tuple[TensorParam, ArrayInfo]]) -> tuple[dict[str, int], Shape | None]:
    """Sizes of the named dims, and the shape of ``...``; each is the same in all arguments or E4005."""
    seen: dict[str, tuple[Any, str, Shape]] = {}

    def agree(dim: str, size: Any, param: TensorParam, info: ArrayInfo) -> None:
        wanted, first, shape = seen.setdefault(dim, (size, param.name, info.shape))
        if size != wanted:
            why = f"as argument {first!r} has" if first != param.name else "as earlier in this argument"
            why += f" (shape {shape})"
            values = {"argument": param.name, "dim": dim, "found": size, "shape": info.shape, "wanted": wanted}
            raise error("E4005", op=op, why=why, fix="Reshape one of them.", **values)

    for param, info in arrays:
        names = param.dims[param.leading :]
        split = len(info.shape) - len(names)
        if param.leading:
            agree("...", info.shape[:split], param, info)
        for dim, size in zip(names, info.shape[split:]):
            if isinstance(dim, str):
                agree(dim, size, param, info)
            elif size != dim:
                values = {"argument": param.name, "dim": "a dim", "found": size, "shape": info.shape, "wanted": dim}
                raise error("E4005", op=op, why="as the op defines it", fix="Reshape it.", **values)
    leading = seen.pop("...")[0] if "..." in seen else None
    return {dim: value[0] for dim, value in seen.items()}, leading


def _by_bound_dims(
    op: str, candidates: Sequence[Candidate], dims: dict[str, int], arrays: Sequence[tuple[TensorParam, ArrayInfo]]
) -> Sequence[Candidate]:
    for dim, size in dims.items():
        found = [item for item in candidates if item.bound.get(dim, size) == size]
        if not found:
            sizes = sorted({item.bound[dim] for item in candidates})
            wanted = " or ".join(map(str, sizes))
            param, info = next((param, info) for param, info in arrays if dim in param.dims)
            values = {"argument": param.name, "dim": dim, "found": size, "shape": info.shape, "wanted": wanted}
            why = "compiled with " + " or ".join(f"{dim}={value}" for value in sizes)
            fix = f"Compile it for {dim}={size}, or with {dim} left open."
            raise error("E4005", op=op, why=why, fix=fix, **values)
        candidates = found
    return candidates


def _by_attribute(op: str, candidates: Sequence[Candidate], param: AttributeParam, value: Any) -> Sequence[Candidate]:
    name = param.name
    plain = plain_attribute(param, value)
    found = [] if plain is None else [item for item in candidates if item.kernel.attributes[name] == plain]
    if not found:
        known = " or ".join(sorted({f"{name}={item.kernel.attributes[name]!r}" for item in candidates}))
        raise error("E4018", op=op, attribute=name, found=f"{value!r} ({type(value).__name__})", known=known)
    return found


def plain_attribute(param: AttributeParam, value: Any) -> AttributeValue | None:
    """``value`` as a bool, int or str of the attribute's type; None where it is of another type. 1 is not True."""
    if param.type == "bool":
        return bool(value) if isinstance(value, (bool, np.bool_)) else None
    if param.type == "int":
        return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else None
    return str(value) if isinstance(value, str) else None


def _by_packing(
    op: str, candidates: Sequence[Candidate], arrays: Sequence[tuple[TensorParam, ArrayInfo]]
) -> Sequence[Candidate]:
    """Those that take packed what is given packed. Where there are none, those that take more than that packed, if
    anything is: the rest is packed for the call. An unpacked call is not.
    """
    given = {param.name: info.packed.layout for param, info in arrays if info.packed is not None}
    found = [item for item in candidates if item.packed.keys() == given.keys()]
    if given and not found:
        found = [item for item in candidates if item.packed.keys() > given.keys()]
    if not found:
        known = sorted({_packing(list(item.packed)) for item in candidates})
        raise error("E4008", op=op, found=_packing(list(given)), known="kernels for " + " or ".join(known))
    for name, layout in given.items():
        left = [item for item in found if item.packed[name].layout == layout]
        if not left:
            wanted = " or ".join(sorted({item.packed[name].layout for item in found}))
            raise error("E4019", op=op, argument=name, found=f"it has layout {layout}", wanted=wanted)
        found = left
    return found


def _packing(names: Sequence[str]) -> str:
    return f"{', '.join(names)} packed" if names else "no packed weight"


def _check_packed_sizes(
    op: str, chosen: Candidate, dims: dict[str, int], arrays: Sequence[tuple[TensorParam, ArrayInfo]]
) -> None:
    """E4019 for a buffer of another size than the kernel reads."""
    for param, info in arrays:
        if info.packed is not None:
            wanted = expression(chosen.packed[param.name].bytes).over(dims)
            if info.packed.nbytes != wanted:
                found = f"it has {info.packed.nbytes} bytes"
                raise error("E4019", op=op, argument=param.name, found=found, wanted=f"{wanted} for shape {info.shape}")


def _by_constraints(op: str, candidates: Sequence[Candidate], dims: dict[str, int]) -> Sequence[Candidate]:
    found = [item for item in candidates if all(condition.holds(dims) for condition in item.constraints)]
    if not found:
        item = candidates[0]
        broken = next(index for index, condition in enumerate(item.constraints) if not condition.holds(dims))
        wanted = f"{item.kernel.constraints[broken].message} ({item.constraints[broken].text})"
        shown = _sizes(item.constraints[broken].names, dims)
        raise error("E4010", op=op, found=f"the dims are {shown}", wanted=wanted, fix="Pass arrays of other shapes.")
    return found


def _by_region(op: str, candidates: Sequence[Candidate], dims: dict[str, int]) -> Candidate:
    """The one candidate whose region holds; of several, that of the highest arch with the most bound dims."""
    found = [item for item in candidates if all(condition.holds(dims) for condition in item.region)]
    if not found:
        names = dict.fromkeys(name for item in candidates for condition in item.region for name in condition.names)
        known = "; ".join(sorted({" and ".join(item.kernel.region) for item in candidates}))
        raise error("E4008", op=op, found=_sizes(tuple(names), dims), known=f"kernels for {known}")
    rank = max((item.level, len(item.bound)) for item in found)
    best = [item for item in found if (item.level, len(item.bound)) == rank]
    if len(best) > 1:
        first, second = best[0].kernel.symbol, best[1].kernel.symbol
        raise error("E4015", path=best[1].path, first=first, second=second, op=op)
    return best[0]


def _sizes(names: Sequence[str], dims: dict[str, int]) -> str:
    return ", ".join(f"{name}={dims[name]}" for name in names) or "all sizes"


def _output_shape(op: str, spec: TensorSpec, dims: dict[str, int], leading: Shape | None) -> Shape:
    own = spec.dims[spec.leading :]
    try:
        sizes = [dim if isinstance(dim, int) else expression(dim).over(dims) for dim in own]
    except ZeroDivisionError:
        divisors = _sizes(tuple(name for name, size in dims.items() if size == 0), dims)
        wanted = f"sizes for which result {spec.name!r} has a shape"
        raise error("E4010", op=op, found=f"{divisors} is a divisor", wanted=wanted, fix="Pass other shapes.") from None
    if any(size < 0 for size in sizes):
        wanted = f"sizes for which result {spec.name!r} has a shape, not {tuple(sizes)}"
        raise error(
            "E4010", op=op, found=f"the dims are {_sizes(tuple(dims), dims)}", wanted=wanted, fix="Pass other shapes."
        )
    return ((leading or ()) if spec.leading else ()) + tuple(sizes)
