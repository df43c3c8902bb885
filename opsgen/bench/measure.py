"""One case measured: checked, then timed beside its peers and beside a copy of as many bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

from numpy.typing import NDArray

from ..errors import error
from ..runtime.library import Library
from ..runtime.manifest import Kernel
from . import cuda_timing, inputs, peers, timing
from .cases import Case, packable
from .check import MOST_ELEMENTS, Checked, check
from .peak import Peaks
from .roofline import Roofline, roofline
from .tensors import NumpyTensors, Tensors, TorchTensors, nbytes
from .timing import Call, Samples

OURS, PACKED, COPY = "opsgen", "opsgen, packed", "copy"
_MOST_COPY_BYTES = 4 << 30
_MOST_SETS = 8  # of inputs in different memory


@dataclass(frozen=True)
class Device:
    """Where to measure. ``capability``: of a GPU, 10 times the major version, and the minor one. ``peaks``: of a CPU,
    if they were measured."""

    tensors: Tensors
    capability: int | None = None
    l2: int = 0
    peaks: Peaks | None = None


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        rounds: samples of each contender.
        compiled: torch.compile too.
        elements: of a value on the way to the results that are compared at single positions, at most.
    """

    rounds: int
    compiled: bool = False
    elements: int = MOST_ELEMENTS


@dataclass(frozen=True)
class Measured:
    """One case, measured. ``flops`` and ``moved`` (bytes; None for an op that gathers, which moves what its positions
    name) are those that the manifest states."""

    case: Case
    checked: Checked
    samples: Samples
    flops: int
    moved: int | None
    roofline: Roofline | None
    copied: int
    notes: list[str] = field(default_factory=list)


def open_device(name: str, path: str, kind: str) -> Device:
    """The device that a library is to be measured on: ``cpu`` or ``cuda:0``.

    Raises:
        TargetError: E2004, there is no such device; E2007, torch is missing.
        CallError: E4030, the library is for another kind of device.
    """
    wanted = "cuda" if kind == "cuda" else "cpu"
    if name.partition(":")[0] != wanted:
        fix = "Leave --device out, or name the library for that device."
        raise error("E4030", path=path, wanted=kind, found=name, fix=fix)
    try:
        import torch
    except ImportError as missing:
        if wanted == "cuda":
            raise error("E2007", what="GPUs", package="torch", found=missing) from None
        return Device(NumpyTensors())
    if wanted == "cpu":
        return Device(TorchTensors(torch, "cpu"))
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = name.partition(":")[2] or "0"
    if not index.isdecimal() or int(index) >= there:
        fix = f"Name one of cuda:0 to cuda:{there - 1}." if there else "Measure on a machine that has one."
        found = f"not there: {name} of {there} that torch finds"
        raise error("E2004", what="GPU", found=found, target="measuring this library", wanted="one", fix=fix)
    major, minor = torch.cuda.get_device_capability(int(index))
    l2 = torch.cuda.get_device_properties(int(index)).L2_cache_size
    return Device(TorchTensors(torch, f"cuda:{index}"), 10 * major + minor, l2)


def bytes_needed(case: Case) -> int:
    """Of one set of inputs and results."""
    wanted = inputs.of_kernel(case.kernel, case.dims)
    return sum(nbytes(i.shape, i.dtype) for i in wanted) + sum(nbytes(s, d) for s, d in _results(case).values())


def measure(
    lib: Library,
    case: Case,
    device: Device,
    settings: Settings,
    *,
    replaced: Mapping[str, NDArray[Any]] | None = None,
    beside: Mapping[str, Call] | None = None,
) -> Measured:
    """Checks a case and times it.

    Args:
        replaced: values of integer inputs in place of those that are made, such as offsets of uneven groups.
        beside: further contenders.

    Raises:
        CallError: E4031, its result is wrong; nothing is timed then.
        ResourceError: E6002.
    """
    tensors, function = device.tensors, lib[case.op]
    chosen = {**inputs.scalars(case.definition or case.signature, case.scalars), **case.kernel.attributes}
    graph = case.graph
    wanted = inputs.of_graph(graph, case.dims) if graph is not None else inputs.of_kernel(case.kernel, case.dims)
    given = inputs.make(wanted, tensors)
    given |= {n: tensors.put(x, next(i.dtype for i in wanted if i.name == n)) for n, x in (replaced or {}).items()}
    checked = check(case, partial(_run, function, case.kernel, chosen), given, tensors, settings.elements)
    one = bytes_needed(case)
    sets = [given]
    if device.capability is not None:
        more = min(_MOST_SETS, ceil(2 * device.l2 / max(one, 1))) - 1
        sets += [{n: tensors.clone(x) for n, x in given.items()} for _ in range(more)]
    results = [[tensors.empty(s, d) for s, d in _results(case).values()] for _ in sets]
    contenders: dict[str, list[Call]] = {OURS: [_call(function, {**g, **chosen}, r) for g, r in zip(sets, results)]}
    names = packable(lib.manifest, case.kernel)
    if names:
        packed = {n: lib.pack(f"{case.op}.{n}", given[n]) for n in names}
        contenders[PACKED] = [_call(function, {**g, **packed, **chosen}, r) for g, r in zip(sets, results)]
    theirs, notes = peers.calls(case, [{**g, **chosen} for g in sets], tensors.torch, settings.compiled)
    contenders |= {**theirs, **{n: [call] for n, call in (beside or {}).items()}}
    copied = min(one, _MOST_COPY_BYTES) // 2 * 2
    contenders[COPY] = [tensors.copy_call(copied)]
    samples = _time(device, contenders, settings.rounds)
    gathers = any(i.index_limit is not None for i in case.kernel.inputs)
    moved = None if gathers else case.value(case.kernel.bytes)
    figures = roofline(case.kernel, device.capability, device.peaks, moved)
    return Measured(case, checked, samples, case.value(case.kernel.flops), moved, figures, copied, notes)


def _results(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        o.name: (tuple(d if isinstance(d, int) else case.value(d) for d in o.dims), o.dtype)
        for o in case.kernel.outputs
    }


def _run(
    function: Callable[..., Any], kernel: Kernel, chosen: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The results of a call by name, those of inputs that it updates too."""
    found = function(**given, **chosen)
    values = found if isinstance(found, tuple) else (found,)
    updated = {i.name: given[i.name] for i in kernel.inputs if i.mutable}
    return {**updated, **{o.name: v for o, v in zip(kernel.outputs, values)}}


def _call(function: Callable[..., Any], given: Mapping[str, Any], results: list[Any]) -> Call:
    if not results:
        return lambda: function(**given)
    out = tuple(results) if len(results) > 1 else results[0]
    return lambda: function(**given, out=out)


def _time(device: Device, contenders: Mapping[str, list[Call]], rounds: int) -> Samples:
    if device.capability is None:
        return timing.interleaved({n: calls[0] for n, calls in contenders.items()}, rounds)
    return cuda_timing.interleaved(device.tensors.torch, device.tensors.device, contenders, rounds)
