"""Random ops: programs of the DSL as source text, arguments for them, and the comparison of a library with float64.

    python -m tests.x86.random_ops FIRST COUNT      runs the ops of COUNT seeds and prints what fails
    python -m tests.x86.random_ops --show SEED      prints one op

A seed gives the same op always. Each op is compiled once, for dynamic dims, and called with several sizes.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import opsgen as og
from opsgen.dsl import signature
from opsgen.dsl.op import Op
from opsgen.dsl.tensor import Tensor, walk
from opsgen.errors import OpsgenError
from opsgen.lowering.error_bounds import bounded
from tests import arrays

SIZES = (0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 65, 70)
LARGEST_SPACE = 60_000
"""Elements of the largest tensor of a call, about."""

DIMS = ("a", "b", "c", "d")
FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "float64")


@dataclass
class Program:
    """An op's source, and what its arguments must be like."""

    seed: int
    name: str
    head: str
    lines: list[str] = field(default_factory=list)
    returned: str = ""
    dtypes: dict[str, str] = field(default_factory=dict)
    positions: dict[str, str] = field(
        default_factory=dict
    )  # inputs whose elements are read as positions: along which dim
    multiples: dict[str, int] = field(default_factory=dict)
    optional: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)  # dims with a fixed extent

    @property
    def source(self) -> str:
        body = "\n".join(f"    {line}" for line in (*self.lines, f"return {self.returned}"))
        return f"@og.op\n{self.head}\n{body}\n"

    def op(self) -> Op:
        scope: dict[str, Any] = {"og": og}
        exec(compile(self.source, f"<random op {self.seed}>", "exec"), scope)
        return scope[self.name]


class _Growth:
    """Grows a program while its op is traced: every line is evaluated at once, and dropped where the DSL refuses it."""

    def __init__(self, r: random.Random, program: Program, scope: dict[str, Any]) -> None:
        self.r, self.program, self.scope = r, program, scope
        self.pool: list[str] = [
            n for n, v in scope.items() if isinstance(v, Tensor) and n not in program.optional and not n.startswith("s")
        ]
        self.scalars = [n for n in scope if n.startswith("s") and n[1:].isdigit()]
        self.fresh = 0

    def value(self, name: str) -> Tensor:
        return self.scope[name]

    def emit(self, text: str) -> str | None:
        name = f"t{len(self.program.lines)}"
        try:
            value = eval(text, self.scope)
        except (OpsgenError, OverflowError):
            return None
        if not isinstance(value, Tensor) or len(value.dims) > 5:
            return None
        self.scope[name] = value
        self.program.lines.append(f"{name} = {text}")
        self.pool.append(name)
        return name

    def pick(self, *kinds: str, rank: int = 0) -> str | None:
        found = [
            n
            for n in self.pool
            if self.value(n).dtype.kind in (kinds or ("float",)) and len(self.value(n).dims) >= rank
        ]
        if not found:
            return None
        return self.r.choice(found[-4:] if self.r.random() < 0.6 else found)

    def dims(self, name: str) -> list[str]:
        return [d for d in self.value(name).dims if d != "rows"]

    def dim(self, name: str) -> str | None:
        found = self.dims(name)
        return self.r.choice(found) if found else None

    def over(self, name: str) -> str | None:
        found = self.dims(name)
        if not found:
            return None
        chosen = (
            self.r.sample(found, self.r.choice([1, 1, 1, 2, 2, 3]) if len(found) > 1 else 1)
            if len(found) > 2
            else [self.r.choice(found)]
        )
        if len(found) == 2 and self.r.random() < 0.25:
            chosen = found
        return repr(chosen[0]) if len(chosen) == 1 else repr(tuple(chosen))

    def new_dim(self) -> str:
        self.fresh += 1
        return f"n{self.fresh}"

    # -- one step each -------------------------------------------------------------------------------------------------
    def unary(self) -> None:
        x = self.pick()
        forms = [
            "og.exp(og.min({x}, 3.0))",
            "og.exp({x} * 0.25)",
            "og.exp2({x})",
            "og.log(og.abs({x}) + 0.5)",
            "og.log1p(og.abs({x}))",
            "og.sqrt(og.abs({x}))",
            "og.rsqrt({x} * {x} + 0.5)",
            "og.tanh({x})",
            "og.erf({x})",
            "og.sigmoid({x})",
            "og.sin({x})",
            "og.cos({x})",
            "og.floor({x} * 3.0)",
            "og.ceil({x})",
            "og.round({x} * 2.0)",
            "og.abs({x})",
            "-{x}",
            "{x} ** 2",
            "{x} ** 3",
            "og.abs({x}) ** 0.5",
            "({x} * {x} + 1.0) ** -1",
            "{x} ** 0",
            "og.log({x})",
            "og.sqrt({x})",
            "og.cast({x}, 'float16')",
            "og.cast({x}, 'bfloat16')",
            "og.cast({x}, 'float64')",
            "og.cast({x}, 'float32')",
            "og.max({x}, 0.0)",
            "{x} * 0.1",
            "1.0 - {x}",
            "2.0 / ({x} * {x} + 1.0)",
            "{x} % 1.5",
            "{x} // 0.75",
            "og.cast(og.floor(og.min(og.max({x}, -9.0), 9.0)), 'int32')",
        ]
        if x:
            self.emit(self.r.choice(forms).format(x=x))

    def binary(self) -> None:
        x, y = self.pick(), self.pick()
        forms = [
            "{x} + {y}",
            "{x} - {y}",
            "{x} * {y}",
            "{x} + {y}",
            "{x} * {y}",
            "{x} / (og.abs({y}) + 0.5)",
            "og.max({x}, {y})",
            "og.min({x}, {y})",
            "og.where({x} < {y}, {x}, {y} * 0.5)",
            "(og.abs({x}) + 0.25) ** og.tanh({y})",
            "{x} - og.round({y})",
            "{x} / {y}",
            "{x} % (og.abs({y}) + 1.0)",
            "og.where(og.isnan({x}), {y}, {x})",
            "og.where(({x} > 0.0) & ({y} > 0.0), {x}, 0.0)",
            "og.where(({x} >= {y}) | og.logical_not({x} != {x}), {y}, 1)",
        ]
        if x and y:
            self.emit(self.r.choice(forms).format(x=x, y=y))

    def scalar(self) -> None:
        x = self.pick()
        if x and self.scalars:
            s = self.r.choice(self.scalars)
            self.emit(
                self.r.choice(
                    ["{x} * {s}", "{x} + {s}", "og.where({x} > {s}, {x}, {s})", "{x} * og.exp({s} * 0.5)"]
                ).format(x=x, s=s)
            )

    def integer(self) -> None:
        x, y = self.pick("int", "uint"), self.pick("int", "uint")
        d = self.r.choice([d for n in self.pool for d in self.dims(n)] or [None])
        forms = [
            "{x} + {y}",
            "{x} - 3",
            "{x} * {y}",
            "{x} // 3",
            "{x} % 4",
            "{x} // {y}",
            "{x} % {y}",
            "og.abs({x})",
            "-{x}",
            "og.max({x}, {y})",
            "{x} ** 2",
            "og.where({x} > 0, {x}, {y})",
            "og.cast({x}, 'float32')",
            "{x} * 0.5",
            "og.cast({x} % 7, 'int8')",
            "{x} / 4",
        ]
        if x and y and self.r.random() < 0.7:
            self.emit(self.r.choice(forms).format(x=x, y=y))
        elif d:
            self.emit(
                self.r.choice(
                    [
                        f"og.index({d!r})",
                        f"og.index({d!r}) * 2 - 3",
                        f"og.size({d!r}) - 1 - og.index({d!r})",
                        f"og.cast(og.index({d!r}), 'int32')",
                    ]
                )
            )

    def logic(self) -> None:
        x, y, p = self.pick("float", "int"), self.pick("float", "int"), self.pick("bool")
        if x and y:
            self.emit(f"{x} {self.r.choice(['<', '<=', '>', '>=', '==', '!='])} {self.r.choice([y, '0.0', '1'])}")
        if p and x and self.r.random() < 0.7:
            self.emit(
                self.r.choice(
                    [
                        f"og.where({p}, {x}, {self.r.choice(['0.0', '-1e30', '2'])})",
                        f"og.logical_not({p})",
                        f"{p} & {self.pool_bool()}",
                        f"og.cast({p}, 'float32')",
                        f"{p} == {self.pool_bool()}",
                    ]
                )
            )

    def pool_bool(self) -> str:
        return self.pick("bool") or "True"

    def reduce(self) -> None:
        x = self.pick(rank=1) if self.r.random() < 0.85 else self.pick("int", "uint", rank=1)
        over = self.over(x) if x else None
        if x is None or over is None:
            return
        kind = self.r.choice(["sum", "sum", "mean", "max", "min", "prod", "argmax", "argmin"])
        if kind.startswith("arg"):
            over = repr(self.dim(x))
        elif kind == "prod":
            x = f"({x} * 0.1 + 1.0)" if self.value(x).dtype.kind == "float" else f"({x} % 3 - 1)"
        self.emit(f"og.{kind}({x}, over={over})")

    def chain(self) -> None:
        """Reductions that feed maps that feed reductions."""
        x = self.pick(rank=1)
        over = self.over(x) if x else None
        if x is None or over is None:
            return
        one = repr(self.dim(x))
        forms = [
            [f"og.softmax({x}, over={one})"],
            [
                f"og.mean({x}, over={over})",
                f"{x} - {{0}}",
                f"og.mean({{1}} * {{1}}, over={over})",
                "{1} * og.rsqrt({2} + 1e-5)",
            ],
            [f"og.mean({x} * {x}, over={over})", f"{x} * og.rsqrt({{0}} + 1e-5)"],
            [f"og.max({x}, over={over})", f"og.exp({x} - {{0}})", f"og.sum({{1}}, over={over})", "{0} + og.log({2})"],
            [f"og.max(og.abs({x}), over={over})", f"{x} / ({{0}} + 0.1)"],
            [f"og.softmax({x}, over={one})", f"og.sum({{0}} * {x}, over={over})"],
            [f"og.argmax({x}, over={one})", "og.cast({0}, 'float32') * 0.5", f"{x} + {{1}}"],
        ]
        names: list[str] = []
        for line in self.r.choice(forms):
            name = self.emit(line.format(*names))
            if name is None:
                return
            names.append(name)

    def scan(self) -> None:
        x = self.pick(rank=1) if self.r.random() < 0.85 else self.pick("int", "uint", rank=1)
        d = self.dim(x) if x else None
        if x is None or d is None:
            return
        kind = self.r.choice(["cumsum", "cumsum", "cumprod", "cummax", "cummin"])
        if kind == "cumprod":
            x = f"({x} * 0.1 + 1.0)" if self.value(x).dtype.kind == "float" else f"({x} % 3 - 1)"
        flags = "".join(f", {f}=True" for f in ("exclusive", "reverse") if self.r.random() < 0.3)
        name = self.emit(f"og.{kind}({x}, over={d!r}{flags})")
        if name and self.r.random() < 0.4:
            self.emit(self.r.choice([f"{name} * 0.5 + {x}", f"og.cumsum({name}, over={d!r})", f"{name} - {x}"]))

    def scatter(self) -> None:
        found = [n for n in self.pool if self.value(n).dtype.kind in ("int", "uint") and self.dims(n)]
        x = self.pick() if self.r.random() < 0.8 else self.r.choice(["1", "1.0", self.pick("int", "uint") or "1"])
        if not found or x is None:
            return
        i = self.r.choice(found)
        over = self.r.sample(self.dims(i), self.r.choice([1, 1, len(self.dims(i))]))
        taken = {*self.dims(i), *(self.dims(x) if x in self.scope else ())}
        there = [d for n in self.pool for d in self.dims(n) if d not in taken]
        if there and self.r.random() < 0.5:
            into, extent, size = self.r.choice(there), "", "8"
        else:
            into = self.new_dim()
            size = str(self.r.choice([1, 3, 7, 33]))
            extent = f", extent={size}"
        position = self.r.choice([i, f"{i} % {size}", f"og.abs({i}) - 1"])
        kind = self.r.choice(["add", "add", "add", "max", "min"])
        name = self.emit(f"og.scatter_{kind}({x}, {position}, over={tuple(over)!r}, into={into!r}{extent})")
        if name and self.r.random() < 0.3:
            self.emit(f"og.cast({name}, 'float32') * 0.5 + 1.0")

    def dot(self) -> None:
        found = [
            (x, y)
            for x in self.pool
            for y in self.pool
            if self.value(x).dtype.kind == self.value(y).dtype.kind == "float"
        ]
        found = [
            (x, y)
            for x, y in found
            if set(self.dims(x)) & set(self.dims(y)) and set(self.value(x).dims) ^ set(self.value(y).dims)
        ]
        both = [
            (x, y) for x, y in found if set(self.dims(x)) - set(self.dims(y)) and set(self.dims(y)) - set(self.dims(x))
        ]
        found = both if both and self.r.random() < 0.8 else found
        if not found:
            return
        x, y = self.r.choice(found)
        common = [d for d in self.dims(x) if d in self.dims(y)]
        over = self.r.sample(common, self.r.randint(1, len(common)))
        left, right = self.r.choice(
            [(x, y)] * 4 + [(f"og.tanh({x})", y), (x, f"({y} * 0.5)"), (f"og.max({x}, 0.0)", f"og.sigmoid({y})")]
        )
        name = self.emit(f"og.dot({left}, {right}, over={tuple(over)!r})")
        if name and self.r.random() < 0.4:
            self.emit(
                self.r.choice(
                    [f"og.max({name} * 0.125, 0.0)", f"{name} * og.sigmoid({name})", f"og.tanh({name}) + 1.0"]
                )
            )

    def read(self) -> None:
        """Reads at other positions."""
        x = self.pick("float", "float", "int", "bool", rank=1)
        d = self.dim(x) if x else None
        if x is None or d is None:
            return
        raw = [n for n, at in self.program.positions.items() if at == d and n in self.pool]
        i = self.pick("int", "uint")
        e = self.r.choice([d for n in self.pool for d in self.dims(n)])
        forms = [
            f"og.index({d!r}) // 2",
            f"og.index({d!r}) - 2",
            f"og.index({d!r}) + 3",
            f"og.size({d!r}) - 1 - og.index({d!r})",
            f"og.index({e!r})",
            f"og.index({e!r}) % 4",
            "0",
            "1",
            f"og.index({d!r}) * 2",
        ]
        if i:
            forms += [i, f"{i} + 1", f"og.abs({i}) % og.size({d!r})"]
        forms += raw * 4
        choice = self.r.choice(forms)
        if choice in self.program.dtypes and choice not in raw:
            choice += " + 0"  # computed: clamped, and not checked
        self.emit(f"{x}.at({d}={choice})")

    def view(self) -> None:
        x = self.pick("float", "float", "int", "bool", rank=1)
        d = self.dim(x) if x else None
        if x is None or d is None:
            return
        kind = self.r.choice(["split", "merge", "rename", "transpose", "concat", "concat", "compute"])
        if kind == "split" and len(self.value(x).dims) < 4:
            n = self.r.choice([2, 3, 4])
            outer, inner = self.new_dim(), self.new_dim()
            parts = f"{outer}=None, {inner}={n}" if self.r.random() < 0.6 else f"{outer}={n}, {inner}=None"
            if self.emit(f"og.split({x}, {d!r}, {parts})") and d in DIMS:
                self.program.multiples[d] = self.program.multiples.get(d, 1) * n
        elif kind == "merge" and len(self.dims(x)) > 1:
            chosen = self.r.sample(self.dims(x), 2)
            self.emit(f"og.merge({x}, {chosen[0]!r}, {chosen[1]!r}, into={self.new_dim()!r})")
        elif kind == "rename":
            self.emit(f"og.rename({x}, {d}={self.new_dim()!r})")
        elif kind == "transpose":
            named = self.dims(x)
            self.r.shuffle(named)
            lead = ["..."] if "rows" in self.value(x).dims else []
            self.emit(f"og.transpose({x}, {', '.join(map(repr, lead + named))})")
        elif kind == "concat":
            others = [
                n
                for n in self.pool
                if set(self.value(n).dims) == set(self.value(x).dims)
                and (self.value(n).dtype.kind == "bool") == (self.value(x).dtype.kind == "bool")
            ]
            parts = [x, *self.r.choices(others, k=self.r.choice([1, 1, 2]))]
            self.emit(f"og.concat({', '.join(parts)}, dim={d!r}, into={self.new_dim()!r})")
        elif kind == "compute" and len(self.dims(x)) > 1:
            p, q = self.r.sample(self.dims(x), 2)
            self.emit(
                self.r.choice(
                    [
                        f"og.compute(lambda {p}, {q}: og.where({p} <= {q}, 0.0, -1e4)) + {x}",
                        f"og.compute(lambda {p}, {q}: {p} * 3 - {q})",
                        f"og.compute(lambda {p}, taps: {p} + taps * 0.5, taps=3)",
                    ]
                )
            )

    def pool_window(self) -> None:
        """Nested reductions: pooling."""
        x = self.pick(rank=1)
        d = self.dim(x) if x else None
        if x is None or d is None or len(self.value(x).dims) > 3:
            return
        outer, inner = self.new_dim(), self.new_dim()
        n = self.r.choice([2, 3])
        name = self.emit(f"og.split({x}, {d!r}, {outer}=None, {inner}={n})")
        if name:
            if d in DIMS:
                self.program.multiples[d] = self.program.multiples.get(d, 1) * n
            self.emit(f"og.{self.r.choice(['sum', 'max', 'mean'])}({name}, over={inner!r})")

    def optional(self) -> None:
        free = [o for o in self.program.optional if not any(f"{o} is None" in line for line in self.program.lines)]
        x = self.pick()
        if not free or x is None:
            return
        o = free[0]
        form = self.r.choice(["{x} + {o}", "{x} * {o}", "og.where({o} > 0.0, {x}, 0.5)"]).format(x=x, o=o)
        if set(self.program.shapes[o]) <= set(self.value(x).dims):
            self.emit(f"{x} if {o} is None else {form}")

    def attend(self) -> None:
        """A contraction, a softmax, a contraction."""
        found = [n for n in self.pool if self.value(n).dtype.kind == "float" and len(self.dims(n)) >= 2]
        if not found:
            return
        q = self.r.choice(found)
        other, new = self.r.choice(self.dims(q)), self.new_dim()
        k = self.emit(f"og.rename({q}, {other}={new!r})")
        common = [d for d in self.dims(q) if d != other]
        scores = self.emit(f"og.dot({q}, {k} * 0.5, over={self.r.choice(common)!r})") if k else None
        weights = self.emit(f"og.softmax({scores} * 0.3, over={new!r})") if scores else None
        if weights:
            self.emit(f"og.dot({weights}, {k}, over={new!r})")

    def grow(self, steps: int, contract: bool) -> None:
        actions: list[tuple[Callable[[], None], float]] = [
            (self.unary, 4),
            (self.binary, 4),
            (self.scalar, 1.5),
            (self.integer, 1.2),
            (self.logic, 1),
            (self.reduce, 3),
            (self.chain, 3),
            (self.dot, 2.5),
            (self.scan, 1.2),
            (self.scatter, 1.2),
            (self.read, 1.5),
            (self.view, 2),
            (self.pool_window, 0.6),
            (self.optional, 1.5),
            (self.attend, 0.3),
        ]
        if contract:
            self.r.choice([self.dot, self.dot, self.dot, self.attend])()
            actions += [(self.dot, 3), (self.attend, 0.5)]
        for _ in range(steps):
            action = self.r.choices([a for a, _ in actions], [w for _, w in actions])[0]
            action()


def make(seed: int) -> Program:
    """The program of a seed."""
    r = random.Random(seed)
    name = f"op{seed}"
    main = r.choice(FLOATS) if r.random() < 0.94 else r.choice(["int64", "int32", "bool"])
    rank = r.choice([1, 2, 2, 3, 3, 4])
    dims = DIMS[:rank]
    leading = r.random() < 0.25
    program = Program(seed, name, "")
    shapes: dict[str, tuple[str, ...]] = {}
    program.shapes = shapes
    parts: list[str] = []
    tail: list[str] = []

    def tensor(
        prefix: str, dtype: str, chosen: tuple[str, ...], lead: bool, kind: str = "Tensor", optional: bool = False
    ) -> str:
        n = f"{prefix}{len(shapes)}"
        shapes[n] = ("rows", *chosen) if lead else chosen
        program.dtypes[n] = dtype
        items = ", ".join(
            [*(["'...'"] if lead else []), *map(repr, chosen), f"og.{'bool_' if dtype == 'bool' else dtype}"]
        )
        (tail if optional else parts).append(f"{n}: og.{kind}[{items}]" + (" | None = None" if optional else ""))
        return n

    def some(k: int | None = None) -> tuple[str, ...]:
        return tuple(r.sample(dims, k if k is not None else r.randint(1, rank)))

    contract = "float" in main and r.random() < 0.35
    if contract:
        dims = DIMS[: r.choice([3, 3, 4, 4])]
        rank = len(dims)
        shuffled = r.sample(dims, rank)  # rows, columns, summed, and one for either, both, or neither
        for own, more in ((shuffled[0], r.random() < 0.6), (shuffled[1], r.random() < 0.4)):
            chosen = [own, shuffled[2], *(shuffled[3:] if more else [])]
            tensor(
                "x",
                main if r.random() < 0.9 else r.choice(FLOATS),
                tuple(r.sample(chosen, len(chosen))),
                leading and own == shuffled[0],
            )
    else:
        tensor("x", main, tuple(r.sample(dims, r.choice([rank, rank, max(1, rank - 1)]))), leading)
    for _ in range(r.choice([0, 1, 1, 2, 2, 3])):
        tensor(
            "x",
            r.choice([main, main, main, r.choice(FLOATS) if "float" in main else main]),
            some(r.choice([0, None, None, None, None])),
            leading and r.random() < 0.3,
        )
    if r.random() < 0.3:
        tensor("i", r.choice(["int64", "int32", "int8", "uint8"]), some(), False)
    if r.random() < 0.2:
        tensor("p", "bool", some(), False)
    if r.random() < 0.2:
        n = tensor("k", r.choice(["int64", "int32"]), some(), False)
        program.positions[n] = r.choice(dims)
    if r.random() < 0.3:
        program.optional.append(tensor("o", main, some(), False, optional=True))
    mutable = tensor("m", main, some(), False, "Mut") if r.random() < 0.12 else None
    scalars = [f"s{i}" for i in range(r.choice([0, 0, 1, 1, 2]))]
    star = ["*"] if scalars else []
    program.head = f"def {name}({', '.join([*parts, *tail, *star, *(f'{s}: float' for s in scalars)])}) -> og.Tensor:"

    steps = r.choice([1, 2, 3, 4, 6, 8, 10, 14])

    def shapes_kind(n: str) -> str:
        return {"f": "float", "b": "float", "i": "int"}[program.dtypes[n][0]] if program.dtypes[n] != "bool" else "bool"

    def body(**given: Any) -> Any:
        program.lines.clear()
        scope = {"og": og, **given}
        growth = _Growth(random.Random(seed * 7 + 1), program, scope)
        growth.grow(steps, contract)
        rr = random.Random(seed * 7 + 2)
        made = [n for n in growth.pool if n.startswith("t")]
        count = rr.choice([1, 1, 1, 2, 2, 3])
        last = made[-1:] or growth.pool[-1:]  # what most was done for; then any, an input or one node twice among them
        chosen = last + rr.choices(made[-4:] if made and rr.random() < 0.6 else growth.pool, k=count - 1)
        named = [f"r{i}={n}" for i, n in enumerate(chosen)]
        if mutable is not None:
            fit = [
                n for n in growth.pool if set(scope[n].dims) <= set(shapes[mutable]) and scope[n].dtype.kind == "float"
            ]
            named.append(f"{mutable}={rr.choice(fit[-3:] or [mutable])}")
        program.returned = (
            chosen[0]
            if len(named) == 1 and rr.random() < 0.5 and mutable is None
            else f"og.results({', '.join(named)})"
        )
        return eval(program.returned, scope)

    # A function with the program's signature whose body is `body`.
    call = ", ".join(f"{n}={n}" for n in [*shapes, *scalars])
    scope: dict[str, Any] = {"og": og, "_body": body}
    exec(compile(f"{program.head}\n    return _body({call})", f"<random op {seed}>", "exec"), scope)
    function = scope[name]
    op = Op.__new__(Op)
    op.function, op.name = function, name
    op.parameters = signature.parse(function, {})
    op.trace()
    if r.random() < 0.25:
        for d in r.sample(op.dims, min(r.choice([1, 1, 2]), len(op.dims))):
            program.bound[d] = r.choice((1, 2, 5, 8, 16, 33)) * program.multiples.get(d, 1)
        try:
            program.op().trace(bound=program.bound)
        except OpsgenError:  # a split of a split that the extent does not fit
            program.bound = {}
    return program


@dataclass
class Failure:
    seed: int
    what: str
    source: str

    def __str__(self) -> str:
        return f"--- seed {self.seed}: {self.what}\n{self.source}"


def arguments(program: Program, op: Op, r: random.Random) -> dict[str, Any] | None:
    """Random arguments of one call, by name."""
    rng = np.random.default_rng(r.randrange(2**32))
    sizes: dict[str, int] = {}
    graph = op.trace()
    for _ in range(30):
        for d in DIMS:
            k = program.multiples.get(d, 1)
            sizes[d] = r.choice([0, 1, 2, 3, 4, 5, 8]) * k if k > 1 else r.choice(SIZES)
        sizes |= program.bound
        lead = tuple(r.choice([0, 1, 2, 3, 5]) for _ in range(r.choice([0, 1, 2])))
        if any(sizes[d] == 0 for d in program.positions.values()):
            continue
        known = {**sizes, "rows": int(np.prod(lead))}
        found: list[int] = []

        def visit(n: Tensor, known: dict[str, int] = known, found: list[int] = found) -> None:
            try:
                found.append(int(np.prod([graph.extent(d).evaluate(known) for d in n.dims])))
            except KeyError:
                found.append(10**9)

        walk(graph.outputs(), visit)
        if max(found) <= LARGEST_SPACE:
            break
    else:
        return None
    given: dict[str, Any] = {}
    for p in op.parameters:
        if p.role == "scalar":
            given[p.name] = r.choice([0.7, -1.25, 0.1, 2.0])
            continue
        assert p.spec is not None
        if p.optional and r.random() < 0.5:
            given[p.name] = None
            continue
        shape = (*(lead if p.spec.leading else ()), *(sizes[d] for d in p.spec.named))
        dtype = program.dtypes[p.name]
        x = arrays.values(rng, shape, dtype)
        if p.name in program.positions:
            x = rng.integers(0, sizes[program.positions[p.name]], shape).astype(x.dtype)
        elif "float" in dtype and x.size and r.random() < 0.1:
            x.flat[r.randrange(x.size)] = r.choice([np.nan, np.inf, -np.inf, 0.0])
        given[p.name] = arrays.arranged(
            x,
            "negative" if p.spec.mutable and r.random() < 0.2 else "dense" if p.spec.mutable else arrays.any_layout(r),
        )
    return given


def compare(lib: Any, program: Program, op: Op, given: dict[str, Any], r: random.Random) -> tuple[str, int, int]:
    """What is wrong with a call's results (or nothing), and how many elements were checked, of how many."""
    try:
        wanted = bounded(op, given)
    except OpsgenError as refused:
        try:
            lib[program.name](**given)
        except OpsgenError as also:
            return ("" if also.code == refused.code else f"{also.code} where evaluate raises {refused.code}"), 0, 0
        return f"no error where evaluate raises {refused.code}", 0, 0
    updated = {p.name for p in op.parameters if p.spec and p.spec.mutable}
    mine = {n: v.copy() if n in updated else v for n, v in given.items()}
    before = {n: v.copy() for n, v in mine.items() if isinstance(v, np.ndarray)}
    names = [n for n in wanted if n not in updated]
    out: Any = None
    if r.random() < 0.3 and names:
        layouts = [x for x in arrays.LAYOUTS if x != "expanded"]
        memory = [
            arrays.empty(wanted[n].value.shape, arrays.numpy_dtype(wanted[n].dtype.name), r.choice(layouts))
            for n in names
        ]
        out = memory[0] if len(memory) == 1 else tuple(memory)
    got = lib[program.name](**mine, out=out)
    got = {} if not names else dict(zip(names, got)) if len(names) > 1 else {names[0]: got}
    got |= {n: mine[n] for n in updated}
    checked = total = 0
    single = op.evaluate(**given)
    single = single if isinstance(single, dict) else {"out": single}
    for n, w in wanted.items():
        shapes = {k: v.shape for k, v in given.items() if isinstance(v, np.ndarray)}
        for label, found in (("evaluate in its own dtype", np.asarray(single[n])), ("the library", np.asarray(got[n]))):
            if n in updated and label != "the library":
                continue
            try:
                bad = w.wrong(found)
            except AssertionError as problem:
                return f"{label}: result {n}: {problem}; shapes {shapes}", 0, 0
            if len(bad):
                at = tuple(map(int, bad[0]))
                what = f"{label}: result {n}: {len(bad)} of {found.size} wrong, first at {at}: {found[at]} where "
                return f"{what}{w.value[at]} ± {w.bound[at]:.2e} is right; shapes {shapes}", 0, 0
        checked += w.checked
        total += w.value.size
    for n, x in before.items():
        if n not in updated and x.tobytes() != mine[n].tobytes():
            return f"the input {n} was changed", 0, 0
    return "", checked, total


def run_batch(seeds: list[int], calls: int = 4, target: str = "x86") -> tuple[list[Failure], int, int]:
    """Compiles the ops of all seeds into one library and calls each; the failures, and elements checked of all."""
    failures: list[Failure] = []
    ready: list[tuple[Program, Op]] = []
    for seed in seeds:
        program = make(seed)
        try:
            ready.append((program, program.op()))
        except Exception:
            failures.append(Failure(seed, traceback.format_exc(), program.source))
    libs: dict[int, Any] = {}
    try:
        lib = og.compile([og.variant(op, dims=p.bound) for p, op in ready], target=target)
        libs = {p.seed: lib for p, _ in ready}
    except Exception:
        for program, op in ready:
            try:
                libs[program.seed] = og.compile(og.variant(op, dims=program.bound), target=target)
            except Exception as problem:
                failures.append(
                    Failure(program.seed, f"compiling: {type(problem).__name__}: {problem}"[:1500], program.source)
                )
    checked = total = 0
    for program, op in ready:
        if program.seed not in libs:
            continue
        r = random.Random(program.seed * 7 + 3)
        for _ in range(calls):
            try:
                given = arguments(program, op, r)
                if given is None:
                    continue
                what, c, t = compare(libs[program.seed], program, op, given, r)
            except Exception as problem:
                what, c, t = f"{type(problem).__name__}: {problem}\n{traceback.format_exc()[-1500:]}", 0, 0
            checked, total = checked + c, total + t
            if what:
                failures.append(Failure(program.seed, what, program.source))
                break
    return failures, checked, total


def run_apart(seeds: list[int], calls: int = 4, target: str = "x86") -> tuple[list[Failure], int, int]:
    """Like `run_batch`, in a forked process, and one op at a time if that dies: a crash is a failure like others."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(run_batch(seeds, calls, target), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status == 0:
        return pickle.loads(data)
    if len(seeds) == 1:
        return [Failure(seeds[0], f"the process died: signal {os.WTERMSIG(status)}", make(seeds[0]).source)], 0, 0
    half = len(seeds) // 2
    first, second = run_apart(seeds[:half], calls, target), run_apart(seeds[half:], calls, target)
    return first[0] + second[0], first[1] + second[1], first[2] + second[2]


def batches(first: int, count: int, size: int = 40) -> Iterator[list[int]]:
    for start in range(first, first + count, size):
        yield list(range(start, min(start + size, first + count)))


def main(args: list[str]) -> int:
    if args[0] == "--show":
        print(make(int(args[1])).source)
        return 0
    first, count = int(args[0]), int(args[1])
    import tvm  # noqa: F401

    import opsgen.compiler.describe  # noqa: F401  # loaded once, here, not by each child

    failed = 0
    for batch in batches(first, count):
        failures, checked, total = run_apart(batch)
        failed += len(failures)
        for f in failures:
            print(f, flush=True)
        print(
            f"seeds {batch[0]}..{batch[-1]}: {len(failures)} failures; {checked} of {total} elements checked",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
