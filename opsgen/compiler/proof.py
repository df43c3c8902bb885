"""The stage proof of `inspect`: the chains of an op, what was shown about each link, and the loops that follow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.dependence import inside
from ..analysis.groups import is_transpose
from ..analysis.online import Break, Chain, Link, analyse
from ..dsl.op import Graph
from ..dsl.tensor import At, Concat, Const, Index, Input, Map, Reduce, Scalar, Scan, Size, Tensor

Data = dict[str, Any]

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "and", "or": "or",
    "bit_and": "&", "bit_or": "|", "bit_xor": "^", "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip
_LONGEST = 160


def proof_data(graph: Graph) -> Data:
    """The chains and breaks of a graph, as what JSON can hold.

    Raises:
        TargetError: E2003, sympy is missing.
    """
    found = analyse(graph)
    return {"chains": [_chain(c) for c in found.chains], "breaks": [_break(b) for b in found.breaks]}


def _chain(chain: Chain) -> Data:
    names = {id(n): name for name, n in chain.legend.items()}
    links = [_link(k, names) for k in chain.links]
    return {
        "over": list(chain.over),
        "links": links,
        "given": [names[id(n)] for n in chain.given],
        "names": _names(chain.legend, [text for k in links for text in (k["function"], k["part"])], chain.links),
        "start": [f"{_total(k)} = {k.neutral:g}" for k in chain.links],
        "rolling": [_rolling(k, chain.over) for k in chain.links],
        "split": [_merged(k) for k in chain.links],
        "after": [_after(k) for k in chain.links if k.after is not None],
    }


def _link(link: Link, names: Mapping[int, str]) -> Data:
    p = link.proof
    return {
        "name": link.name, "op": link.op, "over": list(link.node.over), "dims": list(link.node.dims),
        "dtype": link.node.dtype.name, "neutral": repr(link.neutral), "needs": [names[id(n)] for n in link.needs],
        "scales": [names[id(n)] for n in link.scales], "function": p.function, "part": p.part, "after": p.after,
        "identity": p.separates, "moving": p.moving, "repair": p.repair, "additive": link.additive, "bound": p.bound,
        "assumed": [a.name for a in link.assumed if isinstance(a, Scalar)], "guards": list(p.guards),
        "unscaled": p.unscaled,
    }  # fmt: skip


def _break(found: Break) -> Data:
    names = {id(n): name for name, n in found.legend.items()}
    return {
        "over": list(found.over), "name": found.name, "op": found.node.op, "reason": found.reason,
        "needs": [names.get(id(n), n.op) for n in found.earlier], "function": found.function,
        "residual": found.residual, "names": _names(found.legend, [found.function], ()),
    }  # fmt: skip


def _names(legend: Mapping[str, Tensor], texts: Sequence[str], links: Sequence[Link]) -> Data:
    """What the names in some texts stand for, where they do not say it themselves."""
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join(texts)))
    links_of = {id(k.node) for k in links}
    plain = (Input, Scalar, Index, Const)
    return {
        name: described(node, {id(n): name for name, n in legend.items()})
        for name, node in sorted(legend.items())
        if name in used and id(node) not in links_of and not isinstance(node, plain)
    }


# -- loops -------------------------------------------------------------------------------------------------------------
def _renamed(text: str, link: Link, suffix: str) -> str:
    """A part's text, for the values of earlier links under another name."""
    return re.sub(r"\b(r\d+)\b(?!_)", lambda m: m[1] + suffix if m[1] in _moving(link) else m[1], text)


def _moving(link: Link) -> set[str]:
    return set(re.findall(r"\br\d+(?=_old|_new)", link.proof.repair))


def _total(link: Link) -> str:
    return f"{link.name}_loop" if link.after is not None else link.name


def _joined(link: Link, a: str, b: str) -> str:
    sign = {"sum": "+", "prod": "*"}.get(link.op)
    return f"{a} {sign} {b}" if sign else f"{link.op}({a}, {b})"


def _repaired(link: Link, total: str, repair: str) -> str:
    if link.repair is None:
        return total
    return f"{total} + ({repair})" if link.additive else f"{total} * {repair}"


def _rolling(link: Link, over: Sequence[str]) -> str:
    old = _repaired(link, f"{_total(link)}_old", link.proof.repair)
    part = f"{link.op} over the tile of {_renamed(link.proof.part, link, '_new')}"
    return f"{_total(link)}_new = {_joined(link, old, part)}"


def _merged(link: Link) -> str:
    def share(name: str) -> str:
        repair = link.proof.repair.replace("_old", f"_{name}").replace("_new", "")
        return _repaired(link, f"{_total(link)}_{name}", repair)

    return f"{_total(link)} = {_joined(link, share('a'), share('b'))}"


def _after(link: Link) -> str:
    return f"{link.name} = {link.proof.after}"


# -- what a name stands for --------------------------------------------------------------------------------------------
def described(root: Tensor, names: Mapping[int, str]) -> str:
    """A node in words of the language, over what has a name; long ones end in dots."""
    texts: dict[int, str] = {}
    for node in _order(root):
        named = names.get(id(node)) if isinstance(node, (At, Reduce, Scan, Concat)) and node is not root else None
        texts[id(node)] = named or _described(node, texts)
    text = texts[id(root)]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _order(root: Tensor) -> list[Tensor]:
    """The nodes of an expression, and of what a leaf at its root is read from, operands first."""
    if isinstance(root, Map):
        return inside(root)
    return [n for c in root.children() for n in inside(c)] + [root]


def _described(node: Tensor, texts: Mapping[int, str]) -> str:
    below = [texts.get(id(c), "…") for c in node.children()]
    if isinstance(node, (Input, Scalar)):
        return node.name
    if isinstance(node, Const):
        return f"{node.value:g}" if isinstance(node.value, float) else str(node.value)
    if isinstance(node, (Index, Size)):
        return node.dim if isinstance(node, Index) else f"size({node.dim})"
    if isinstance(node, Map):
        if node.op in _INFIX:
            return f"({below[0]} {_INFIX[node.op]} {below[1]})"
        return below[0] if node.op == "cast" else f"{node.op}({', '.join(below)})"
    if isinstance(node, Reduce):
        return f"{node.op} over {', '.join(node.over)} of {below[0]}"
    if isinstance(node, Scan):
        return f"running {node.op} along {node.over} of {below[0]}"
    if isinstance(node, At):
        if is_transpose(node):
            return below[0]
        positions = ", ".join(f"{d}={p}" for d, p in zip(node.coords, below[1:], strict=True))
        return f"{below[0]} at {positions}"
    if isinstance(node, Concat):
        return f"{', '.join(below)} joined"
    return node.dtype.name


# -- text --------------------------------------------------------------------------------------------------------------
def proof_text(found: Data) -> list[str]:
    """What `proof_data` gave, for reading."""
    lines: list[str] = []
    for chain in found["chains"]:
        lines += _chain_text(chain)
    for b in found["breaks"]:
        lines += _break_text(b)
    return lines or ["", "no chain: no reduction needs another one over the same dims"]


def _chain_text(chain: Data) -> list[str]:
    over = ", ".join(chain["over"])
    lines = ["", f"chain over {over}: {', '.join(k['name'] for k in chain['links'])}"]
    if chain["given"]:
        lines.append(f"  finished before: {', '.join(chain['given'])}")
    lines += [f"  {name} stands for {what}" for name, what in chain["names"].items()]
    for k in chain["links"]:
        lines += _link_text(k)
    lines += ["", f"  rolling, from {', '.join(chain['start'])}, for each tile of {over}"]
    lines += [f"    {line}" for line in chain["rolling"]]
    lines += ["", "  split, shares a and b merge as", *(f"    {line}" for line in chain["split"])]
    if chain["after"]:
        lines += ["", "  after either", *(f"    {line}" for line in chain["after"])]
    return lines


def _link_text(k: Data) -> list[str]:
    lines = ["", f"  {k['name']} = {k['op']} over {', '.join(k['over'])} of F"]

    def say(label: str, text: str) -> None:
        lines.append(f"    {label:<10} {text}")

    say("F", k["function"])
    if k["after"]:
        say("taken out", f"{k['name']} = {k['after']}, and {k['name']}_loop is the {k['op']} of F = {k['part']}")
    if k["identity"]:
        say("shown", k["identity"])
        say("H(r)", k["moving"])
        say("repair", f"{'+' if k['additive'] else '*'} {k['repair']}")
        say("bound", k["bound"])
        for guard in k["guards"]:
            say("guard", guard)
    elif k["after"]:
        say("repair", "none: nothing in the loop depends on what moves")
        if k["unscaled"]:
            say("", f"(inside the loop it would be {'*' if k['op'] == 'sum' else '+'} {k['unscaled']})")
    return lines


def _break_text(b: Data) -> list[str]:
    lines = ["", f"{b['name']}, {b['op']} over {', '.join(b['over'])}, needs {', '.join(b['needs'])} finished"]
    lines += [f"  {name} stands for {what}" for name, what in b["names"].items()]
    if b["function"]:
        lines.append(f"    {'F':<10} {b['function']}")
    lines.append(f"    {'why':<10} {b['reason']}")
    if b["residual"]:
        lines.append(f"    {'left over':<10} {b['residual']}")
    return lines
