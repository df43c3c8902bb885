"""What to measure: kernels of a library file, each with the sizes of its op's workloads or those that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..dsl.dtypes import DTYPES
from ..dsl.op import Graph, Op, Workload
from ..errors import error
from ..runtime import devices, host
from ..runtime.expressions import expression
from ..runtime.manifest import AttributeParam, Kernel, Manifest, Signature


@dataclass(frozen=True)
class Case:
    """A kernel at one size.

    Attributes:
        kernel, signature: of the manifest.
        definition: the op itself, if it is known.
        label: of the workload.
        dims: every dim of the kernel's inputs, bound ones too.
        scalars: values of run-time scalars that were chosen.
    """

    kernel: Kernel
    signature: Signature
    definition: Op | None
    label: str
    dims: Mapping[str, int]
    scalars: Mapping[str, float] = field(default_factory=dict)

    @property
    def op(self) -> str:
        """The op's name."""
        return self.kernel.op

    @cached_property
    def graph(self) -> Graph | None:
        """Of the op's definition, as the kernel was compiled; None where the op is not known."""
        if self.definition is None:
            return None
        k = self.kernel
        bound = {d: n for d, n in dims_of(self.signature, k).items() if n is not None}
        kinds = {i.name: DTYPES[i.dtype] for i in k.inputs}
        return self.definition.trace(dtypes_of=kinds, absent=frozenset(k.absent), attributes=k.attributes, bound=bound)

    def value(self, text: str) -> int:
        """An expression of the manifest for these dims."""
        return expression(text).over(self.dims)

    def title(self) -> str:
        """The op, its attributes, what is absent, and the types of its tensors, as an error names it."""
        chosen = [f"{n}={v}" for n, v in self.kernel.attributes.items()]
        chosen += [f"without {', '.join(self.kernel.absent)}"] * bool(self.kernel.absent)
        return f"{self.op}[{'; '.join([dtype_of(self.kernel), *chosen])}]"


@dataclass(frozen=True)
class Choice:
    """What a user asks for. Empty: everything.

    ``sizes``: sets of dims, each for the ops that have all of them; one that names all dims of a kernel is a case,
    another changes those of each workload.
    ``workload``: part of a label. ``absent``: exactly these, of those that the op has.
    """

    ops: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    sizes: Sequence[Mapping[str, int]] = ()
    workload: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    absent: Sequence[str] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """What is not measured, and why."""

    op: str
    why: str


def dims_of(signature: Signature, kernel: Kernel) -> dict[str, int | None]:
    """The dims of a kernel's inputs by name; the extent of a bound one."""
    given = [p for p in signature.tensors if p.name not in kernel.absent]
    found: dict[str, int | None] = {}
    for param, spec in zip(given, kernel.inputs, strict=True):
        for declared, mine in zip(param.dims, spec.dims, strict=True):
            found[str(mine if isinstance(mine, str) else declared)] = mine if isinstance(mine, int) else None
    return found


def dtype_of(kernel: Kernel) -> str:
    """The types of a kernel's inputs, each once."""
    kinds = list(dict.fromkeys(i.dtype for i in kernel.inputs))
    floating = [k for k in kinds if k in DTYPES and DTYPES[k].kind == "float"]
    return "+".join(floating or kinds) or "none"


def definition(name: str, signature: Signature, own: Mapping[str, Op]) -> Op | None:
    """The op of a library: the caller's, or the standard one if it takes the same."""
    if name in own:
        return own[name]
    from .. import ops

    if name not in ops.__all__ or name in ("all_ops", *ops._BUILDERS):
        return None
    op = getattr(ops, name)
    taken = [(p.name, p.spec.dims if p.spec else p.role) for p in op.parameters]
    tensors = {p.name: p.dims for p in signature.tensors}
    roles = {p.name: "attribute" if isinstance(p, AttributeParam) else "scalar" for p in signature.params}
    return op if taken == [(p.name, tensors.get(p.name, roles[p.name])) for p in signature.params] else None


def kernels_on(manifest: Manifest, capability: int | None) -> list[Kernel]:
    """Those that run on this machine's CPU, or on a GPU of a compute capability (10 times the major version, and the
    minor one), of the best arch for each kind of call. Those for packed weights stand behind the plain ones alone."""
    if capability is None:
        order: Callable[[str], Any] = host.host_levels().index
        usable = [a for a in manifest.archs if a in host.host_levels()]
    else:
        order = devices.rank
        usable = [a for a in manifest.archs if devices.runs(a, capability)]
    best: dict[Any, Kernel] = {}
    for arch in sorted(usable, key=order):
        of_arch = [k for k in manifest.kernels if k.arch == arch]
        for k in sorted(of_arch, key=lambda k: not _packed(k)):
            best[(*_call(k), k.region)] = k
    return [k for k in manifest.kernels if k in best.values()]


def packable(manifest: Manifest, kernel: Kernel) -> tuple[str, ...]:
    """The inputs that a kernel's calls may give packed."""
    alike = (k for k in manifest.kernels if k.arch == kernel.arch and _call(k) == _call(kernel))
    return tuple(dict.fromkeys(n for k in alike for n in _packed(k)))


def _packed(kernel: Kernel) -> list[str]:
    return [i.name for i in kernel.inputs if i.packed is not None]


def _call(kernel: Kernel) -> tuple[Any, ...]:
    """What calls of a kernel have in common."""
    return kernel.op, kernel.absent, tuple(kernel.attributes.items()), tuple(i.dtype for i in kernel.inputs)


def find(
    manifest: Manifest, kernels: Sequence[Kernel], own: Mapping[str, Op], choice: Choice
) -> tuple[list[Case], list[Skipped]]:
    """The cases that a choice stands for, and what of it cannot be measured.

    Raises:
        CallError: E4001, an op that the library does not have.
        CompileError: E3001, a dim that none of its ops has.
    """
    for name in choice.ops:
        if name not in manifest.ops:
            raise error("E4001", found=name, known=", ".join(manifest.ops))
    chosen = [k for k in kernels if _chosen(k, choice, manifest.ops[k.op])]
    known = {d for k in chosen for d in dims_of(manifest.ops[k.op], k)}
    for sizes in choice.sizes:
        for d in sizes:
            if chosen and d not in known:
                raise error("E3001", op=", ".join(dict.fromkeys(k.op for k in chosen)), found=d, known=sorted(known))
    cases: list[Case] = []
    skipped: dict[Skipped, None] = {}
    for name in dict.fromkeys(k.op for k in chosen):
        signature, mine = manifest.ops[name], [k for k in chosen if k.op == name]
        op = definition(name, signature, own)
        listed = [w for w in (op.workloads if op else ()) if choice.workload.lower() in w.label.lower()]
        exact = {id(k): [w for w in listed if _matches(w, k, signature)] for k in mine}
        some = any(exact.values())
        for k in mine:
            found, why = _sizes(k, signature, exact[id(k)] if some else listed, choice)
            scalars = choice.scalars
            cases += [Case(k, signature, op, label, dims, {**more, **scalars}) for label, dims, more in found]
            if why:
                skipped[Skipped(name, why)] = None
    return cases, list(skipped)


def _chosen(kernel: Kernel, choice: Choice, signature: Signature) -> bool:
    optional = {p.name for p in signature.tensors if p.optional}
    wanted = None if choice.absent is None else {n for n in choice.absent if n in optional}
    return (
        (not choice.ops or kernel.op in choice.ops)
        and (not choice.dtypes or any(i.dtype in choice.dtypes for i in kernel.inputs))
        and all(str(kernel.attributes[n]) == v for n, v in choice.attributes.items() if n in kernel.attributes)
        and (wanted is None or not optional or set(kernel.absent) == wanted)
    )


def _matches(workload: Workload, kernel: Kernel, signature: Signature) -> bool:
    """Whether a workload is a call of this very kernel."""
    defaults = {p.name: p.default for p in signature.attributes}
    same = all(workload.attributes.get(n, defaults[n]) == v for n, v in kernel.attributes.items())
    return same and set(workload.absent) == set(kernel.absent)


Sized = tuple[str, Mapping[str, int], Mapping[str, float]]


def _sizes(kernel: Kernel, signature: Signature, listed: Iterable[Workload], choice: Choice) -> tuple[list[Sized], str]:
    """Labels, dims and scalars of a kernel's cases; and why there is none, or one less."""
    bound = dims_of(signature, kernel)
    fixed = {d: n for d, n in bound.items() if n is not None}
    asked: list[Sized] = []
    for mine in choice.sizes or ({},):
        if any(d not in bound for d in mine):
            continue  # it is for another op
        if choice.sizes and not choice.workload and set(mine) | set(fixed) == set(bound):
            asked.append(("as given", {**fixed, **mine}, {}))
            continue
        for w in listed:
            asked.append((w.label, {**{d: n for d, n in w.dims.items() if d in bound}, **mine}, w.scalars))
    found: list[Sized] = []
    why = "" if asked or choice.sizes else f"no workload of its own is a call of {kernel.symbol}: give --dims"
    for label, dims, scalars in asked:
        reason = _refusal(kernel, bound, fixed, dims)
        if reason:
            why = f"{label}: {reason}"
        elif all(dims != d for _, d, _ in found):
            found.append((label, dims, scalars))
    return found, why


def _refusal(kernel: Kernel, bound: Mapping[str, int | None], fixed: Mapping[str, int], dims: Mapping[str, int]) -> str:
    """Why a kernel does not take dims; empty if it does."""
    missing = [d for d in bound if d not in dims]
    if missing:
        return f"no extent of {', '.join(missing)}"
    for d, n in fixed.items():
        if dims[d] != n:
            return f"{d}={dims[d]}, and the library was compiled for {d}={n}"
    for c in kernel.constraints:
        if not expression(c.expr).holds(dims):
            return f"{c.message} ({c.expr})"
    for region in kernel.region:
        if not expression(region).holds(dims):
            return f"another kernel serves it (of this one, {region})"
    return ""
