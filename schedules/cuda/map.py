"""Maps on NVIDIA GPUs: elementwise values, broadcasts and gathers, a few strips of the innermost dim a thread.

Neighbouring threads have neighbouring strips, and all operands of a thread's strips are on their way before the first
value is computed. Memory that is not aligned has a kernel with strips of one element.
"""

from __future__ import annotations

from tvm import tirx

from opsgen.analysis import cost
from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import Const, Map, Scalar
from opsgen.lowering.kernel import Comparison, Launch, Param
from opsgen.lowering.statements import Code, Expr, add, ceildiv, i64, mul
from opsgen.lowering.to_tir import Memory, Scope
from opsgen.schedules.common.positions import product_of, unflatten
from opsgen.schedules.common.schedule import Config, Context, Schedule

from . import half_forms
from .conditions import rest_of, undecided
from .kernels import DeviceKernel
from .registers import Emit, Registers, bytes_of
from .strip import alignment, readable, width_for


def build(context: Context, config: Config) -> list[Launch]:
    """One kernel for aligned memory, and one for any."""
    if not context.group.stored[0].dims:
        return [_single(context)]
    best = _Map(context, config, "map", None)
    if best.width == 1:
        return [best.build((), "")]
    choice = f"group{context.group.index}"
    any_memory = _Map(context, config, "elements", 1).build((), choice)
    rest = rest_of(context.partition.graph.extent(best.last), best.width)
    whole = undecided((rest, "<=", 0)) if best.outer else ()
    return [any_memory] if whole is None else [best.build(whole, choice), any_memory]


def _single(context: Context) -> Launch:
    """The kernel for results without dims."""
    kernel = DeviceKernel(context, "map", 32)
    half_forms.use(kernel)
    with kernel.thread_tasks(i64(1)) as (_, body):
        kernel.store_all(Scope(kernel, body, {}))
    return kernel.launch_on(cost.elements(context.partition.graph, ()))


_SHORT = frozenset({"add", "sub", "mul", "neg", "abs", "max", "min", "cast"})


class _Map:
    """The kernel for strips of ``width`` positions; None: as wide as they can be."""

    def __init__(self, context: Context, config: Config, part: str, width: int | None) -> None:
        self.group = context.group
        self.config = config
        self.kernel = kernel = DeviceKernel(context, part, config["threads"])
        half_forms.use(kernel)
        self.dims = self.group.stored[0].dims
        self.extents = {d: kernel.extent(d) for d in self.dims}
        *outer, self.last = self.dims
        self.outer = tuple(outer)
        self.loads = readable(kernel, self.group.stored, self.last, set(self.dims))
        places = [p for node in self.group.stored for p in kernel.destinations(node) if p.dims[-1:] == (self.last,)]
        self.memories = [*self.loads.values(), *places]
        self.width = width or (width_for(self.memories) if places else 1)

    def aligned(self) -> tuple[tuple[Param, int], ...]:
        """What must be a multiple of so many bytes for whole strips to be moved at once."""
        found: dict[Param, int] = {}
        for m in self.memories:
            address, strides = self.kernel.parameters_of(m)
            for p in (address, *strides):
                found[p] = max(found.get(p, 1), alignment(m, self.width))
        return tuple((p, n) for p, n in found.items() if n > 1) if self.width > 1 else ()

    def build(self, when: tuple[Comparison, ...], choice: str) -> Launch:
        """The kernel; a thread has ``each`` strips, a block's width apart."""
        kernel, config, width = self.kernel, self.config, self.width
        each, threads = config["strips"], config["threads"]
        code = kernel.code
        in_row = code.bind(ceildiv(self.extents[self.last], width), "strips")
        total = code.bind(mul(product_of(self.extents, self.outer), in_row), "total")
        with kernel.tasks(ceildiv(total, threads * each)) as (task, body):
            first = body.bind(add(task * i64(threads * each), kernel.thread), "first")
            registers = Registers(kernel, body, self.last, width, each, self.loads)
            whole: list[Expr] = []
            places: list[tuple[Expr, Expr, Scope]] = []
            for i in range(each):
                strip = body.bind(add(first, i64(i * threads)), "strip")
                # Past the end the last row, for what depends on the row alone is read whether there is one or not.
                row = body.bind(tirx.truncdiv(tirx.Min(strip, total - i64(1)), in_row), "row") if self.outer else i64(0)
                start = body.bind(mul(strip - row * in_row if self.outer else strip, i64(width)), "start")
                scope = Scope(kernel, body, unflatten(body, row, self.outer, self.extents))
                places.append((strip, start, scope))
                fits = strip < total
                if width > 1:
                    fits = tirx.And(fits, start + i64(width) <= self.extents[self.last])
                whole.append(body.bind(tirx.Cast("int32", fits), "whole"))
                with body.when(tirx.NE(whole[i], tirx.IntImm("int32", 0))) as inside:
                    registers.fetch(inside, i64(i), {**scope.coords, self.last: start})
            for i, (strip, start, scope) in enumerate(places):
                self.strip(body, scope, registers, i, whole[i], start, strip < total)
        rows = cost.elements(kernel.graph, self.outer)
        strips = rows * ((kernel.graph.extent(self.last) + (width - 1)) // width)
        blocks = (strips + (threads * each - 1)) // (threads * each)
        return kernel.launch_on(
            blocks, when, per_sm=config["per_sm"], resident=self.resident(), aligned=self.aligned(), choice=choice
        )

    def resident(self) -> int:
        """Blocks that a multiprocessor shall hold, whose loads are on their way together: many, where few registers do.

        With all that it likes, the compiler works on many elements at once: GELU of bfloat16 took 61 and had 89 to 97 %
        of a copy's rate; with 40 it has 93 to 99 (H200).
        """
        held = sum(-(-self.width * bytes_of(m) // 4) for m in {id(m): m for m in self.loads.values()}.values())
        places = [m for node in self.group.stored for m in self.kernel.destinations(node)]
        few = len(places) == 1 and places[0].dtype.name in half_forms.HALVES and self._short()
        if not few or held * self.config["strips"] > 8:
            return 1
        return max(self.config["resident_threads"] // self.config["threads"], 1)

    def _short(self) -> bool:
        """Whether all that is computed of strips takes a few instructions."""
        stack, seen = list(self.group.stored), set[int]()
        while stack:
            node = stack.pop()
            if id(node) in seen or id(node) in self.loads or isinstance(node, Const | Scalar):
                continue
            seen.add(id(node))
            form = self.kernel.forms.get(id(node))
            if form is not None:
                stack.append(form[0])
            elif isinstance(node, Map) and node.op in _SHORT and compute_type(node.dtype).name == "float32":
                stack.extend(node.args)
            else:
                return False
        return True

    def strip(
        self, code: Code, scope: Scope, registers: Registers, number: int, whole: Expr, start: Expr, exists: Expr
    ) -> None:
        """A strip at once, or what there is of the last one of a row element by element."""

        def element(here: Scope, emit: Emit, index: Expr) -> None:
            self.kernel.store_all(here, lambda at, place, coords, value: emit(place, value))

        with code.either(tirx.NE(whole, tirx.IntImm("int32", 0))) as (full, rest):
            registers.run(scope.inner(full, {}), i64(number), start, element, multiple=True)
            if self.width > 1:
                with rest.when(exists) as some:
                    left = some.bind(tirx.Min(i64(self.width), self.extents[self.last] - start), "left")
                    with some.loop(left, "lane") as (lane, body):
                        here = scope.inner(body, {self.last: body.bind(start + lane, self.last)}, {})
                        element(here, _storing(here), lane)


def _storing(here: Scope) -> Emit:
    """Stores a value at the scope's position."""

    def emit(place: Memory, value: Expr) -> None:
        place.store(here.code, here.coords, value)

    return emit


SCHEDULE = Schedule(
    name="cuda.map",
    target="cuda",
    pattern="map",
    region="any map group",
    knobs={
        "threads": (128, 256, 512),
        "strips": (1, 2, 4),
        "per_sm": (8, 16, 32, 64),
        "resident_threads": (1024, 1536),
    },
    serves=lambda group, arch: True,
    default=lambda group, arch: {"threads": 128, "strips": 2, "per_sm": 64, "resident_threads": 1536},
    build=build,
)
