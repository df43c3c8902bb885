"""Partition: an op's graph into groups.

Values with no reduction before them are free: they are computed wherever they are used, again at each use. Going
through the graph from its inputs, a reduction opens a group or joins one that reduces the same dims, and so does a
scan; a map joins the group of its operands where it lies in that group's space. A value that another group reads, or
that is read at other positions, is stored.
"""

from __future__ import annotations

from dataclasses import replace

from ..dsl.dtypes import compute_type
from ..dsl.op import Graph
from ..dsl.tensor import At, Concat, Map, Reduce, Scan, Tensor, walk
from .exact import holds_exactly
from .fusion import FusedChain, fused_chains
from .groups import Group, Partition, factors, is_transpose, read_from
from .scatter import Scatter, scatter_of
from .segments import Segments, segments
from .updates import Update, updates_of


def partition(graph: Graph, chains: bool = True) -> Partition:
    """The groups of a graph, in an order in which they can run. Without ``chains`` none is an online chain."""
    fused, updates = fused_chains(graph) if chains else (), updates_of(graph)
    while True:
        partitioner = _Partitioner(graph, fused, updates)
        found = partitioner.run()
        if not partitioner.refused:
            return found
        updates = {key: u for key, u in updates.items() if key not in partitioner.refused}


class _Partitioner:
    def __init__(self, graph: Graph, chains: tuple[FusedChain, ...], updates: dict[int, Update]) -> None:
        self.graph = graph
        self.updates = updates
        self.refused: set[int] = set()  # of the updates, those whose parameter is read at the wrong time
        self.chain_of = {id(n): f for f in chains for n in (f.score, *(k.node for k in f.links))}
        self.chain_groups: dict[int, Group] = {}
        self.groups: list[Group] = []
        self.home: dict[int, Group] = {}  # nodes that belong to a group
        self.reads: dict[int, list[Group]] = {}  # free nodes: the groups whose stored values they read
        self.compared: set[int] = set()  # nodes that only serve a scatter's destinations to find their own

    def compare(self, node: Tensor) -> None:
        """Notes what lies between a scatter and what it is computed from."""
        scatter = scatter_of(node)
        if scatter is not None:
            own = {id(c) for c in scatter.children()}
            stack = [scatter.node.arg]
            while stack:
                n = stack.pop()
                if id(n) not in own and n.children():
                    self.compared.add(id(n))
                    stack.extend(n.children())

    def run(self) -> Partition:
        walk(self.graph.outputs(), self.compare)
        walk(self.graph.outputs(), self.place, self.needed)
        for result in self.graph.results:
            self.place_result(result.value)
        self.order_updates()
        return Partition(self.graph, tuple(self.sorted()), self.home)

    def needed(self, node: Tensor) -> tuple[Tensor, ...]:
        """What a node is computed from."""
        update = self.updates.get(id(node))
        return node.children() if update is None else update.children()

    # -- placing one node ----------------------------------------------------------------------------------------------
    def place(self, node: Tensor) -> None:
        if id(node) in self.updates:
            self.place_update(node, self.updates[id(node)])
            return
        if isinstance(node, Reduce):
            pair, scatter = factors(node), scatter_of(node)
            if id(node) in self.chain_of:
                self.place_in_chain(node, self.chain_of[id(node)])
            elif pair is not None:
                self.place_contraction(node, pair)
            elif (parts := segments(node, self.graph)) is not None:
                self.place_grouped(node, parts)
            elif scatter is not None:
                self.place_scatter(node, scatter)
            else:
                self.place_reduction(node)
            return
        if isinstance(node, Scan):
            self.place_scan(node)
            return
        children = node.children()
        if (isinstance(node, At) and not is_transpose(node)) or id(node) in self.compared:
            # Read at other positions: what is computed must be stored whole first, or be free and computed there.
            for child in children:
                if self.group(child) is not None:
                    self.store(child)
            self.set_free(node)
        elif all(self.group(c) is None for c in children):
            self.set_free(node)
        else:
            self.place_map(node)

    def group(self, node: Tensor) -> Group | None:
        return self.home.get(id(node))

    def set_free(self, node: Tensor) -> None:
        reads: list[Group] = []
        for child in node.children():
            home = self.group(child)
            for g in [home] if home is not None else self.reads.get(id(child), []):
                if g not in reads:
                    reads.append(g)
        self.reads[id(node)] = reads

    def producers(self, node: Tensor) -> list[Group]:
        """The groups that must have run before the node can be computed outside of them."""
        home = self.group(node)
        return [home] if home is not None else self.reads.get(id(node), [])

    def store(self, node: Tensor) -> None:
        home = self.group(node)
        assert home is not None
        home.store(node)

    def join(self, group: Group, node: Tensor, children: tuple[Tensor, ...]) -> None:
        group.members[id(node)] = node
        self.home[id(node)] = group
        for child in children:
            for producer in self.producers(child):
                if producer is group:
                    continue
                if self.group(child) is producer:
                    self.store(child)
                if producer not in group.after:
                    group.after.append(producer)

    def can_join(self, group: Group, children: tuple[Tensor, ...]) -> bool:
        """Whether no operand comes from a group that runs after ``group``, nor reads the group's stored values
        elsewhere.
        """
        for child in children:
            inside = self.group(child) is group
            for producer in self.producers(child):
                if (producer is group and not inside) or producer.needs(group):
                    return False
        return True

    def open(self, pattern: str, space: tuple[str, ...], over: tuple[str, ...] = ()) -> Group:
        group = Group(len(self.groups), pattern, space, over)
        self.groups.append(group)
        return group

    def place_contraction(self, node: Reduce, pair: tuple[Tensor, Tensor]) -> None:
        left = pair[0]
        if self.group(left) is None and not self.light(left):
            # The left operand is read once per column tile: computing it there would repeat the work. (The right one
            # is packed, once,
            # by whatever expression it has.)
            self.materialise(left)
        group = self.open("contraction", node.dims, node.over)
        group.reductions.append(node)
        self.home.pop(id(node.arg), None)  # the product itself is never stored
        self.join(group, node, pair)

    def place_grouped(self, node: Reduce, parts: Segments) -> None:
        self.materialise_heavy(parts.left)
        group = self.open("grouped_contraction", node.dims, node.over)
        group.segments = parts
        group.reductions.append(node)
        self.home.pop(id(node.arg), None)
        self.join(group, node, (parts.left, parts.right, parts.position))

    def place_in_chain(self, node: Reduce, fused: FusedChain) -> None:
        """The score of a fused chain opens the group; the links join it."""
        if node is fused.score:
            self.materialise_heavy(fused.keys)
            space = (*fused.batch, *fused.rows, *fused.columns)
            group = self.chain_groups[id(fused)] = self.open("online_chain", space, fused.chain.over)
            group.fused = fused
            self.home.pop(id(node.arg), None)
            self.join(group, node, (fused.queries, fused.keys))
            return
        group = self.chain_groups[id(fused)]
        values = [v.value for v in fused.value_links if v.link.node is node]
        for value in values:
            self.materialise_heavy(value)
        group.reductions.append(node)
        self.join(group, node, (node.arg, *values))

    def materialise_heavy(self, node: Tensor) -> None:
        """Gives a free value that is read once for each block of rows a group of its own, if it costs anything."""
        if self.group(node) is None and not self.light(node):
            self.materialise(node)

    def light(self, node: Tensor) -> bool:
        """Whether a free value is read rather than computed: inputs, stored values, views of them, casts."""
        if self.group(node) is not None or not node.children():
            return True
        if isinstance(node, Map):
            return node.op == "cast" and self.light(node.args[0])
        return isinstance(node, At) and self.light(node.source)

    def materialise(self, node: Tensor) -> None:
        """Gives a free value a group of its own, or lets a group that has its space compute it on the way."""
        group = self.open("map", node.dims)
        self.join(group, node, node.children())
        group.store(node)

    def place_reduction(self, node: Reduce) -> None:
        children = (node.arg,)
        for group in reversed(self.groups):
            same = group.pattern == "row_reduction" and group.over == node.over and set(group.space) == set(node.dims)
            if same and self.can_join(group, children) and self.shares(group, node):
                break
        else:
            group = self.open("row_reduction", node.dims, node.over)
        group.reductions.append(node)
        self.join(group, node, children)

    def shares(self, group: Group, node: Reduce) -> bool:
        """Whether a reduction reads what the group computes or reads: only then does joining save a pass."""
        mine, theirs = _sources(node.arg), set[int]()
        for r in group.reductions:
            theirs |= _sources(r.arg) | {id(r)}
        return bool(mine & theirs)

    def place_scatter(self, node: Reduce, scatter: Scatter) -> None:
        group = self.open("scatter", scatter.space, node.over)
        group.reductions.append(node)
        group.scatter = scatter
        self.home.pop(id(node.arg), None)  # what the destinations choose from is never stored
        self.join(group, node, scatter.children())

    def place_update(self, node: Tensor, update: Update) -> None:
        group = self.open("update", node.dims, update.scatter.source)
        group.update = update
        self.join(group, node, update.children())
        group.store(node)

    def place_scan(self, node: Scan) -> None:
        """A scan joins one that runs the same way over what it reads, unless it needs that one's results."""
        children = (node.arg,)
        for group in reversed(self.groups):
            same = group.pattern == "scan" and group.over == (node.over,) and set(group.space) == set(node.dims)
            if not same or group.scans[0].reverse != node.reverse or self.group(node.arg) is group:
                continue
            if self.can_join(group, children) and any(_sources(s.arg) & _sources(node.arg) for s in group.scans):
                break
        else:
            group = self.open("scan", node.dims, (node.over,))
        group.scans.append(node)
        self.join(group, node, children)

    def place_map(self, node: Tensor) -> None:
        children = node.children()
        candidates: list[Group] = []
        for child in children:
            home = self.group(child)
            if home is not None and home not in candidates:
                candidates.append(home)
        for group in sorted(candidates, key=lambda g: -g.index):
            if self.fits(group, node) and self.can_join(group, children):
                self.join(group, node, children)
                return
        group = self.open("map", node.dims)
        self.join(group, node, children)

    def fits(self, group: Group, node: Tensor) -> bool:
        """Whether the node's dims are those of the group's results (or, between reductions, of its rows)."""
        dims = set(node.dims)
        if group.fused is not None:
            rows = {*group.fused.batch, *group.fused.rows}
            return id(node) in group.fused.inside or dims in (rows, rows | set(group.fused.columns))
        if group.pattern == "row_reduction":
            return dims in (set(group.space), set(group.space) | set(group.over))
        return group.update is None and dims == set(group.space)

    # -- results -------------------------------------------------------------------------------------------------------
    def place_result(self, node: Tensor) -> None:
        if self.group(node) is not None:
            self.store(node)
            return
        for group in self.groups:  # a free value that a group has at hand anyway: the sum that a norm is taken of
            if group.pattern == "row_reduction" and self.fits(group, node) and isinstance(node, Map):
                uses = any(_reaches(r.arg, node) for r in group.reductions)
                if uses and self.can_join(group, node.children()):
                    self.join(group, node, node.children())
                    group.store(node)
                    return
        self.materialise(node)

    def order_updates(self) -> None:
        """Groups that overwrite a Mut parameter run after all that read its old value.

        Where a reader needs what the writer computes, or the writer itself reads elements that another of its steps
        may have overwritten,
        the new value goes to memory of its own first, and a last group copies it.
        """
        results = list(self.graph.results)
        for i, result in enumerate(results):
            if result.updates is None:
                continue
            writer, value, old = self.home[id(result.value)], result.value, result.updates
            readers = self.readers(old)
            if writer.update is not None and self.too_late(writer, value, readers):
                self.refused.add(id(value))
                return
            if not self.in_place(writer, old) or any(g.needs(writer) for g in readers if g is not writer):
                copy = At(value, {}, value.dims, exact=True)
                writer = self.open("map", copy.dims)
                self.join(writer, copy, (value,))
                writer.store(copy)
                results[i] = replace(result, value=copy)
            writer.after.extend(g for g in readers if g is not writer and g not in writer.after)
        self.graph = replace(self.graph, results=tuple(results))

    def too_late(self, writer: Group, value: Tensor, readers: list[Group]) -> bool:
        """Whether a reader of an updated parameter needs the update first, or more digits of the new value than the
        parameter's memory holds."""
        if any(g.needs(writer) for g in readers if g is not writer):
            return True
        used = any(writer in g.after for g in self.groups)
        return used and compute_type(value.dtype) != value.dtype and not holds_exactly(value)

    def readers(self, node: Tensor) -> list[Group]:
        """The groups that read an input."""
        return [
            g for g in self.groups if g.stored and any(n is node for n in self.computed(g, (*g.stored, *g.reductions)))
        ]

    def computed(self, group: Group, roots: tuple[Tensor, ...]) -> list[Tensor]:
        """The nodes that a group goes through for ``roots``: all before what it reads from other groups."""
        found: dict[int, Tensor] = {}
        stack = list(roots)
        while stack:
            n = stack.pop()
            if id(n) not in found and read_from(self.home, group, n) is None:
                found[id(n)] = n
                stack.extend(self.needed(n))
        return list(found.values())

    def in_place(self, writer: Group, old: Tensor) -> bool:
        """Whether the group reads each element of a parameter only where and before it writes it."""
        whole = "contraction" in writer.pattern or writer.pattern == "scatter"
        elsewhere: list[Tensor] = [r.arg for r in writer.reductions] if whole else []
        for n in self.computed(writer, (*writer.stored, *writer.reductions)):
            if isinstance(n, Concat):
                elsewhere.extend(n.parts)
            elif isinstance(n, At) and not is_transpose(n):
                elsewhere.append(n.source)
        return all(n is not old for n in self.computed(writer, tuple(elsewhere)))

    def sorted(self) -> list[Group]:
        done: list[Group] = []
        pending = [g for g in self.groups if g.stored]
        while pending:
            ready = next(g for g in pending if all(a in done or not a.stored for a in g.after))
            pending.remove(ready)
            done.append(ready)
        for i, g in enumerate(done):
            g.index = i
        return done


def _sources(node: Tensor) -> set[int]:
    found: set[int] = set()
    walk((node,), lambda n: found.add(id(n)) if n.dims else None)
    return found


def _reaches(root: Tensor, node: Tensor) -> bool:
    hit: list[bool] = []
    walk((root,), lambda n: hit.append(True) if n is node else None)
    return bool(hit)
