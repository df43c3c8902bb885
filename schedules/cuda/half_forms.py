"""Functions for maps and rows whose results are rounded to a half type: fewer instructions than CUDA's own.

Each stays within 2^-17 of its value, which a rounding to 11 bits or fewer does not show. They stand in
templates/cuda/prelude.cuh. Sums of one and a tanh or an erf, which is what GELU has of them, are computed as one
function: unlike the sum, it loses no digit where it is small. So is the product of a value and one plus its own erf.

    e^x = 2^(x log2 e): the product's rounding and the constant's make |x| 1.22 · 2^-24, which is 2^-17.2 where e^x is
        the least or the largest normal float32, and the instruction adds 2^-22; smaller results are 0
    1 + tanh(u) = 2 / (1 + e^-2u)
    1 + erf(u)  = erfc(-u);  erfc(z) = t (c0 + c1 t + … + c5 t^5) e^-z²,  t = 1 / (1 + p z),  z ≥ 0, fitted for the
        relative error over 0 ≤ z ≤ 9 (least squares, reweighted until the largest error was least: 3.7e-6)
    k y (1 + erf(c y)) = 2k max(y, 0) - k |y| erfc(c |y|)
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from opsgen.dsl.dtypes import compute_type
from opsgen.dsl.tensor import Const, Map, Reduce, Tensor
from opsgen.lowering.kernel import Kernel
from opsgen.lowering.vector_math import Function

from .gates import gate
from .gates import one_plus as one_plus_of

HALVES = ("float16", "bfloat16")


def _call(name: str) -> Function:
    return lambda x, bind: tirx.call_pure_extern("float32", name, x)


_FUNCTIONS: dict[str, Function] = {"exp": _call("opsgen_half_exp"), "sigmoid": _call("opsgen_half_sigmoid")}
_SUMS: dict[str, Function] = {
    "tanh": _call("opsgen_half_one_plus_tanh"),
    "erf": _call("opsgen_half_one_plus_erf"),
}


def gated(node: Tensor) -> tuple[Tensor, Function] | None:
    """Of a product of a value and one plus its own erf: the value, and the form."""
    found = gate(node) if _narrow(node) else None
    if found is None or found.function != "erf" or found.inner is not found.value:
        return None
    if found.scale <= 0 or found.factor <= 0:
        return None
    numbers = [tirx.FloatImm("float32", x) for x in (found.factor, found.scale)]
    return found.value, lambda x, bind: tirx.call_pure_extern("float32", "opsgen_half_gated_erf", x, *numbers)


def _narrow(node: Tensor) -> bool:
    """Whether a node is computed in float32."""
    return node.dtype.kind == "float" and node.dtype.bytes <= 4


def one_plus(node: Tensor) -> tuple[Tensor, Function] | None:
    """Of a sum of one and a function that has a form of its own with it: the function's argument, and the form."""
    found = one_plus_of(node) if _narrow(node) else None
    return None if found is None else (found.args[0], _SUMS[found.op])


def use(kernel: Kernel) -> None:
    """Lets a kernel use the forms where nothing but its results, rounded to half types, can show the difference."""
    stored = kernel.group.stored
    places = [m for node in stored for m in kernel.destinations(node)]
    if not places or any(m.dtype.name not in HALVES for m in places):
        return
    for node in _forgiving(kernel, stored):
        form = gated(node) or one_plus(node)
        if form is not None:
            kernel.forms[id(node)] = form
        elif isinstance(node, Map) and node.op in _FUNCTIONS and compute_type(node.dtype).name == "float32":
            kernel.forms[id(node)] = (node.args[0], _FUNCTIONS[node.op])


_FACTORS = frozenset({"mul", "div", "neg", "abs", "max", "min", "sqrt", "rsqrt"})


def _forgiving(kernel: Kernel, stored: Sequence[Tensor]) -> list[Tensor]:
    """Nodes of which a relative error is no larger a relative error of the results, however they are reached."""
    order: list[Tensor] = []  # each before all that use it
    uses: dict[int, list[tuple[Tensor, bool]]] = {id(s): [] for s in stored}
    done: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(s, False) for s in stored]
    while stack:
        node, left = stack.pop()
        if left:
            order.append(node)
        elif id(node) not in done:
            done.add(id(node))
            if kernel.memory(node) is not None:
                continue
            stack.append((node, True))
            for child in node.children():
                uses.setdefault(id(child), []).append((node, _passes_on(node, child)))
                stack.append((child, False))
    found: dict[int, bool] = {}
    for node in reversed(order):
        found[id(node)] = all(passes and found.get(id(user), False) for user, passes in uses[id(node)])
    return [node for node in order if found[id(node)]]


def _passes_on(node: Tensor, child: Tensor) -> bool:
    """Whether a relative error of the child is at most a relative error of the node."""
    if isinstance(node, Reduce):
        return node.op in ("max", "min") or (node.op == "sum" and _not_negative(node.arg))
    if not isinstance(node, Map):
        return False
    if node.op == "where":
        return node.args[0] is not child
    if node.op == "cast":
        return node.dtype.kind == "float"
    return node.op in _FACTORS or (node.op == "add" and all(_not_negative(a) for a in node.args))


def _not_negative(node: Tensor) -> bool:
    """Whether it can be seen that a value is at least 0."""
    if isinstance(node, Const):
        return node.value >= 0
    if not isinstance(node, Map):
        return isinstance(node, Reduce) and node.op in ("sum", "max", "min") and _not_negative(node.arg)
    if node.op in ("mul", "div", "add", "max", "min"):
        same = node.op == "mul" and node.args[0] is node.args[1]
        return same or all(_not_negative(a) for a in node.args)
    if node.op == "where":
        return all(_not_negative(a) for a in node.args[1:])
    return node.op in ("exp", "exp2", "sigmoid", "abs", "sqrt", "rsqrt") or (
        node.op == "cast" and _not_negative(node.args[0])
    )
