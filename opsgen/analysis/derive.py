"""Deriving one link of a chain: F, what is taken out of it, the test of the rest, the repair, its bound and guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from ..dsl.dtypes import compute_type
from ..dsl.tensor import Const, Input, Map, Reduce, Scalar, Size, Tensor, elementwise
from ..lowering.from_sympy import NoForm, tensor
from ..lowering.to_sympy import Choice, text
from .bounds import Bounded, bounded
from .dependence import dependent, jumps
from .guards import Guard, find_guard
from .online import REDUCTIONS, Link, Proof, neutral
from .running import MOST_MAPS, Running, Undecided, map_count, shown
from .scales import Outer, applied, split
from .separate import Separation, difference, renamed

Expr = Any
"""A sympy expression."""


def first(running: Running, node: Reduce) -> Link:
    """A link that needs no other."""
    f = running.text(node.arg)
    return Link(running.names[id(node)], node, node, neutral(node.op), Proof(f, f))


def derive(running: Running, node: Reduce, moving: Sequence[Reduce]) -> Link:
    """A link that needs others, which move while it runs.

    Raises:
        Undecided: it cannot run along with them.
    """
    if node.op not in ("sum", "max", "min"):
        raise Undecided(f"{node.op} of a value that moves has no running form")
    if node.dtype.kind != "float":
        raise Undecided("integers cannot be repaired by a factor")
    if any(n.op not in REDUCTIONS for n in moving):
        raise Undecided("the position that argmax or argmin finds moves by jumps")
    if jumps(node.arg, moving, running.over):
        raise Undecided("positions are compared with a value that moves")
    if map_count(node.arg, moving) > MOST_MAPS:
        raise Undecided(f"more than {MOST_MAPS} maps lie between them")
    whole = running.lower(node.arg, moving)
    rest, outer = split(node.arg, node.op, running.over, dependent(node.arg, moving))
    if outer and not _same(running, node, whole, rest, outer, moving):
        rest, outer = node.arg, ()
    total = Reduce(node.op, rest, node.over, node.dtype) if outer else node
    needs = tuple(n for n in running.direct(rest) if any(n is m for m in moving))
    scales = {id(n): n for o in outer for n in running.direct(o.node) if any(n is m for m in moving)}
    part = running.lower(rest, moving)
    name = running.names[id(node)]
    proof = Proof(shown(whole), shown(part))
    if outer:
        value = _applied(running, node, sympy.Symbol(f"{name}_loop", real=True), outer, moving)
        proof = replace(proof, after=text(value))
    link = Link(
        name, node, total, neutral(node.op), proof, scales=tuple(scales.values()),
        after=_after(node, total, outer, running.empty) if outer else None,
    )  # fmt: skip
    if needs:
        return _repaired(running, replace(link, needs=needs), part)
    return replace(link, proof=replace(proof, unscaled=_unscaled(running, node, whole, moving)))


# -- what is taken out -------------------------------------------------------------------------------------------------
def _same(
    running: Running, node: Reduce, whole: Any, rest: Tensor, outer: Sequence[Outer], moving: Sequence[Reduce]
) -> bool:
    """Proves that the argument is what stays with what was taken out put back."""
    value = running.lower(rest, moving)
    while isinstance(whole, Choice) and isinstance(value, Choice) and whole.otherwise == value.otherwise:
        whole, value = whole.then, value.then  # the other branch is infinite, and what is taken out is finite
    if isinstance(whole, Choice) or isinstance(value, Choice):
        return False
    back = _applied(running, node, value, outer, moving)
    return bool(difference(whole, back, frozenset(running.symbols.bits)) == 0)


def _applied(running: Running, node: Reduce, value: Expr, outer: Sequence[Outer], moving: Sequence[Reduce]) -> Expr:
    for o in outer:
        scale = running.lower(o.node, moving)
        if node.op == "sum":
            value = value / scale if o.inverse else value * scale
        else:
            value = value - scale if o.inverse else value + scale
    return value


def _after(node: Reduce, total: Reduce, outer: tuple[Outer, ...], empty: Sequence[str]) -> Tensor:
    """The node's value from its total. Of no positions it is neutral, where what was taken out may be 0 / 0."""
    value = applied(total, node.op, outer, node.dims)
    for d in empty:
        value = elementwise("where", elementwise("eq", Size(d), Const(0)), Const(neutral(node.op)), value)
    kind = compute_type(node.dtype)
    return value if compute_type(value.dtype) == kind else Map("cast", (value,), value.dims, kind)


def _unscaled(running: Running, node: Reduce, whole: Any, moving: Sequence[Reduce]) -> str:
    """The repair that a link would need if nothing had been taken out: for information."""
    try:
        found = running.separation(node.op, whole, moving).repair
    except Undecided:
        return ""
    return "" if found is None else text(found)


# -- the repair --------------------------------------------------------------------------------------------------------
def _repaired(running: Running, link: Link, part: Any) -> Link:
    """The link with the repair that its part needs.

    Raises:
        Undecided: there is none, or it is not safe.
    """
    node, needs = link.node, link.needs
    found = running.separation(node.op, part, needs)
    sign = "·" if node.op == "sum" else "+"
    identity = f"F(x, r) {sign} F(x', r') = F(x, r') {sign} F(x', r)"
    if found.residual != 0:
        reason = "it does not separate into a part of the position and one of the reductions"
        raise Undecided(f"{reason}: {identity} fails", link.proof.part, text(found.residual))
    if found.repair is None:
        raise Undecided("the point x' does not cancel out of the repair", link.proof.part, text(found.moving))
    limit, why = _bound(running, link, found)
    guards = _guards(running, link, found.repair, limit.assumed)
    proof = replace(
        link.proof, separates=identity, moving=text(found.moving), repair=text(found.repair), bound=why,
        guards=tuple(_guard_text(running, g) for g in guards),
    )  # fmt: skip
    assumed = tuple(running.symbols.nodes[s] for s in limit.assumed)
    link = replace(link, proof=proof, guards=guards, assumed=assumed, additive=node.op != "sum")
    return _with_nodes(running, link, found.repair)


def _with_nodes(running: Running, link: Link, repair: Expr) -> Link:
    """The link with the repair as nodes over placeholders, which the guards make safe."""
    old = {id(n): _placeholder(running, n, "old") for n in link.needs}
    new = {id(n): _placeholder(running, n, "new") for n in link.needs}
    held: dict[int, Tensor] = {}
    places: dict[Expr, Tensor] = dict(running.symbols.nodes)
    for n, g in zip(link.needs, link.guards, strict=True):
        symbol = running.value(n).symbol
        held[id(n)] = g.safe_new(new[id(n)])
        places[renamed(symbol, "_new")] = held[id(n)]
        places[renamed(symbol, "_old")] = g.safe_old(old[id(n)], held[id(n)])
    try:
        return replace(link, repair=tensor(repair, places), old=old, new=new, held=held)
    except NoForm as bad:
        raise Undecided(f"the language has no form of {bad} in the repair", link.proof.part) from None


def _placeholder(running: Running, node: Reduce, when: str) -> Tensor:
    return Input(f"{running.names[id(node)]}_{when}", node.dims, node.dtype)


def _bound(running: Running, link: Link, found: Separation) -> tuple[Bounded, str]:
    if link.op != "sum":
        return Bounded(found.repair), "a summand cannot overflow"
    values = [running.value(n) for n in _with_needs(running, link.needs)]
    nodes = running.symbols.nodes
    scalars = sorted((s for s in found.repair.free_symbols if isinstance(nodes.get(s), Scalar)), key=str)
    limit = bounded(found.repair, [v.motion for v in values], scalars)
    if isinstance(limit, str):
        raise Undecided(f"{limit}: {text(found.repair)}", link.proof.part)
    moved = ", ".join(f"{m.new} = {text(m.start)} {'+' if m.sign > 0 else '-'} {m.step}" for m in limit.motions)
    steps = ", ".join(f"{m.step} >= 0" for m in limit.motions)
    why = f"with {moved} and {steps}: {text(limit.factor)} <= 1"
    if limit.assumed:
        why += f", if {' and '.join(f'{s} >= 0' for s in limit.assumed)}"
    return limit, why


def _with_needs(running: Running, needs: Sequence[Reduce]) -> list[Reduce]:
    """The reductions, and those with which they move; earlier ones first."""
    found: dict[int, Reduce] = {}

    def add(node: Reduce) -> None:
        if id(node) not in found:
            for n in running.links[id(node)].needs if id(node) in running.links else ():
                add(n)
            found[id(node)] = node

    for n in needs:
        add(n)
    return list(found.values())


# -- guards ------------------------------------------------------------------------------------------------------------
def _guards(running: Running, link: Link, repair: Expr, assumed: Sequence[Expr]) -> tuple[Guard, ...]:
    positive = {s: sympy.Symbol(s.name, positive=True) for s in assumed}

    def part(put: dict[int, Expr]) -> Any:
        value = running.lower(link.part, link.needs, put)
        return value if isinstance(value, Choice) else value.xreplace(positive)

    # In the repair an assumed scalar can be 0, and 0 · -inf is NaN.
    repair = repair.xreplace({s: sympy.Symbol(s.name, nonnegative=True) for s in assumed})
    found = []
    for n in link.needs:
        value = running.value(n)
        guard = find_guard(n, value.symbol, value.arg, part, link.op, repair, running.symbols.numbering.of)
        if guard is None:
            raise Undecided(
                f"F or the repair may have no value while {value.symbol.name} is {neutral(n.op):g}, and it is not "
                "shown that the positions so far add nothing",
                link.proof.part,
            )
        found.append(guard)
    return tuple(found)


def _guard_text(running: Running, guard: Guard) -> str:
    name = running.value(guard.link).symbol.name
    relation = "<=" if guard.up_to else "="
    return f"while {name} {relation} {guard.value:g} nothing was added, and {guard.stand_in:g} stands in for {name}"
