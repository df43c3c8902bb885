"""Inspect: what an op becomes on its way to a kernel, stage by stage. `data` gives it for programs, `inspect` as text.

    graph   dims, inputs, results, and groups with what they read, compute and store
    proof   the chains of reductions that run in one loop, how that was derived, and why others do not
    te      the op and each group as TVM TE, and as the unscheduled TensorIR that TVM makes of it
    ir      the scheduled TIR of each kernel
    source  the LLVM IR or CUDA source of each kernel, and the C++ launcher
    asm     the assembly of each kernel (for NVIDIA GPUs PTX), and a summary of it

graph and proof need no TVM; proof needs sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsgen.targets.names import Target, parse

from ..analysis import cost
from ..analysis.groups import Group, Partition
from ..analysis.partition import partition
from ..dsl.dtypes import DType, compute_type
from ..dsl.extent import Extent
from ..dsl.op import Op
from ..dsl.tensor import At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor
from ..dsl.trace import ROWS
from ..errors import InternalError, error
from .problem import Problem, Variant, enumerate_problems, variant
from .proof import proof_data, proof_text

if TYPE_CHECKING:
    from ..lowering.kernel import Launch

Data = dict[str, Any]

STAGES = ("graph", "proof", "te", "ir", "source", "asm")
PLANNED = ("schedule", "timeline")


def inspect(
    op: Op | Variant,
    stage: str = "graph",
    target: str | Sequence[str] = "x86",
    *,
    dtype: str | DType | Mapping[str, str] = "float32",
    dims: Mapping[str, int] | None = None,
    absent: Sequence[str] = (),
    **attributes: Any,
) -> str:
    """One stage of an op as text: ``print(og.inspect(rms_norm, "asm", "x86/avx2"))``.

    Args:
        op: an op, or `opsgen.variant` of one, whose choices go before the arguments here.
        stage: ``"graph"``, ``"proof"``, ``"te"``, ``"ir"``, ``"source"`` or ``"asm"``.
        target: one target or several, for ir, source and asm.
        dtype: the floating type, or a mapping from parameter names to types as `opsgen.compile` takes it.
        dims: dims with a fixed extent.
        absent: the optional tensors that are left out.
        attributes: values of specialising attributes; defaults fill the rest.

    Raises:
        CompileError: E3001-E3003, E3008 wrong choices; E3011 unknown stage; E3004, E3005, E3012 it cannot be lowered.
        TargetError: E2001 unknown target; E2003 TVM or sympy is missing.
    """
    return text(data(op, stage, target, dtype=dtype, dims=dims, absent=absent, **attributes))


def data(
    op: Op | Variant,
    stage: str = "graph",
    target: str | Sequence[str] = "x86",
    *,
    dtype: str | DType | Mapping[str, str] = "float32",
    dims: Mapping[str, int] | None = None,
    absent: Sequence[str] = (),
    **attributes: Any,
) -> Data:
    """What `inspect` shows, as what JSON can hold."""
    if stage not in STAGES:
        fix = f"Those planned are {', '.join(PLANNED)}." if stage in PLANNED else "Name one of them."
        raise error("E3011", found=stage, known=", ".join(STAGES), fix=fix)
    problem = one_problem(op, dtype, dims or {}, absent, attributes)
    targets = parse(target) if stage not in ("graph", "proof", "te") else ()
    makers: dict[str, Callable[[], Data]] = {
        "graph": lambda: graph_data(problem),
        "proof": lambda: proof_data(problem.graph),
        "te": lambda: te_data(problem),
        "ir": lambda: {"kernels": [k for t in targets for k in kernels(problem, t, "ir")]},
        "source": lambda: source_data(problem, targets),
        "asm": lambda: {"kernels": [k for t in targets for k in kernels(problem, t, "asm")]},
    }
    graph = problem.graph
    head = {
        "stage": stage, "op": graph.op, "call": problem.op.call_form(), "attributes": dict(graph.attributes),
        "absent": sorted(graph.absent), "bound": dict(problem.bound), "precision": problem.precision,
    }  # fmt: skip
    return head | makers[stage]()


def one_problem(
    op: Op | Variant,
    dtype: str | DType | Mapping[str, str],
    dims: Mapping[str, int],
    absent: Sequence[str],
    attributes: Mapping[str, Any],
) -> Problem:
    """The one problem that the choices stand for: no absent tensors, and defaults for attributes that are not named."""
    given = op if isinstance(op, Variant) else variant(op, absent=list(absent), **attributes)
    values = {p.name: given.op._attribute(p, given.attributes) for p in given.op.parameters if p.role == "attribute"}
    left_out = given.absent if given.absent is not None else frozenset(absent)
    chosen = Variant(given.op, left_out, values, given.dtype, {**dims, **given.dims})
    return enumerate_problems([chosen], [dtype], {})[0]


# -- graph -------------------------------------------------------------------------------------------------------------
def graph_data(problem: Problem) -> Data:
    """The graph and its groups."""
    graph = problem.graph
    parts = partition(graph)
    names = stored_names(parts)
    return {
        "dims": {d: str(graph.extent(d)) for d in graph.extents},
        "leading": graph.leading,
        "inputs": [_tensor(i.name, i.dims, i.dtype) | {"updated": i.mutable} for i in graph.inputs],
        "scalars": [s.name for s in graph.scalars],
        "results": [_tensor(r.name, r.value.dims, r.dtype) | {"updates": r.updates is not None} for r in graph.results],
        "constraints": [{"expr": c.expr, "message": c.message} for c in graph.constraints],
        "flops": formula(cost.flops(graph), graph.extents),
        "bytes": formula(cost.bytes_moved(graph), graph.extents),
        "groups": [_group(parts, group, names) for group in parts.groups],
    }


def _tensor(name: str, dims: Sequence[str], dtype: DType) -> Data:
    return {"name": name, "dtype": dtype.name, "dims": list(dims)}


def stored_names(parts: Partition) -> dict[int, str]:
    """What each stored node is called, by id: the result that it is, or its group and place there."""
    found: dict[int, str] = {}
    for group in parts.groups:
        for i, node in enumerate(group.stored):
            results = [r.name for r in parts.graph.results if r.value is node]
            found[id(node)] = results[0] if results else f"group{group.index}_{i}"
    return found


def _group(parts: Partition, group: Group, names: Mapping[int, str]) -> Data:
    graph = parts.graph
    own, read = parts.contents(group)
    moved = Extent.const(0)
    for node in read:
        if group.update is not None and node is group.update.old:
            continue  # it is written, and not read
        kind = node.dtype if isinstance(node, Input) else compute_type(node.dtype)
        moved = moved + cost.elements(graph, node.dims) * kind.bytes
    for node in group.stored:
        kinds = [r.dtype for r in graph.results if r.value is node] or [compute_type(node.dtype)]
        dims = node.dims if group.update is None else group.update.space
        for kind in kinds:
            moved = moved + cost.elements(graph, dims) * kind.bytes
    numbers: dict[int, int] = {}
    nodes = []
    for place, node in enumerate([*read, *own]):
        numbers[id(node)] = place
        nodes.append(_node(node, numbers, names if place < len(read) else {}))
    stores = [_tensor(names[id(s)], s.dims, s.dtype) | {"node": numbers[id(s)]} for s in group.stored]
    for entry, node in zip(stores, group.stored, strict=True):
        entry["results"] = [r.name for r in graph.results if r.value is node]
    return {
        "index": group.index,
        "pattern": group.pattern,
        "space": list(group.space),
        "over": list(group.over),
        "reads": [n.name if isinstance(n, Input) else names[id(n)] for n in read]
        + [n.name for n in own if isinstance(n, Scalar)],
        "stores": stores,
        "flops": formula(cost.flops(graph, tuple(own)), graph.extents),
        "bytes": formula(moved, graph.extents),
        "nodes": nodes,
    }


def _node(node: Tensor, numbers: Mapping[int, int], names: Mapping[int, str]) -> Data:
    """One node: its children are given by their place in the list."""
    made: Data = {"op": "", "dtype": node.dtype.name, "dims": list(node.dims), "args": []}
    if id(node) in names:
        return made | {"op": "stored", "name": names[id(node)]}
    made["args"] = [numbers[id(c)] for c in node.children()]
    if isinstance(node, (Input, Scalar)):
        return made | {"op": "input" if isinstance(node, Input) else "scalar", "name": node.name}
    if isinstance(node, Const):
        return made | {"op": "const", "value": repr(node.value)}
    if isinstance(node, (Index, Size)):
        return made | {"op": "index" if isinstance(node, Index) else "size", "dim": node.dim}
    if isinstance(node, Map):
        return made | {"op": node.op}
    if isinstance(node, Reduce):
        return made | {"op": node.op, "over": list(node.over)}
    if isinstance(node, Scan):
        return made | {"op": node.op, "along": node.over, "exclusive": node.exclusive, "reverse": node.reverse}
    if isinstance(node, At):
        return made | {"op": "view" if node.exact else "at", "coords": list(node.coords)}
    if isinstance(node, Concat):
        return made | {"op": "concat", "dim": node.dim, "part_dims": list(node.part_dims)}
    raise InternalError(f"no description of {node!r}")


def formula(extent: Extent, dims: Iterable[str] = ()) -> str:
    """An extent as a sum of products, equal ones taken together, in the order of ``dims``: ``2*rows*n + 3*rows``."""
    Terms = dict[tuple[str, ...], int]

    def binary(op: str, a: Terms, b: Terms) -> Terms:
        if op == "floordiv":
            return {(f"(({show(a)}) // ({show(b)}))",): 1}
        found: Terms = {}
        if op == "add":
            for terms in (a, b):
                for names, n in terms.items():
                    found[names] = found.get(names, 0) + n
        else:
            for left, n in a.items():
                for right, m in b.items():
                    names = tuple(sorted(left + right, key=order.index))
                    found[names] = found.get(names, 0) + n * m
        return found

    def leaf(name: str) -> Terms:
        if name not in order:
            order.append(name)
        return {(name,): 1}

    def show(terms: Terms) -> str:
        parts = []
        for names, n in sorted(terms.items(), key=lambda item: -len(item[0])):
            if n:
                parts.append("*".join(([str(n)] if n != 1 or not names else []) + list(names)))
        return " + ".join(parts) or "0"

    order = _Order(dims)
    return show(extent.fold(leaf, lambda value: {(): value}, binary))


class _Order(list[str]):
    """Names in a given order; others, and quotients, follow as they are met."""

    def index(self, name: str, *_: Any) -> int:
        if name not in self:
            self.append(name)
        return super().index(name)


# -- what needs TVM ----------------------------------------------------------------------------------------------------
def require_tvm() -> None:
    """Raises TargetError E2003 where TVM, or what else compiling needs, is missing."""
    try:
        import jinja2  # noqa: F401
        import tvm  # noqa: F401
    except ImportError as missing:
        package = "jinja2" if missing.name == "jinja2" else "apache-tvm"
        raise error("E2003", package=package, found=missing, fix="opsgen[compile]") from None


def te_data(problem: Problem) -> Data:
    """The whole op and each of its groups in TE."""
    require_tvm()
    from ..lowering.to_te import lower, lower_group

    parts = partition(problem.graph)
    found: list[Data] = [{"name": problem.op.name, "group": None, "pattern": None, "lowered": lower(problem.graph)}]
    for g in parts.groups:
        found.append(
            {"name": f"group {g.index}", "group": g.index, "pattern": g.pattern, "lowered": lower_group(parts, g)}
        )
    for part in found:
        lowered: Any = part.pop("lowered")
        part["te"] = lowered.text()
        part["tir"] = lowered.prim_func().script()
    return {"parts": found}


def kernels(problem: Problem, target: Target, stage: str) -> list[Data]:
    """Each kernel of a problem on a target: its TIR, LLVM IR or CUDA source, or assembly."""
    require_tvm()
    from .plan import make_plan

    found = []
    for step in make_plan(problem, target).steps:
        for launch in step.launches:
            entry: Data = {
                "name": launch.name, "target": str(target), "group": step.group.index, "pattern": step.group.pattern,
                "schedule": step.schedule.name, "config": dict(step.config),
            }  # fmt: skip
            if stage == "ir":
                entry["tir"] = launch.function.script()
            else:
                entry |= {"x86": _x86_code, "cuda": _cuda_code}[target.kind](launch, target.arch, stage)
            found.append(entry)
    return found


def _x86_code(launch: Launch, arch: str, stage: str) -> Data:
    from opsgen.targets.x86 import codegen

    from .assembly import clean, summary

    module = codegen.build({launch.name: launch.function}, arch)
    if stage == "source":
        return {"llvm": str(module.inspect_source("ll"))}
    asm = clean(codegen.assembly(module))
    return {"asm": asm, "summary": summary(asm)}


def _cuda_code(launch: Launch, arch: str, stage: str) -> Data:
    from opsgen.targets.cuda import ARCHS, codegen, toolchain

    source = codegen.kernel_source(launch.name, launch.function, arch)
    if stage == "source":
        return {"cuda": source}
    [(_, unit)] = codegen.units({launch.name: source})
    _, used = codegen.compile_units([unit], arch)
    found: Data = {"asm": toolchain.ptx(unit, ARCHS[arch])}
    return found | ({"usage": vars(used[launch.name])} if launch.name in used else {})


def source_data(problem: Problem, targets: Sequence[Target]) -> Data:
    """The LLVM IR or CUDA source of each kernel, and the launcher of all."""
    require_tvm()
    from .launcher import render
    from .plan import make_plan

    found = [k for t in targets for k in kernels(problem, t, "source")]
    plans = [make_plan(problem, t) for t in targets]
    values: Data = {}
    if targets[0].kind == "cuda":
        from opsgen.targets.cuda import ARCHS, toolchain

        ptx = any(ARCHS[t.arch].ptx for t in targets)
        values = {
            "cubins": [f"{t.arch}.cubin" for t in targets],
            "kernels": [{"name": x.name, "cubin": i} for i, p in enumerate(plans) for x in p.launches],
            "driver_wanted": toolchain.compiler().driver_number(ptx),
        }
    return {"kernels": found, "launcher": render(plans, **values)}


# -- text --------------------------------------------------------------------------------------------------------------
def text(found: Data) -> str:
    """What `data` gave, for reading."""
    stage = found["stage"]
    lines = _head(found)
    if stage == "graph":
        lines += _graph_text(found)
    elif stage == "proof":
        lines += proof_text(found)
    elif stage == "te":
        for part in found["parts"]:
            pattern = f", {part['pattern']}" if part["pattern"] else ""
            lines += [
                "",
                f"# --- {part['name']}{pattern}: TE",
                part["te"],
                "",
                f"# --- {part['name']}: TensorIR",
                part["tir"],
            ]
    else:
        for kernel in found["kernels"]:
            lines += _kernel_text(kernel)
        if "launcher" in found:
            lines += ["", "// --- launcher", found["launcher"]]
    return "\n".join(line.rstrip() for part in lines for line in part.splitlines() or [""]) + "\n"


def _head(found: Data) -> list[str]:
    chosen = [f"{n}={v!r}" for n, v in (found["attributes"] | found["bound"]).items()]
    if found["absent"]:
        chosen.append(f"without {', '.join(found['absent'])}")
    chosen.append(f"computes in {found['precision']}")
    return [f"# {found['call']}", f"# {'; '.join(chosen)}"]


def _graph_text(found: Data) -> list[str]:
    lines = ["", "dims"]
    for name, extent in found["dims"].items():
        what = "free" if extent == name else f"= {extent}"
        if name == ROWS and found["leading"]:
            what += ', the leading dims "...", flattened'
        lines.append(f"  {name:<16} {what}")
    lines += ["", "inputs"]
    lines += [f"  {i['name']:<16} {_type(i)}{', updated in place' if i['updated'] else ''}" for i in found["inputs"]]
    lines += [f"  {name:<16} run-time scalar" for name in found["scalars"]]
    lines += ["", "results"]
    lines += [f"  {r['name']:<16} {_type(r)}{', updates the input' if r['updates'] else ''}" for r in found["results"]]
    if found["constraints"]:
        lines += ["", "constraints", *(f"  {c['expr']}: {c['message']}" for c in found["constraints"])]
    lines += ["", f"flops  {found['flops']}", f"bytes  {found['bytes']}"]
    for group in found["groups"]:
        over = f" over {_dims(group['over'])}" if group["over"] else ""
        lines += ["", f"group {group['index']}: {group['pattern']}, space {_dims(group['space'])}{over}"]
        lines.append(f"  reads   {', '.join(group['reads']) or 'nothing'}")
        stores = [f"{s['name']}{'' if s['results'] else ' (workspace)'}" for s in group["stores"]]
        lines.append(f"  stores  {', '.join(stores)}")
        lines += [f"  flops   {group['flops']}", f"  bytes   {group['bytes']}"]
        lines += _trees(group)
    return lines


def _type(t: Data) -> str:
    return f"{t['dtype']}{_dims(t['dims'])}"


def _dims(dims: Sequence[str]) -> str:
    return f"[{', '.join(dims)}]"


_LEAVES = frozenset({"input", "stored", "scalar", "const", "index", "size"})


def _trees(group: Data) -> list[str]:
    """What a group stores as trees, one node a line; a node used again is named ``%n`` where it first stands."""
    nodes = group["nodes"]
    uses = [0] * len(nodes)
    for node in nodes:
        for arg in node["args"]:
            uses[arg] += 1
    stored = {s["node"]: s["name"] for s in group["stores"]}
    shown: set[int] = set()
    lines: list[str] = []
    stack = [(s["node"], 1) for s in reversed(group["stores"])]
    while stack:
        number, depth = stack.pop()
        node = nodes[number]
        name = stored.get(number) or (f"%{number}" if uses[number] > 1 else "")
        if node["op"] in _LEAVES and number not in stored:
            lines.append("  " * depth + _leaf(node))
            continue
        if number in shown:
            lines.append("  " * depth + name)
            continue
        shown.add(number)
        label = f"{name} = " if name else ""
        what = _leaf(node) if node["op"] in _LEAVES else _inner(node)
        lines.append("  " * depth + f"{label}{what}  {_type(node)}")
        stack.extend((arg, depth + 1) for arg in reversed(node["args"]))
    return lines


def _inner(node: Data) -> str:
    if "over" in node:
        return f"{node['op']} over {', '.join(node['over'])}"
    if "along" in node:
        how = [name for name in ("exclusive", "reverse") if node[name]]
        return f"running {node['op']} along {node['along']}" + (f" ({', '.join(how)})" if how else "")
    if node["op"] == "at":
        return f"read at positions along {', '.join(node['coords'])}"
    if node["op"] == "view":
        return f"view of {', '.join(node['coords'])}" if node["coords"] else "transpose"
    if node["op"] == "concat":
        return f"concat along {node['dim']} of {', '.join(node['part_dims'])}"
    return str(node["op"])


def _leaf(node: Data) -> str:
    if node["op"] == "const":
        return str(node["value"])
    if node["op"] in ("index", "size"):
        return f"{node['op']}({node['dim']})"
    return str(node["name"])


def _kernel_text(kernel: Data) -> list[str]:
    config = ", ".join(f"{n}={v}" for n, v in kernel["config"].items())
    mark = ";" if "llvm" in kernel else "//" if kernel["target"].startswith("cuda/") and "tir" not in kernel else "#"
    lines = [
        "",
        f"{mark} --- {kernel['name']} on {kernel['target']}: group {kernel['group']}, {kernel['schedule']} ({config})",
    ]
    if "summary" in kernel:
        lines += [f"# {line}" for line in _summary_text(kernel["summary"])]
    if "usage" in kernel:
        used = kernel["usage"]
        lines.append(
            f"// registers {used['registers']}; bytes spilled {used['spilled']}, of stack {used['stack']}, "
            f"of static shared memory {used['shared']}"
        )
    return [*lines, next((kernel[k] for k in ("tir", "llvm", "cuda", "asm") if k in kernel), "")]


def _summary_text(found: Data) -> list[str]:
    def registers(r: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {n}" for name, n in r.items())

    libm = ", ".join(f"{name} {n}" for name, n in found["libm"].items()) or "none"
    lines = [
        f"instructions {found['instructions']}; widest register: {registers(found['registers'])}; fma {found['fma']}",
        f"vector moves to the stack {found['stack_stores']}, from it {found['stack_loads']}; calls to libm: {libm}",
    ]
    for loop in found["loops"][:1]:
        lines.append(
            f"busiest innermost loop {loop['label']}: instructions {loop['instructions']}; "
            f"{registers(loop['registers'])}; fma {loop['fma']}; "
            f"to the stack {loop['stack_stores']}, from it {loop['stack_loads']}"
        )
    return lines
