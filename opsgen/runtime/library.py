"""Loaded libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsgen.errors import OpsgenError, error
from opsgen.runtime import devices, ffi, host, library_file
from opsgen.runtime.ambiguity import refuse_ambiguity
from opsgen.runtime.dispatch import OpDispatch
from opsgen.runtime.manifest import Manifest, Signature
from opsgen.runtime.packed import MOST_DIMS, Packed
from opsgen.runtime.plan import OpStats
from opsgen.runtime.selection import Candidate, bound_dims


class Library:
    """The ops of one or more library files. Made by `load`.

    Every op is an attribute: ``lib.rms_norm(x, w)``; an op whose name is one of this class's own is ``lib["name"]``.
    Calls are thread-safe and release the GIL while the kernel runs. Two libraries are independent, also of one file.

    Pickling keeps the paths: the files must be there where it is unpickled.
    """

    def __init__(self, paths: Sequence[Path], manifests: Sequence[Manifest], ops: dict[str, OpDispatch]) -> None:
        self._paths = tuple(paths)
        self._manifests = tuple(manifests)
        self._ops = ops

    @property
    def ops(self) -> tuple[str, ...]:
        """Names of the ops."""
        return tuple(self._ops)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, as absolute paths."""
        return self._paths

    @property
    def path(self) -> Path:
        """The file. CallError E4023 if there are several."""
        self._one_file("path")
        return self._paths[0]

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """What each file says about itself."""
        return self._manifests

    @property
    def manifest(self) -> Manifest:
        """What the file says about itself. CallError E4023 if there are several."""
        self._one_file("manifest")
        return self._manifests[0]

    @property
    def stats(self) -> dict[str, OpStats]:
        """How often each op was called, and how many arrays were copied because of their strides. A snapshot."""
        return {name: replace(dispatch.stats) for name, dispatch in self._ops.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Copy the file to ``path``, which appears whole or not at all.

        Raises:
            CallError: E4023, the library is of several files; E4021, its own file is gone.
            CompileError: E3006, ``path`` cannot be written.
        """
        self._one_file("save")
        try:
            data = self._paths[0].read_bytes()
        except OSError as problem:
            raise error("E4021", path=self._paths[0], found=problem.strerror or problem) from None
        library_file.write_bytes(path, data)

    def pack(self, what: str, weight: Any, *, layout: str | None = None) -> Packed:
        """Pack ``weight`` for the calls to come: ``lib.linear(x, lib.pack("linear.weight", w))``.

        Args:
            what: the op and its parameter.
            weight: numpy, torch or DLPack, in CPU memory; any strides.
            layout: one of those that the kernels take, where they differ in it.

        Raises:
            CallError: E4001 no such op, E4002 no such parameter, or one that no kernel takes packed, E4003 dtype,
                E4004 rank, E4005 dims, E4006 device, E4017 no array, E4019 no such layout, or several.
        """
        op, _, parameter = what.partition(".")
        if op not in self._ops:
            raise error("E4001", found=op, known=", ".join(self._ops) or "none")
        return self._ops[op].pack(parameter, weight, layout)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The op of that name. Raises E4001, which is an AttributeError too."""
        dispatch = self._ops.get(name)
        if dispatch is None:
            raise error("E4001", found=name, known=", ".join(self._ops) or "none")
        made = self.__dict__.get(f"_function_{name}")
        return made or self.__dict__.setdefault(f"_function_{name}", dispatch.function())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        function = self[name]
        self.__dict__[name] = function  # found without this method from now on
        return function

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._ops})

    def __repr__(self) -> str:
        files = ", ".join(
            f"{path.name} ({m.kind}: {', '.join(m.archs)})" for path, m in zip(self._paths, self._manifests)
        )
        return f"<opsgen.Library {files}; ops: {', '.join(self._ops)}>"

    def __reduce__(self) -> tuple[Callable[..., Library], tuple[str, ...]]:
        return load, tuple(map(str, self._paths))

    def _one_file(self, what: str) -> None:
        if len(self._paths) != 1:
            raise error("E4023", what=what, found=len(self._paths))


def load(*paths: str | os.PathLike[str]) -> Library:
    """Load library files: of several kinds of device, or several of one kind.

    Of each file for CPUs, the kernels of the best arch that this machine runs are used (OPSGEN_CPU_LEVEL can lower it);
    of one for GPUs, each call uses those of the best arch for its device. No GPU is needed to load it.

    Raises:
        CallError: E4021 a file cannot be opened, or is named by no path, E4011 it is not a library file, E4012 it is
            damaged, E4013 its format is newer, E4016 its manifest breaks the schema, E4014 it has no kernel for this
            machine, E4015 two kernels claim the same calls, E4022 two files describe an op differently.
        TargetError: E2006, OPSGEN_CPU_LEVEL names no level.
    """
    if not paths:
        raise error("E4021", path="''", found="no file was named")
    files = [Path(os.path.abspath(library_file.path_text(path))) for path in paths]
    manifests = [library_file.read_manifest(path) for path in files]
    signatures: dict[str, tuple[Signature, Path]] = {}
    kernels: dict[str, list[Candidate]] = {}
    for path, manifest in zip(files, manifests):
        archs = _archs(path, manifest)
        for op, signature in manifest.ops.items():
            known, first = signatures.setdefault(op, (signature, path))
            if replace(known, doc="") != replace(signature, doc=""):
                raise error("E4022", path=path, op=op, other=first)
        for item in _candidates(path, manifest, archs):
            kernels.setdefault(item.kernel.op, []).append(item)
    for items in kernels.values():
        refuse_ambiguity(items)
    ops = {op: OpDispatch(op, signatures[op][0], items) for op, items in kernels.items()}
    return Library(files, manifests, ops)


def _archs(path: Path, manifest: Manifest) -> dict[str, int]:
    """The archs of the file whose kernels are used, and the place of each among all of its kind."""
    if manifest.kind == "cuda":
        return {arch: place for place, arch in enumerate(sorted(manifest.archs, key=devices.rank))}
    levels = host.host_levels() if manifest.kind == "x86" else ()
    usable = [arch for arch in manifest.archs if arch in levels]
    if not usable:
        raise _no_arch(path, manifest)
    best = max(usable, key=levels.index)
    return {best: levels.index(best)}


def _no_arch(path: Path, manifest: Manifest) -> OpsgenError:
    """E4014, with the target that would run here, where there is one."""
    found = ", ".join(f"{manifest.kind}/{arch}" for arch in manifest.archs)
    offers = [f"x86/{level}" for level in host.host_levels() if level in host.X86_COMPILED]
    if offers:
        wanted, fix = f"offers {', '.join(offers)}", f"Compile it with --target {offers[-1]}."
    else:
        levels = ", ".join(f"x86/{level}" for level in host.X86_COMPILED)
        wanted = f"has none of the levels that kernels can be compiled for ({levels})"
        fix = "Compile it for the machine that it is to run on, and load it there."
        if os.environ.get(host.VARIABLE):
            fix = f"{host.VARIABLE} may be what takes them away: unset it. {fix}"
    return error("E4014", path=path, found=found, wanted=wanted, fix=fix)


def _candidates(path: Path, manifest: Manifest, archs: dict[str, int]) -> list[Candidate]:
    """The kernels of some archs, with their launchers."""
    try:
        module = ffi.load_shared_object(str(path))
    except Exception as problem:
        raise error("E4021", path=path, found=f"the dynamic loader says: {problem}") from None

    def function(symbol: str, field: str) -> Callable[..., None]:
        try:
            return module.get_function(symbol)
        except AttributeError:
            where = f"{field}: the object does not export __tvm_ffi_{symbol}"
            raise error("E4016", path=path, found=where) from None

    capabilities = None
    if manifest.kind == "cuda":
        capabilities = devices.Capabilities(function("opsgen_cuda_capability", "kind"), str(path))
    found: list[Candidate] = []
    for index, kernel in enumerate(manifest.kernels):
        packed = {i: spec for i, spec in enumerate(kernel.inputs) if spec.packed is not None}
        if kernel.arch not in archs or any(spec.leading or len(spec.dims) > MOST_DIMS for spec in packed.values()):
            continue  # of another machine; or for weights that cannot be packed
        launch = function(kernel.symbol, f"kernels[{index}].symbol")
        packs = {
            spec.name: function(spec.packed.pack, f"kernels[{index}].inputs[{i}].packed.pack")
            for i, spec in packed.items()
            if spec.packed is not None
        }
        bound = bound_dims(manifest.ops[kernel.op], kernel)
        level = archs[kernel.arch]
        found.append(Candidate(kernel, manifest.kind, str(path), level, launch, bound, packs, capabilities))
    return found
