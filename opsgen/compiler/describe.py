"""The manifest of plans: what a library file says of its kernels."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from .. import __version__
from ..analysis import cost
from ..analysis.indices import index_limits
from ..dsl.extent import Extent
from ..dsl.op import Graph
from ..dsl.trace import ROWS
from ..lowering.kernel import Launch, scalar_type
from ..runtime import manifest
from .launcher import pack_symbol
from .plan import Plan
from .signature import signature


def kernel(plan: Plan) -> manifest.Kernel:
    """One plan as the manifest's kernel."""
    graph = plan.problem.graph
    limits = index_limits(graph)
    packed = {
        p.input: manifest.PackedLayout(p.layout, f"128 + {p.dtype.bytes} * ({p.elements})", pack_symbol(plan, p))
        for p in plan.packings
    }
    inputs = tuple(
        manifest.TensorSpec(
            i.name, i.dtype.name, _dims(graph, i.dims), graph.leading and i.dims[:1] == (ROWS,), i.mutable,
            _smallest(limits.get(i.name, [])), packed.get(i.name),
        )
        for i in graph.inputs
    )  # fmt: skip
    outputs = tuple(
        manifest.TensorSpec(
            r.name, r.dtype.name, _dims(graph, r.value.dims), graph.leading and r.value.dims[:1] == (ROWS,)
        )
        for r in graph.results
        if r.updates is None
    )
    return manifest.Kernel(
        symbol=plan.symbol,
        op=graph.op,
        arch=plan.target.arch,
        inputs=inputs,
        outputs=outputs,
        scalars=tuple(manifest.ScalarSpec(s.name, scalar_type(graph)) for s in graph.scalars),
        attributes=dict(graph.attributes),
        absent=tuple(sorted(graph.absent)),
        constraints=tuple(manifest.Constraint(c.expr, c.message) for c in graph.constraints),
        workspace=_workspace(plan),
        flops=str(cost.flops(graph)),
        bytes=str(cost.bytes_moved(graph)),
        groups=tuple(
            manifest.Group(s.group.pattern, s.schedule.name, dict(s.config), [_launch(x) for x in s.launches])
            for s in plan.steps
        ),
        precision=plan.problem.precision,
        source_hash=plan.problem.hash(),
    )


def _workspace(plan: Plan) -> str:
    """The bytes of all memory between kernels; of a slot those of its largest use."""
    needed: dict[str, int] = {}
    for slot in plan.slots():
        sizes = list(dict.fromkeys(str(s.elements * s.dtype.bytes) for s in slot))
        text = f"max({', '.join(sizes)})" if len(sizes) > 1 else f"({sizes[0]})"
        needed[text] = needed.get(text, 0) + 1
    return " + ".join(text if n == 1 else f"{n} * {text}" for text, n in needed.items()) or "0"


def _launch(launch: Launch) -> str:
    """A kernel's name, and when it runs."""
    conditions = " and ".join(f"{extent} {comparison} {limit}" for extent, comparison, limit in launch.when)
    return f"{launch.name} if {conditions}" if conditions else launch.name


def _smallest(limits: Sequence[Extent]) -> str | None:
    texts = [str(e) for e in limits]
    return f"min({', '.join(texts)})" if len(texts) > 1 else texts[0] if texts else None


def _dims(graph: Graph, dims: tuple[str, ...]) -> tuple[str | int, ...]:
    found: list[str | int] = []
    for d in dims:
        extent = graph.extent(d)
        found.append(str(extent) if extent.value is None else extent.value)
    return tuple(found)


def library(plans: Sequence[Plan], tools: dict[str, str], driver: str | None = None) -> manifest.Manifest:
    """The manifest of a whole library; ``driver``: the least version that runs it."""
    ops: dict[str, manifest.Signature] = {}
    for plan in plans:
        ops.setdefault(plan.problem.op.name, signature(plan.problem))
    return manifest.Manifest(
        opsgen=__version__,
        kind=plans[0].target.kind,
        archs=tuple(dict.fromkeys(p.target.arch for p in plans)),
        ops=ops,
        kernels=tuple(kernel(p) for p in plans),
        tools=tools,
        driver=driver,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
