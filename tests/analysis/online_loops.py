"""Chains run as a kernel would run them, tile by tile and share by share, in numpy and float64.

Only the evaluation of single expressions is that of the package; what to do with them is written here from the
invariants of `Link`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opsgen.analysis.online import Chain, Link, analyse, neutral
from opsgen.dsl import Op
from opsgen.dsl.op import Graph
from opsgen.dsl.tensor import Tensor
from opsgen.lowering.to_numpy import Evaluator, bind_sizes

Array = NDArray[Any]
COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


class Holding(Evaluator):
    """Evaluates with given values for some nodes, by id, as a kernel has values in registers."""

    held: Mapping[int, Array] = {}

    def _node(self, n: Tensor) -> Array:
        return self.held[id(n)] if id(n) in self.held else super()._node(n)


@dataclass
class Share:
    """The state of a loop over some positions: running totals and the values of the links' nodes, by id."""

    totals: dict[int, Array] = field(default_factory=dict)
    values: dict[int, Array] = field(default_factory=dict)


class Runner:
    """A chain of an op's graph on given arrays and scalars."""

    def __init__(self, op: Op, inputs: Mapping[str, Any], chain: int = 0) -> None:
        self.graph: Graph = op.trace()
        arrays = {n.name: np.asarray(inputs[n.name]) for n in self.graph.inputs}
        sizes, lead = bind_sizes(self.graph, arrays)
        for n in self.graph.inputs:
            if self.graph.leading and n.dims[:1] == ("rows",):
                arrays[n.name] = arrays[n.name].reshape(sizes["rows"], *arrays[n.name].shape[len(lead) :])
        self.leaves: dict[str, Any] = {**inputs, **arrays}
        self.sizes = sizes
        self.chain: Chain = analyse(self.graph).chains[chain]
        self.dim, *self.rest = self.chain.over  # tiles of the first dim, with all of the others
        given = [*self.chain.given, *(k.node for k in self.chain.links)]
        self.plain = {id(n): v for n, v in zip(given, self.evaluate(given, {}))}
        self.finished = {id(n): self.plain[id(n)] for n in self.chain.given}

    def evaluate(self, nodes: Sequence[Tensor], held: Mapping[int, Array]) -> list[Array]:
        run = Holding(self.graph, self.sizes, self.leaves, double=True)
        run.held = held
        run.run(tuple(nodes))
        return [run.full(n) for n in nodes]

    @property
    def length(self) -> int:
        return self.graph.extent(self.dim).evaluate(self.sizes)

    # -- one loop ------------------------------------------------------------------------------------------------------
    def start(self) -> Share:
        share = Share()
        for k in self.chain.links:
            shape = [self.graph.extent(d).evaluate(self.sizes) for d in k.total.dims]
            share.totals[id(k.node)] = np.full(shape, k.neutral)
            share.values[id(k.node)] = np.full(
                [self.graph.extent(d).evaluate(self.sizes) for d in k.node.dims], k.neutral
            )
        return share

    def step(self, share: Share, tile: slice) -> Share:
        """One tile: each link's running total is repaired, and the tile's part added."""
        new = Share()
        for k in self.chain.links:
            part = self.part(k, new.values, tile)
            new.totals[id(k.node)] = COMBINE[k.op](self.repaired(k, share, new.values), part)
            new.values[id(k.node)] = self.value(k, new)
        return new

    def part(self, k: Link, values: Mapping[int, Array], tile: slice) -> Array:
        """The reduced part of a tile."""
        places = {id(k.new[i]): values[i] for i in k.new}
        names = list(k.held)
        safe = self.evaluate([k.held[i] for i in names], {**self.finished, **places})
        held = {**self.finished, **dict(zip(names, safe))}
        (full,) = self.evaluate([k.part], held)
        axis = k.part.dims.index(self.dim)
        axes = (axis, *(k.part.dims.index(d) for d in self.rest))
        return COMBINE[k.op].reduce(full[(slice(None),) * axis + (tile,)], axis=axes, initial=neutral(k.op))

    def repaired(self, k: Link, share: Share, values: Mapping[int, Array]) -> Array:
        """A share's total, for the new values of the links that it was computed with."""
        total = share.totals[id(k.node)]
        if k.repair is None:
            return total
        places = {id(k.old[i]): share.values[i] for i in k.old} | {id(k.new[i]): values[i] for i in k.new}
        (by,) = self.evaluate([k.repair], {**self.finished, **places})
        by = Evaluator.align(None, by, k.repair.dims, k.total.dims)  # type: ignore[arg-type]
        assert k.additive or np.all((by >= 0) & (by <= 1) | np.isnan(by)), "a repair exceeds 1"
        return total + by if k.additive else total * by

    def value(self, k: Link, share: Share) -> Array:
        """The node's value from its total."""
        total = share.totals[id(k.node)]
        if k.after is None:
            return total
        (found,) = self.evaluate([k.after], {**self.finished, **share.values, id(k.total): total})
        return found

    # -- the two loop forms --------------------------------------------------------------------------------------------
    def rolling(self, tile: int) -> dict[int, Array]:
        """All links' values, by one pass over tiles."""
        return self.finished_values(self.pass_over(range(0, self.length, tile), tile))

    def finished_values(self, share: Share) -> dict[int, Array]:
        """The values after the loop, also one that had no tile."""
        done = Share(share.totals)
        for k in self.chain.links:
            done.values[id(k.node)] = self.value(k, done)
        return done.values

    def pass_over(self, starts: Sequence[int], tile: int) -> Share:
        share = self.start()
        for at in starts:
            share = self.step(share, slice(at, at + tile))
        return share

    def split(self, tile: int, shares: int) -> dict[int, Array]:
        """All links' values, by shares that know nothing of each other and are merged."""
        starts = range(0, self.length, tile)
        found = [self.pass_over(starts[i::shares], tile) for i in range(shares)]
        merged = found[0]
        for other in found[1:]:
            merged = self.merge(merged, other)
        return self.finished_values(merged)

    def merge(self, a: Share, b: Share) -> Share:
        new = Share()
        for k in self.chain.links:
            new.totals[id(k.node)] = COMBINE[k.op](self.repaired(k, a, new.values), self.repaired(k, b, new.values))
            new.values[id(k.node)] = self.value(k, new)
        return new
