"""The signature of an op in a library's manifest. Imports no TVM."""

from __future__ import annotations

from typing import Any

from ..dsl.signature import _UNSET, Parameter
from ..runtime import manifest
from .problem import Problem


def signature(problem: Problem) -> manifest.Signature:
    """What a problem's op takes, as the manifest says it."""
    op = problem.op
    results = [r.name for r in problem.graph.results if r.updates is None]
    doc = (op.__doc__ or "").strip().split("\n")[0]
    return manifest.Signature(tuple(_param(p) for p in op.parameters), tuple(results), doc)


def _param(p: Parameter) -> manifest.Param:
    default: Any = manifest.REQUIRED if p.default is _UNSET else p.default
    if p.spec is not None:
        dtype = None if p.spec.dtype is None else p.spec.dtype.name
        return manifest.TensorParam(p.name, p.spec.dims, dtype, p.optional, p.spec.mutable, p.keyword)
    if p.role == "scalar":
        return manifest.ScalarParam(p.name, default if p.required else float(default), p.keyword)
    return manifest.AttributeParam(p.name, p.type, default, p.choices, p.keyword)
