"""The graph in sympy, and back: values agree with numpy at random points, and what symbols stand for."""

from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.dsl import Op
from opsgen.dsl.op import Graph
from opsgen.dsl.tensor import At, Map, Reduce, Tensor, walk
from opsgen.lowering.from_sympy import NoForm, tensor
from opsgen.lowering.to_numpy import Evaluator
from opsgen.lowering.to_sympy import LARGEST_LEAF, Choice, Lowering, Symbols, text

INFINITY = float("inf")


def lower(op: Op) -> tuple[Any, Symbols, Graph]:
    """The expression of an op's result, over symbols for its inputs."""
    graph = op.trace()
    symbols = Symbols()
    return Lowering(symbols).value(graph.outputs()[0]), symbols, graph


def reductions(graph: Graph) -> list[Reduce]:
    found: list[Reduce] = []
    walk(graph.outputs(), lambda n: found.append(n) if isinstance(n, Reduce) else None)
    return found


def at_point(node: Tensor, graph: Graph, values: dict[str, float]) -> float:
    """The node's value by numpy, for inputs of one element."""
    sizes = dict.fromkeys(graph.extents, 1)
    leaves = {n.name: np.full([1] * len(n.dims), values[n.name]) for n in graph.inputs}
    leaves |= {n.name: np.asarray(values[n.name]) for n in graph.scalars}
    run = Evaluator(graph, sizes, leaves, double=True)
    run.run((node,))
    return float(run.full(node).reshape(-1)[0])


_UNARY = {
    "abs": og.abs, "exp": og.exp, "exp2": og.exp2, "tanh": og.tanh, "erf": og.erf, "sigmoid": og.sigmoid, "sin": og.sin,
    "cos": og.cos, "floor": og.floor, "ceil": og.ceil, "neg": lambda x: -x, "log": lambda x: og.log(og.abs(x) + 0.5),
    "log1p": lambda x: og.log1p(x * x), "sqrt": lambda x: og.sqrt(og.abs(x)), "rsqrt": lambda x: og.rsqrt(x * x + 0.1),
    "square": lambda x: x**2, "cast": lambda x: og.cast(x, og.float32), "max": lambda x: og.max(x, 0.25),
    "min": lambda x: og.min(x, 3), "round": og.round, "mod": lambda x: x % 0.75, "floordiv": lambda x: x // 0.75,
}  # fmt: skip


@pytest.mark.parametrize("name", _UNARY)
def test_maps_have_numpys_values_and_come_back(name: str) -> None:
    @og.op
    def made(x: og.Tensor["n"], y: og.Tensor["n"], *, scale: float) -> og.Tensor:
        return _UNARY[name](x * scale - y) / (1.5 + y * y)

    e, symbols, graph = lower(made)
    values = {"x": 0.7, "y": -0.4, "scale": 1.3}
    back = tensor(e, symbols.nodes)
    expected = at_point(graph.outputs()[0], graph, values)
    assert at_point(back, graph, values) == pytest.approx(expected, rel=1e-12)
    if not e.atoms(sympy.core.function.AppliedUndef):
        point = {s: values.get(s.name, getattr(symbols.nodes[s], "value", None)) for s in e.free_symbols}
        assert float(e.subs(point)) == pytest.approx(expected, rel=1e-12)


_STEPS = {
    "add": lambda value, other: value + other,
    "sub": lambda value, other: other - value,
    "mul": lambda value, other: value * other,
    "div": lambda value, other: value / (og.abs(value) + 1 + other * other),
    "exp": lambda value, other: og.exp(og.tanh(value)),
    "sqrt": lambda value, other: og.sqrt(og.abs(value) + 0.1),
    "neg": lambda value, other: -value,
    "half": lambda value, other: value * 0.5,
    "pow": lambda value, other: (og.tanh(value) * 0.5) ** 3,
}


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.sampled_from(list(_STEPS)), st.sampled_from(["x", "y", 0.3, 2, -1.7])), max_size=8))
def test_random_expressions_come_back_with_the_same_value(steps: list[tuple[str, Any]]) -> None:
    @og.op
    def made(x: og.Tensor["n"], y: og.Tensor["n"]) -> og.Tensor:
        value: Any = x
        for step, operand in steps:
            value = _STEPS[step](value, {"x": x, "y": y}.get(operand, operand))
        return value

    e, symbols, graph = lower(made)
    values = {"x": 0.6, "y": -1.2}
    expected = at_point(graph.outputs()[0], graph, values)
    assert at_point(tensor(e, symbols.nodes), graph, values) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_one_symbol_for_one_value() -> None:
    @og.op
    def made(x: og.Tensor["n", "m"], ids: og.Tensor["n", og.int64]) -> og.Tensor:
        return x.at(n=ids) - x.at(n=ids) + og.transpose(x, "m", "n") - x + og.sum(x, over="m") - og.sum(x, over="m")

    assert lower(made)[0] == 0


def test_names_are_kept_apart() -> None:
    @og.op
    def made(r1: og.Tensor["n"], n: og.Tensor["n"], r2_old: og.Tensor["n"]) -> og.Tensor:
        return r1 + n * og.index("n") + r2_old + og.sum(n, over="n") + og.size("n")

    e, symbols, _ = lower(made)
    assert {s.name for s in e.free_symbols} == {"r1_", "n", "n_2", "r2_old_", "sum_n", "n_n"}
    assert len(symbols.nodes) == 6


def test_signs_that_are_known() -> None:
    @og.op
    def made(x: og.Tensor["n"], c: og.Tensor["n", og.bool_], b: og.Tensor["n", og.uint8]) -> og.Tensor:
        return og.where(c, x * -0.3, 1.7) * og.size("n") * og.index("n") * b

    e, symbols, _ = lower(made)
    by_name = {s.name: s for s in e.free_symbols}
    assert by_name["x"].is_real and by_name["x"].is_nonnegative is None
    assert by_name["n_n"].is_positive and by_name["b"].is_nonnegative and by_name["n"].is_nonnegative
    assert by_name["-0.3"].is_negative and by_name["1.7"].is_positive
    assert symbols.bits == {by_name["c"]}


def test_a_choice_is_a_sum_where_it_is_finite() -> None:
    @og.op
    def made(x: og.Tensor["n"], y: og.Tensor["n"], c: og.Tensor["n", og.bool_]) -> og.Tensor:
        return og.where(c, x, y)

    assert text(lower(made)[0]) in ("c*x + y*(1 - c)", "y*(1 - c) + c*x")


def test_infinities_in_a_choice() -> None:
    @og.op
    def made(x: og.Tensor["n"], c: og.Tensor["n", og.bool_]) -> og.Results:
        m = og.max(x, over="n")
        return og.results(
            fixed=og.where(c, x, -INFINITY) + m,
            moving=og.where(c, x - m, -INFINITY),
            finite=og.exp(og.where(c, x - m, -INFINITY)),
            both=og.where(c, x - m, -INFINITY) * 2.0 + 1.0,
        )

    graph = made.trace()
    m = next(r for r in reductions(graph))
    symbols = Symbols()
    symbols.place(m, "r1", real=True)
    fixed, moving, finite, both = (Lowering(symbols, [m]).value(v) for v in graph.outputs())
    assert text(fixed) == "r1 + t"  # one symbol for the whole choice: nothing in it depends on m
    assert isinstance(moving, Choice) and text(moving.then) == "x - r1" and moving.otherwise == -sympy.oo
    assert text(finite) == "c*exp(x - r1)"
    assert isinstance(both, Choice) and both.otherwise == -sympy.oo


def test_comparisons_with_infinity_are_decided_for_what_moves() -> None:
    @og.op
    def made(x: og.Tensor["n"]) -> og.Results:
        m = og.max(x, over="n")
        return og.results(
            eq=og.where(m == -INFINITY, 0.0, m), ne=og.where(m != -INFINITY, m, 0.0),
            gt=og.where(m > -INFINITY, m, 0.0), undecided=og.where(m > 3.0, m, 0.0),
        )  # fmt: skip

    graph = made.trace()
    (m,) = reductions(graph)
    symbols = Symbols()
    r = symbols.place(m, "r1", real=True)
    *decided, undecided = (Lowering(symbols, [m]).value(v) for v in graph.outputs())
    assert decided == [r, r, r]
    assert undecided.func.__name__ == "where"


def test_conversions_are_dropped_but_for_half_types_of_what_moves_alone() -> None:
    @og.op
    def made(x: og.Tensor["n", og.float32]) -> og.Results:
        m = og.max(x, over="n")
        return og.results(
            wide=og.cast(m, og.float64), alone=og.cast(m * 2.0, og.float16), together=og.cast(x - m, og.bfloat16),
            integer=og.cast(og.cast(x, og.int32), og.float32),
        )  # fmt: skip

    graph = made.trace()
    (m,) = reductions(graph)
    symbols = Symbols()
    symbols.place(m, "r1", real=True)
    found = [text(Lowering(symbols, [m]).value(v)) for v in graph.outputs()]
    assert found == ["r1", "float16(2*r1)", "x - r1", "int32(x)"]


def test_large_expressions_of_what_does_not_move_are_a_leaf() -> None:
    @og.op
    def made(x: og.Tensor["n"]) -> og.Tensor:
        y = x
        for _ in range(LARGEST_LEAF + 1):
            y = og.sin(y) + 0.5
        return og.exp(y - og.max(y, over="n"))

    graph = made.trace()
    (m,) = reductions(graph)
    symbols = Symbols()
    symbols.place(m, "r1", real=True)
    assert text(Lowering(symbols, [m]).value(graph.outputs()[0])) == "exp(t - r1)"


def test_repairs_come_back_in_the_form_that_is_stable() -> None:
    a, b, c = sympy.symbols("a b c", real=True)
    nodes = {s: og.dsl.tensor.Input(s.name, ("n",), og.float32) for s in (a, b, c)}

    def shape(node: Tensor) -> str:
        if isinstance(node, Map):
            return f"{node.op}({', '.join(map(shape, node.args))})"
        return str(getattr(node, "name", getattr(node, "value", "?")))

    two = sympy.Integer(2)
    for e, expected in (
        (sympy.exp(a - b), "exp(sub(a, b))"),
        (two ** (a - b), "exp2(sub(a, b))"),
        (sympy.sqrt(a) / sympy.sqrt(b), "div(sqrt(a), sqrt(b))"),
        (1 / sympy.sqrt(b), "rsqrt(b)"),
        (a / b, "div(a, b)"),
        (-a * b, "neg(mul(a, b))"),
        (a / 2, "div(a, 2.0)"),
        (a**2, "mul(a, a)"),
        (sympy.Function("float16", real=True)(a), "cast(a)"),
    ):
        assert shape(tensor(e, nodes)) == expected


def test_what_the_language_has_no_words_for() -> None:
    x = sympy.Symbol("x", real=True)
    node = og.dsl.tensor.Input("x", ("n",), og.float32)
    for e in (sympy.besselj(0, x), sympy.Function("where", real=True)(x), sympy.I * x):
        with pytest.raises(NoForm):
            tensor(e, {x: node})


def test_transposes_are_their_source() -> None:
    @og.op
    def made(x: og.Tensor["n", "m"]) -> og.Tensor:
        return og.transpose(og.exp(og.transpose(x, "m", "n")), "n", "m")

    e, symbols, graph = lower(made)
    assert text(e) == "exp(x)" and isinstance(graph.outputs()[0], At)
    assert [s.name for s in symbols.nodes] == ["x"]
