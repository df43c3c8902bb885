"""Whether a kernel's results are right, before it is timed. A wrong one is an error.

Three checks, each as far as it can be made:
  small     every element at a smaller size, against the op's own reference in float64
  sampled   at the size itself, at positions spread over the result, against the definition in float64
  whole     at the size itself, every element, against the peer of torch in float64
The first two judge by an error analysis of the op's graph (`opsgen.lowering.error_bounds`), element by element. The
third finds what the positions missed: it allows everywhere `SLACK` times the largest bound at the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis import samples
from ..dsl.op import Graph
from ..dsl.tensor import Map, Reduce
from ..errors import error
from ..lowering.error_bounds import NONE, NVIDIA, UNIT, Bounded, Freedom, bounds_at
from ..runtime.devices import rank
from ..runtime.expressions import expression
from . import inputs
from .cases import Case
from .tensors import Positions, Tensors

SLACK = 8.0
MOST_ELEMENTS = 1 << 22  # of a value on the way to the sampled results: a third of a second of numpy
MOST_ELEMENTS_EVER = 1 << 26  # where nothing more can be cut down
_SMALL_ELEMENTS = 1 << 18
_WHOLE_BYTES = 12 << 30  # of float64 values of the peer
_WHOLE_CPU_FLOPS = 1e10
_CHUNK = 1 << 24  # elements of a whole result that are compared at once

Run = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Calls the kernel with tensors by name; gives its results by name."""


@dataclass(frozen=True)
class Checked:
    """What was compared.

    Attributes:
        small: the dims of the smaller size; None: not checked so.
        positions, of: elements of the results that were compared at the size itself, of how many.
        worst: the largest error at these, as a part of its bound.
        whole: whether every element was compared with the peer.
        why: what could not be done, and the reason.
    """

    small: Mapping[str, int] | None = None
    positions: int = 0
    of: int = 0
    worst: float = 0.0
    whole: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        sizes = None if self.small is None else dict(self.small)
        found = {"small": sizes, "positions": self.positions, "of": self.of, "worst": round(self.worst, 4)}
        return {**found, "whole": self.whole, "why": self.why}


def check(case: Case, run: Run, given: Mapping[str, Any], tensors: Tensors, elements: int = MOST_ELEMENTS) -> Checked:
    """Checks a case with the tensors that it will be timed with; ``elements``: see `MOST_ELEMENTS`.

    Raises:
        CallError: E4031, a result is wrong.
    """
    graph = case.graph
    if graph is None or case.definition is None:
        return Checked(why=f"the definition of {case.op} is not known: name its module with --module")
    free = {d for i in graph.inputs for d in i.dims if graph.extents[d].value is None}
    found = Checked()
    small = _smaller(case, graph, {d: case.dims[d] for d in free})
    if small is not None:
        _small(case, graph, small, run, tensors)
        found = replace(found, small=small)
    sampled, bounds, results = _sampled(case, graph, run, given, tensors, elements)
    found = replace(found, positions=sampled[0], of=sampled[1], worst=sampled[2])
    if not bounds:
        return replace(found, why="too large to be evaluated at single positions")
    if found.positions == found.of:
        return found
    why = _whole(case, graph, bounds, results, given, tensors)
    return replace(found, whole=not why, why=why)


# -- small -------------------------------------------------------------------------------------------------------------
def _smaller(case: Case, graph: Graph, dims: Mapping[str, int]) -> dict[str, int] | None:
    """Dims that are cut down as far as the kernel still takes them; None where that leaves too much."""
    limit = max(2, int(_SMALL_ELEMENTS ** (1 / max(len(dims), 1))))
    cut = {d: min(n, limit) for d, n in dims.items()}
    tied = {n for c in case.kernel.constraints for n in expression(c.expr).names}
    for candidate in (cut, {d: dims[d] if d in tied else n for d, n in cut.items()}):
        sizes = {**case.dims, **candidate}
        extents = {d: graph.extent(d).evaluate(sizes) for d in graph.extents}
        conditions = [*(c.expr for c in case.kernel.constraints), *case.kernel.region]
        if samples.largest_node(graph, extents) <= MOST_ELEMENTS and all(
            expression(text).holds(sizes) for text in conditions
        ):
            return candidate
    return None


def _small(case: Case, graph: Graph, dims: Mapping[str, int], run: Run, tensors: Tensors) -> None:
    assert case.definition is not None
    sizes = {**case.dims, **dims}
    given = inputs.make(inputs.of_graph(graph, sizes), tensors)
    scalars = inputs.scalars(case.definition, case.scalars)
    values = {n: tensors.read(x, {}) for n, x in given.items()}
    bounds = bounds_at(graph, sizes, {**values, **scalars}, freedom=_freedom(case))
    expected = case.definition.expected(**{**values, **scalars, **case.kernel.attributes})
    wanted: dict[str, NDArray[Any]] = expected if isinstance(expected, dict) else {graph.results[0].name: expected}
    results = run(given)
    for name, bound in bounds.items():
        value = np.asarray(wanted[name])
        # The reference has an error of its own.
        own = (
            1e-12 * (1 + np.abs(np.where(np.isfinite(value), value, 0)).max(initial=0))
            if value.dtype.kind == "f"
            else 0
        )
        judged = Bounded(value, bound.bound + own, bound.dtype)
        _judge(case, dims, name, judged, tensors.read(results[name], {}), {})


# -- sampled -----------------------------------------------------------------------------------------------------------
def _sampled(
    case: Case, graph: Graph, run: Run, given: Mapping[str, Any], tensors: Tensors, elements: int
) -> tuple[tuple[int, int, float], dict[str, Bounded], dict[str, Any]]:
    """How many elements were compared, of how many, the worst; bounds by result, none if it is too much; the results.

    Raises:
        CallError: E4031.
    """
    assert case.definition is not None
    extents = {d: graph.extent(d).evaluate(case.dims) for d in graph.extents}
    total = sum(prod(extents[d] for d in r.value.dims) for r in graph.results)
    positions = samples.choose(graph, extents, elements)
    if samples.largest_node(graph, {**extents, **{d: len(p) for d, p in positions.items()}}) > MOST_ELEMENTS_EVER:
        return (0, total, 0.0), {}, {}
    leaves: dict[str, Any] = {i.name: tensors.read(given[i.name], _axes(i.dims, positions)) for i in graph.inputs}
    scalars = inputs.scalars(case.definition, case.scalars)
    bounds = bounds_at(graph, case.dims, {**leaves, **scalars}, positions, _freedom(case))
    results = run(given)
    count, worst = 0, 0.0
    for r in graph.results:
        got = tensors.read(results[r.name], _axes(r.value.dims, positions))
        worst = max(worst, _judge(case, case.dims, r.name, bounds[r.name], got, positions, r.value.dims))
        count += got.size
    return (count, total, worst), bounds, results


def _freedom(case: Case) -> Freedom:
    """What kernels of the case's arch may be off by besides roundings."""
    return NVIDIA if rank(case.kernel.arch) > rank("") else NONE


def _axes(dims: tuple[str, ...], positions: Mapping[str, NDArray[np.int64]]) -> Positions:
    return {axis: positions[d] for axis, d in enumerate(dims) if d in positions}


def _judge(
    case: Case,
    sizes: Mapping[str, int],
    name: str,
    bound: Bounded,
    got: NDArray[Any],
    positions: Mapping[str, NDArray[np.int64]],
    dims: tuple[str, ...] = (),
) -> float:
    """The largest error as a part of its bound.

    Raises:
        CallError: E4031.
    """
    if got.shape != bound.value.shape:
        found = f"it has shape {got.shape} where {bound.value.shape} is right"
        raise error("E4031", case=case.title(), dims=_text(sizes), result=name, found=found)
    bad = bound.off(got)
    if len(bad):
        at = tuple(bad[0])
        where = [int(positions[d][i]) if d in positions else int(i) for d, i in zip(dims or at, at)]
        found = (
            f"{len(bad)} of {got.size} compared elements are off, first at {where}: {got[at]} where "
            f"{bound.value[at]} ± {bound.bound[at]:.2e} is right"
        )
        raise error("E4031", case=case.title(), dims=_text(sizes), result=name, found=found)
    if bound.value.dtype.kind != "f":
        return 0.0
    with np.errstate(all="ignore"):
        part = np.abs(got - bound.value) / bound.bound
    return float(np.max(part[np.isfinite(part)], initial=0.0))


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{d}={n}" for d, n in sizes.items())


# -- whole -------------------------------------------------------------------------------------------------------------
def _whole(
    case: Case, graph: Graph, bounds: Mapping[str, Bounded], results: Mapping[str, Any], given: Mapping[str, Any],
    tensors: Tensors,
) -> str:  # fmt: skip
    """Compares every element with the peer in float64; why that could not be done, empty if it was.

    Raises:
        CallError: E4031.
    """
    assert case.definition is not None
    peer = case.definition.peers.get("torch")
    if tensors.torch is None or peer is None:
        return "not whole: no peer in float64"
    if any(i.mutable for i in graph.inputs):
        return "not whole: the op updates its inputs"
    needed = 8 * _stored(graph, {d: graph.extent(d).evaluate(case.dims) for d in graph.extents})
    long = tensors.device == "cpu" and case.value(case.kernel.flops) > _WHOLE_CPU_FLOPS
    if long or needed > min(_WHOLE_BYTES, tensors.free_bytes() // 2):
        return "not whole: the peer in float64 would take too long or too much memory"
    scalars = inputs.scalars(case.definition, case.scalars)
    try:
        expected = peer(**{n: tensors.double(x) for n, x in given.items()}, **scalars, **case.kernel.attributes)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as refused:
        return f"not whole: the peer does not compute in float64 ({str(refused).splitlines()[0][:100]})"
    if expected is NotImplemented:
        return "not whole: the peer has no form of this call"
    wanted = expected if isinstance(expected, dict) else {graph.results[0].name: expected}
    for name, value in wanted.items():
        bound = bounds[name]
        if bound.value.dtype.kind == "f":
            _everywhere(case, name, bound, results[name], value, tensors)
    return ""


def _stored(graph: Graph, extents: Mapping[str, int]) -> int:
    """About how many elements a peer stores at a time: the inputs, and three times the largest other value that is
    stored; the products that a contraction sums are not."""
    nodes = samples.nodes_of(graph)
    products = [
        set(n.arg.dims)
        for n in nodes
        if isinstance(n, Reduce) and n.op == "sum" and isinstance(n.arg, Map) and n.arg.op == "mul"
    ]
    size = {id(n): prod(extents[d] for d in n.dims) for n in nodes}
    given, found = {id(i) for i in graph.inputs}, {id(n) for n in graph.outputs()}
    others = [n for n in nodes if id(n) not in given]
    stored = [size[id(n)] for n in others if id(n) in found or not any(p <= set(n.dims) for p in products)]
    return sum(size[i] for i in given if i in size) + 3 * max(stored)


def _everywhere(case: Case, name: str, bound: Bounded, got: Any, wanted: Any, tensors: Tensors) -> None:
    finite = bound.bound[np.isfinite(bound.bound)]
    same, relative = SLACK * float(finite.max(initial=0)), 2 * UNIT[bound.dtype.name]
    shape, count, first = got.shape, 0, -1
    got, wanted = got.reshape(-1), wanted.reshape(-1)
    for start in range(0, got.numel(), _CHUNK):
        x, y = tensors.double(got[start : start + _CHUNK]), wanted[start : start + _CHUNK]
        near = (x - y).abs() <= same + relative * y.abs()
        off = ~(near | (x == y) | (x.isnan() & y.isnan()))
        here = int(off.sum())
        if here and first < 0:
            first = start + int(off.nonzero()[0])
        count += here
    if count:
        at = [int(i) for i in np.unravel_index(first, tuple(shape))]
        found = (
            f"{count} of {got.numel()} elements are off the peer in float64, first at {at}: "
            f"{float(got[first])} where {float(wanted[first])} is right"
        )
        raise error("E4031", case=case.title(), dims=_text(case.dims), result=name, found=found)
