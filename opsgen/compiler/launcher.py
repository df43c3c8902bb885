"""The C++ launcher of a library: from plans to the values that templates/<kind>/launcher.cc.j2 is filled with."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..analysis.indices import index_limits
from ..dsl.extent import Extent
from ..dsl.op import Graph
from ..dsl.tensor import Input
from ..errors import InternalError
from ..lowering.kernel import MAP_BYTES, Grid, Launch, Param, TensorMap
from .plan import Plan

if TYPE_CHECKING:
    from opsgen.schedules.common.schedule import Packing

_INDEX_TYPES = {"int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t"}


def c_expr(extent: Extent) -> str:
    """An extent in C; dims are variables ``d_<name>``."""
    symbols = {"add": "+", "mul": "*", "floordiv": "/"}
    return extent.fold(lambda n: f"d_{n}", lambda v: f"INT64_C({v})", lambda op, a, b: f"({a} {symbols[op]} {b})")


def entry(plan: Plan) -> dict[str, Any]:
    """The template's values for one plan."""
    graph = plan.problem.graph
    written: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    position = 1
    packed = {p.input for p in plan.packings}
    for node in graph.inputs:
        inputs.append(_tensor(node.name, node.dims, node.dtype.bytes, position, graph.leading, "in"))
        inputs[-1]["packed"] = node.name in packed
        if node.mutable:
            written.append(inputs[-1])
        position += 1
    scalars = []
    for s in graph.scalars:
        scalars.append({"var": f"s_{s.name}", "position": position})
        position += 1
    outputs = []
    for r in graph.results:
        if r.updates is None:
            outputs.append(_tensor(r.name, r.value.dims, r.dtype.bytes, position, graph.leading, "out"))
            position += 1
    tensors = [*inputs, *outputs]
    written += outputs
    others = [(a, b) for i, a in enumerate(written) for b in tensors if b not in written[: i + 1]]
    limits = index_limits(graph)
    by_name = {i["name"]: i for i in inputs}
    used = {p.name for launch in plan.launches for p in launch.params if p.kind == "dim"}
    used |= {n for x in plan.launches for extent, _, _ in x.when for n in extent.names()}
    grids = [launch.grid for launch in plan.launches if launch.grid is not None]
    used |= {n for g in grids for n in g.blocks.names() | g.shared.names()}
    used |= {n for launch in plan.launches for m in launch.maps for e in m.extents for n in e.names()}
    used |= {n for launch in plan.launches if launch.cost is not None for n in launch.cost.names()}
    used |= {n for s in plan.spaces for n in s.elements.names()}
    used |= {n for extents in limits.values() for e in extents for n in e.names()}
    used |= {n for c in graph.checks for n in graph.extent(c.dim).names()}
    return {
        "title": f"{graph.op} {dict(graph.attributes) or ''} without {sorted(graph.absent)} on {plan.target}",
        "symbol": plan.symbol,
        "tensors": tensors,
        "scalars": scalars,
        "dims": [{"var": f"d_{d}", "value": v} for d, v in _dims(graph, graph.inputs).items() if d in used],
        "written": written,
        "pairs": others,
        "checks": [
            {
                "function": function,
                "type": _INDEX_TYPES[_input(graph, n).dtype.name],
                "var": by_name[n]["var"],
                "name": n,
                "limit": c_expr(e),
            }
            for function, n, e in _checks(graph, limits)
        ],
        "slots": [
            [{"var": f"w_{s.name}", "bytes": f"{c_expr(s.elements)} * {s.dtype.bytes}"} for s in slot]
            for slot in plan.slots()
        ],
        "contests": _contests(plan),
        "launches": [
            {
                "name": launch.name,
                "when": _condition(launch, graph, contest),
                "choice": launch.choice,
                "maps": bool(launch.maps),
                "arguments": [_map(launch, p, graph) or _value(p, graph) for p in launch.params],
                "grid": None if launch.grid is None else _grid(launch.grid),
            }
            for launch, contest in zip(plan.launches, _in_contest(plan), strict=True)
        ],
    }


def _in_contest(plan: Plan) -> list[tuple[int, int] | None]:
    """Of each launch: which contest it is in, and its number there. A contest is a run of launches of one choice that
    have costs.
    """
    found: list[tuple[int, int] | None] = []
    contests, before = -1, None
    for launch in plan.launches:
        if launch.cost is None:
            found.append(None)
        elif found and found[-1] is not None and launch.choice == before:
            found.append((contests, found[-1][1] + 1))
        else:
            contests += 1
            found.append((contests, 0))
        before = launch.choice
    return found


def _contests(plan: Plan) -> list[dict[str, Any]]:
    """The launches of each contest: their conditions and costs."""
    found: list[dict[str, Any]] = []
    for launch, contest in zip(plan.launches, _in_contest(plan), strict=True):
        if contest is None or launch.cost is None:
            continue
        if contest[1] == 0:
            found.append({"var": f"cheapest_{contest[0]}", "launches": []})
        condition = _condition(launch, plan.problem.graph, None, alone=True)
        found[-1]["launches"].append({"when": condition, "cost": c_expr(launch.cost), "number": contest[1]})
    return found


def _checks(graph: Graph, limits: dict[str, list[Extent]]) -> list[tuple[str, str, Extent]]:
    """What is checked of the elements of inputs: the function that does it, the input, the limit."""
    indices = [("Indices", n, e) for n, extents in limits.items() for e in extents]
    functions = {"offsets": "Offsets", "lengths": "Lengths", "sorted": "Sorted"}
    return indices + [(functions[c.kind], c.input, graph.extent(c.dim)) for c in graph.checks]


def _condition(launch: Launch, graph: Graph, contest: tuple[int, int] | None, alone: bool = False) -> str:
    """When a launch runs; ``alone``: whether it could, whatever others do."""
    found = [f"!done_{launch.choice}"] if launch.choice and not alone else []
    if contest is not None:
        return " && ".join([*found, f"cheapest_{contest[0]} == {contest[1]}"])
    found += [f"{c_expr(extent)} {comparison} {limit}" for extent, comparison, limit in launch.when]
    for param, multiple in launch.aligned:
        value = _bytes(param, graph) if param.dim else f"reinterpret_cast<uintptr_t>({_value(param, graph)['value']})"
        found += [f"{value} % {multiple} == 0"] + [f"{value} > 0"] * bool(param.dim)
    return " && ".join(found)


def _bytes(stride: Param, graph: Graph) -> str:
    """A stride in bytes."""
    if stride.kind == "input_stride":
        dtype = _input(graph, stride.name).dtype
    else:
        dtype = next(r.dtype for r in graph.results if r.name == stride.name)
    return f"{_value(stride, graph)['value']} * {dtype.bytes}"


_TENSOR_MAP_TYPES = {
    "uint8": 0, "int8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "int32": 3, "float16": 6, "float32": 7, "bfloat16": 9,
    "tfloat32": 11,
}  # fmt: skip
"""CUtensorMapDataType."""


def _map(launch: Launch, p: Param, graph: Graph) -> dict[str, Any] | None:
    """What a tensor map is made of; None for other parameters."""
    if p.kind != "tensor_map":
        return None
    found = next(m for m in launch.maps if m.name == p.name)
    return {
        "type": "TensorMap",
        "address": _value(found.memory, graph)["value"],
        "element": _TENSOR_MAP_TYPES[found.dtype],
        "extents": [c_expr(e) for e in found.extents],
        "strides": [
            _bytes(s, graph) if isinstance(s, Param) else f"{c_expr(s)} * {MAP_BYTES[found.dtype]}"
            for s in found.strides
        ],
        "box": [_box(found, i) for i in range(len(found.box))],
    }


def _box(tensor_map: TensorMap, dim: int) -> str:
    """The extent of the map's boxes along a dim, counted from the innermost."""
    box, most = tensor_map.box[dim], c_expr(tensor_map.extents[dim])
    if not tensor_map.clipped or dim == 0 or box == 1:
        return str(box)
    return f"static_cast<unsigned>({most} < {box} ? {most} : {box})"


def _input(graph: Graph, name: str) -> Input:
    return next(i for i in graph.inputs if i.name == name)


def _tensor(
    name: str, dims: tuple[str, ...], itemsize: int, position: int, leading: bool, prefix: str
) -> dict[str, Any]:
    flattened = leading and dims[:1] == ("rows",)
    return {
        "name": name,
        "var": f"{prefix}_{name}",
        "position": position,
        "itemsize": itemsize,
        "lead": len(dims) - 1 if flattened else -1,
        "packed": False,
    }


def _dims(graph: Graph, inputs: tuple[Input, ...]) -> dict[str, str]:
    """Each free dim, from the first of the inputs that has it."""
    found: dict[str, str] = {}
    for node in inputs:
        for i, d in enumerate(node.dims):
            if graph.extents[d] == Extent.dim(d):
                found.setdefault(d, f"in_{node.name}.shape[{i}]")
    return found


_ANY = {"void*": "Pointer", "int64_t": "Int", "float": "Float", "double": "Float"}
"""What makes a TVM-FFI argument of a value, by its type in C."""


def _argument(value: str, c_type: str) -> dict[str, str]:
    return {"value": value, "type": c_type, "any": _ANY[c_type]}


def _value(p: Param, graph: Graph) -> dict[str, str]:
    """What is passed for a parameter: its type and value in C."""
    if p.kind == "input":
        return _argument(f"in_{p.name}.data", "void*")
    if p.kind == "result":
        return _argument(f"out_{p.name}.data", "void*")
    if p.kind == "workspace":
        return _argument(f"memory.base + w_{p.name}_at", "void*")
    if p.kind == "scalar":
        return _argument(f"s_{p.name}", {"float32": "float", "float64": "double"}[p.dtype])
    if p.kind == "dim":
        return _argument(f"d_{p.name}", "int64_t")
    if p.kind == "input_stride":
        return _argument(f"in_{p.name}.stride[{_input(graph, p.name).dims.index(p.dim)}]", "int64_t")
    if p.kind == "result_stride":
        dims = next(r.value.dims for r in graph.results if r.name == p.name)
        return _argument(f"out_{p.name}.stride[{dims.index(p.dim)}]", "int64_t")
    raise InternalError(f"a kernel parameter of kind {p.kind}")


def _grid(grid: Grid) -> dict[str, Any]:
    return {
        "blocks": c_expr(grid.blocks),
        "threads": grid.threads,
        "shared": c_expr(grid.shared),
        "per_sm": grid.per_sm or 0,
        "cluster": grid.cluster,
    }


def pack_symbol(plan: Plan, packing: Packing) -> str:
    """The launcher that packs: one for all kernels of an op that take a weight in the same layout and with the same
    dims bound.
    """
    graph = plan.problem.graph
    source = _input(graph, packing.input)
    what = [packing.layout, str(packing.elements), *(f"{d}={graph.extents[d]}" for d in source.dims)]
    return f"pack_{graph.op}_{packing.input}_{hashlib.sha256(repr(what).encode()).hexdigest()[:10]}"


def pack_entry(plan: Plan, packing: Packing) -> dict[str, Any]:
    """The template's values for the launcher that packs."""
    graph = plan.problem.graph
    source = _input(graph, packing.input)
    return {
        "symbol": pack_symbol(plan, packing),
        "tensor": _tensor(source.name, source.dims, source.dtype.bytes, 1, graph.leading, "in"),
        "dims": [{"var": f"d_{d}", "value": v} for d, v in _dims(graph, (source,)).items()],
        "launch": packing.launch.name,
        "arguments": [
            _argument("out + kPackedHeader", "void*") if p.kind == "workspace" else _value(p, graph)
            for p in packing.launch.params
        ],
    }


@lru_cache(maxsize=1)
def _templates() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("opsgen", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(plans: list[Plan], **values: Any) -> str:
    """The launcher's source for all plans of a library; ``values``: what else its template takes."""
    packs: dict[str, dict[str, Any]] = {}
    for plan in plans:
        for packing in plan.packings:
            packs.setdefault(pack_symbol(plan, packing), pack_entry(plan, packing))  # the first one's kernel is built
    template = _templates().get_template(f"{plans[0].target.kind}/launcher.cc.j2")
    return str(template.render(entries=[entry(p) for p in plans], packs=list(packs.values()), **values))
