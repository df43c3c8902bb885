"""The C++ launcher of a library: from plans to the values that templates/x86/launcher.cc.j2 is filled with."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..dsl.extent import Extent
from ..dsl.functions import checked_input
from ..dsl.op import Graph
from ..dsl.tensor import At, Input, Tensor, walk
from ..errors import InternalError
from ..lowering.kernel import Launch, Param
from .plan import Plan

if TYPE_CHECKING:
    from opsgen.schedules.common.schedule import Packing

_INDEX_TYPES = {"int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t"}


def c_expr(extent: Extent) -> str:
    """An extent in C; dims are variables ``d_<name>``."""
    symbols = {"add": "+", "mul": "*", "floordiv": "/"}
    return extent.fold(lambda n: f"d_{n}", lambda v: f"INT64_C({v})", lambda op, a, b: f"({a} {symbols[op]} {b})")


def index_limits(graph: Graph) -> dict[str, list[Extent]]:
    """Inputs whose elements are positions, and what they must stay below: every dim that they index."""
    found: dict[str, list[Extent]] = {}

    def visit(node: Tensor) -> None:
        if not isinstance(node, At) or node.exact:
            return
        for dim, position in node.coords.items():
            source = checked_input(position)
            if source is not None:
                limits = found.setdefault(source.name, [])
                if graph.extent(dim) not in limits:
                    limits.append(graph.extent(dim))

    walk(graph.outputs(), visit)
    return found


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
        "launches": [
            {
                "name": launch.name,
                "when": _condition(launch),
                "arguments": [_value(p, graph) for p in launch.params],
            }
            for launch in plan.launches
        ],
    }


def _checks(graph: Graph, limits: dict[str, list[Extent]]) -> list[tuple[str, str, Extent]]:
    """What is checked of the elements of inputs: the function that does it, the input, the limit."""
    indices = [("Indices", n, e) for n, extents in limits.items() for e in extents]
    functions = {"offsets": "Offsets", "lengths": "Lengths"}
    return indices + [(functions[c.kind], c.input, graph.extent(c.dim)) for c in graph.checks]


def _condition(launch: Launch) -> str:
    return " && ".join(f"{c_expr(extent)} {comparison} {limit}" for extent, comparison, limit in launch.when)


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


def _value(p: Param, graph: Graph) -> str:
    if p.kind == "input":
        return f"Pointer(in_{p.name}.data)"
    if p.kind == "result":
        return f"Pointer(out_{p.name}.data)"
    if p.kind == "workspace":
        return f"Pointer(memory.base + w_{p.name}_at)"
    if p.kind == "scalar":
        return f"Float(s_{p.name})"
    if p.kind == "dim":
        return f"Int(d_{p.name})"
    if p.kind == "input_stride":
        return f"Int(in_{p.name}.stride[{_input(graph, p.name).dims.index(p.dim)}])"
    if p.kind == "result_stride":
        dims = next(r.value.dims for r in graph.results if r.name == p.name)
        return f"Int(out_{p.name}.stride[{dims.index(p.dim)}])"
    raise InternalError(f"a kernel parameter of kind {p.kind}")


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
            "Pointer(out + kPackedHeader)" if p.kind == "workspace" else _value(p, graph) for p in packing.launch.params
        ],
    }


@lru_cache(maxsize=1)
def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("opsgen", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("x86/launcher.cc.j2")


def render(plans: list[Plan]) -> str:
    """The launcher's source for all plans of a library."""
    packs: dict[str, dict[str, Any]] = {}
    for plan in plans:
        for packing in plan.packings:
            packs.setdefault(pack_symbol(plan, packing), pack_entry(plan, packing))  # the first one's kernel is built
    return str(_template().render(entries=[entry(p) for p in plans], packs=list(packs.values())))
