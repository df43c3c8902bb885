"""The language: how dims, types and names of a graph come about. Values are compared with numpy written directly."""

import enum
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import opsgen as og
from opsgen.dsl.op import variants
from opsgen.dsl.tensor import Input, Reduce, Tensor, walk
from opsgen.errors import CompileError, DefinitionError
from opsgen.ops import softmax

RANDOM = np.random.default_rng(7)


def dims_of(op: og.Op, **kwargs: Any) -> dict[str, tuple[str, ...]]:
    return {r.name: r.value.dims for r in op.trace(**kwargs).results}


def types_of(op: og.Op, dtype: Any = og.float32, **kwargs: Any) -> dict[str, str]:
    return {r.name: r.dtype.name for r in op.trace(dtype, **kwargs).results}


# -- dims --------------------------------------------------------------------------------------------------------------
def test_a_result_has_the_left_dims_and_then_the_new_ones_of_the_right() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], y: og.Tensor["b", "c"], z: og.Tensor["d", "a"]) -> og.Results:
        return og.results(
            xy=x * y, yx=y * x, zxy=z + x + y, scalar=og.sum(x, over=("a", "b")), dot=og.dot(x, y, over="b")
        )

    assert dims_of(f) == {
        "xy": ("a", "b", "c"),
        "yx": ("b", "c", "a"),
        "zxy": ("d", "a", "b", "c"),
        "scalar": (),
        "dot": ("a", "c"),
    }


def test_broadcasting_goes_by_name_and_not_by_size() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], y: og.Tensor["b", "a"]) -> og.Tensor:
        return x + y

    x, y = RANDOM.standard_normal((2, 3, 3))
    np.testing.assert_array_equal(f.evaluate(x, y), x + y.T)


def test_a_size_of_one_does_not_broadcast() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["a"]) -> og.Tensor:
        return x + y

    with pytest.raises(og.OpsgenError, match="E4005"):
        f.evaluate(np.ones(3), np.ones(1))


def test_leading_dims_are_one_dim_called_rows() -> None:
    @og.op
    def f(x: og.Tensor["...", "n"], y: og.Tensor["..."], w: og.Tensor["n"]) -> og.Results:
        return og.results(a=x * w, b=w * x, c=y * 2.0, d=og.transpose(w * x, "...", "n"))

    assert dims_of(f) == {"a": ("rows", "n"), "b": ("rows", "n"), "c": ("rows",), "d": ("rows", "n")}
    x, y, w = RANDOM.standard_normal((2, 3, 5)), RANDOM.standard_normal((2, 3)), RANDOM.standard_normal(5)
    found = f.evaluate(x, y, w)
    np.testing.assert_array_equal(found["a"], x * w)
    np.testing.assert_array_equal(found["b"], x * w)
    np.testing.assert_array_equal(found["d"], x * w)


def test_a_bound_dim_is_a_constant() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return x.merge("a", "b", into="ab")

    graph = f.trace(bound={"b": 4})
    assert graph.extent("b").value == 4
    assert graph.extent("ab").evaluate({"a": 3}) == 12
    assert graph.extent("ab").names() == {"a"}


# -- types -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("float32", "float32", "float32"),
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float16", "bfloat16", "float32"),
        ("float16", "float32", "float32"),
        ("float32", "float64", "float64"),
    ],
)
def test_promotion_of_floats(left: str, right: str, result: str) -> None:
    @og.op
    def f(x: og.Tensor["n"], y: og.Tensor["n"]) -> og.Tensor:
        return x + y

    for a, b in ((left, right), (right, left)):
        assert types_of(f, dtypes_of={"x": getattr(og, a), "y": getattr(og, b)}) == {"out": result}


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (og.int8, og.int32, "int32"), (og.int32, og.int64, "int64"),
        (og.uint8, og.int8, "int16"), (og.uint8, og.int32, "int32"),
        (og.int64, og.float16, "float16"), (og.uint8, og.bfloat16, "bfloat16"), (og.int8, og.float32, "float32"),
    ],
)  # fmt: skip
def test_promotion_of_integers(left: Any, right: Any, result: str) -> None:
    @og.op
    def f(x: og.Tensor["n", left], y: og.Tensor["n", right]) -> og.Results:
        return og.results(xy=x + y, yx=y * x)

    assert types_of(f) == {"xy": result, "yx": result}


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (og.float8_e4m3fn, og.float8_e4m3fn, "float8_e4m3fn"), (og.float8_e4m3fn, og.float8_e5m2, "float32"),
        (og.float8_e5m2, og.float16, "float16"), (og.float8_e4m3fn, og.bfloat16, "bfloat16"),
        (og.float8_e4m3fn, og.float32, "float32"), (og.float8_e5m2, og.int32, "float8_e5m2"),
    ],
)  # fmt: skip
def test_promotion_of_float8(left: Any, right: Any, result: str) -> None:
    @og.op
    def f(x: og.Tensor["n", left], y: og.Tensor["n", right]) -> og.Results:
        return og.results(xy=x + y, yx=y * x)

    assert types_of(f) == {"xy": result, "yx": result}


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (og.int8, og.int8, "int32"), (og.uint8, og.int8, "int32"), (og.uint8, og.uint8, "int32"),
        (og.int8, og.int16, "int64"), (og.int32, og.int32, "int64"), (og.int8, og.float32, "float32"),
        (og.int8, og.float8_e4m3fn, "float8_e4m3fn"),
    ],
)  # fmt: skip
def test_products_of_integers_are_summed_in_a_type_that_holds_them(left: Any, right: Any, result: str) -> None:
    @og.op
    def f(x: og.Tensor["m", "k", left], w: og.Tensor["n", "k", right]) -> og.Tensor:
        return og.dot(x, w, over="k")

    assert types_of(f) == {"out": result}


def test_the_least_int8_squared() -> None:
    @og.op
    def f(x: og.Tensor["m", "k", og.int8], w: og.Tensor["n", "k", og.int8]) -> og.Tensor:
        return og.dot(x, w, over="k")

    x = np.full((1, 1000), -128, np.int8)
    assert f.evaluate(x, x) == 1000 * 128 * 128  # in int8 each product would be 0


@pytest.mark.parametrize("dtype", [og.float16, og.bfloat16, og.float32, og.float64])
def test_numbers_adapt_to_the_tensors_beside_them(dtype: Any) -> None:
    @og.op
    def f(x: og.Tensor["n"], mask: og.Tensor["n", og.bool_], *, eps: float = 0.5) -> og.Results:
        weak = og.where(mask, 1.0, 0.0)
        return og.results(
            number=x + 1.5,
            integer=2 * x,
            scalar=x * eps,
            scalars=x * (eps + 1) ** 0.5,
            mean=og.mean(x, over="n"),
            mask=x * weak,
            count=x / og.max(og.sum(weak, over="n"), 1.0),
            position=x + og.index("n") * 0.5,
            ratio=x * (og.index("n") / og.size("n")),
            angle=x * og.cos(og.index("n")),
            branch=og.where(mask, x, float("-inf")),
            numpys=np.float64(2) * x * np.float32(3),
            table=x + og.compute(lambda n: og.where(n > 2, 0.0, float("-inf"))),
        )

    found = types_of(f, dtype)
    assert found == dict.fromkeys(found, dtype.name)


def test_types_without_a_float_input() -> None:
    @og.op
    def f(i: og.Tensor["n", og.int32], b: og.Tensor["n", og.bool_]) -> og.Results:
        return og.results(
            half=i * 0.5, quotient=i / 2, floor=i // 2, root=og.sqrt(i), more=i + 1, mean=og.mean(i, over="n"),
            sum=og.sum(i, over="n"), position=og.argmax(i, over="n"), less=i < 3, pick=og.where(b, 1.0, 0.0),
            count=og.where(b, 1, 0), index=og.index("n"),
        )  # fmt: skip

    assert types_of(f) == {
        "half": "float32", "quotient": "float32", "floor": "int32", "root": "float32", "more": "int32",
        "mean": "float32", "sum": "int64", "position": "int64", "less": "bool", "pick": "float32",
        "count": "int64", "index": "int64",
    }  # fmt: skip


def test_a_cast_is_not_weak() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Results:
        return og.results(up=og.cast(x, og.float32) * 2.0, down=x.cast("float16"), forced=x + og.cast(1.0, og.float32))

    assert types_of(f, og.float16) == {"up": "float32", "down": "float16", "forced": "float32"}


# -- parameters --------------------------------------------------------------------------------------------------------
def test_optional_tensors_specialise() -> None:
    @og.op
    def f(
        x: og.Tensor["n"], a: og.Tensor["n"] | None = None, b: og.Tensor["n"] | None = None, *, eps: float = 0.0
    ) -> og.Tensor:
        y = x + eps
        if a is not None:
            y = y + a
        return y if b is None else y * b

    assert set(variants(f)) == {frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")}
    x, a, b = RANDOM.standard_normal((3, 4))
    np.testing.assert_array_equal(f.evaluate(x), x)
    np.testing.assert_array_equal(f.evaluate(x, a), x + a)
    np.testing.assert_array_equal(f.evaluate(x, b=b), x * b)
    np.testing.assert_array_equal(f.evaluate(x, a, b, eps=1.0), (x + 1 + a) * b)
    assert [i.name for i in f.trace(absent=frozenset("a")).inputs] == ["x", "b"]


class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"


def test_attributes_specialise() -> None:
    @og.op
    def f(
        x: og.Tensor["n"],
        *,
        negate: bool = False,
        power: int = 2,
        mode: Literal["double", "half"] = "half",
        side: Side = Side.LEFT,
    ) -> og.Tensor:
        y = x**power * (2.0 if mode == "double" else 0.5)
        y = y - 1.0 if side == "right" else y
        return -y if negate else y

    x = np.array([1.0, 3.0])
    np.testing.assert_array_equal(f.evaluate(x), x**2 / 2)
    np.testing.assert_array_equal(f.evaluate(x, negate=True, power=3, mode="double"), -(x**3) * 2)
    np.testing.assert_array_equal(f.evaluate(x, side=Side.RIGHT), x**2 / 2 - 1)
    np.testing.assert_array_equal(f.evaluate(x, side="right"), x**2 / 2 - 1)
    assert f.trace().attributes == {"negate": False, "power": 2, "mode": "half", "side": "left"}
    for wrong in ({"negate": 1}, {"power": 2.0}, {"power": True}, {"mode": "triple"}, {"side": "up"}):
        with pytest.raises(CompileError, match=f"E3003: op 'f': attribute '{next(iter(wrong))}'"):
            f.evaluate(x, **wrong)


def test_an_attribute_without_default_is_asked_for() -> None:
    @og.op
    def f(x: og.Tensor["n"], *, mode: Literal["up", "down"]) -> og.Tensor:
        return og.ceil(x) if mode == "up" else og.floor(x)

    with pytest.raises(CompileError, match=r"E3003: .*'mode' is not given; .*\['up', 'down'\]"):
        f.trace()
    np.testing.assert_array_equal(f.evaluate(np.array([0.5]), mode="up"), [1])


def test_annotated_is_accepted_equally() -> None:
    @og.op
    def brackets(
        x: og.Tensor["...", "n"], ids: og.Tensor["m", og.int64], b: og.Tensor["n"] | None, s: og.Mut["n"]
    ) -> og.Results:
        return og.results(s=s * 2.0, y=x)

    @og.op
    def annotated(
        x: Annotated[og.Tensor, "...", "n"],
        ids: Annotated[og.Tensor, "m", og.int64],
        b: Annotated[og.Tensor, "n"] | None,
        s: Annotated[og.Mut, "n"],
    ) -> og.Results:
        return og.results(s=s * 2.0, y=x)

    assert annotated.parameters == brackets.parameters
    assert annotated.parameters[3].spec is not None and annotated.parameters[3].spec.mutable


def test_several_results() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Results:
        return og.results(keys=x, values=x * 2.0, items=og.sum(x, over="n"))

    @og.op
    def g(x: og.Tensor["n"]) -> og.Tensor:
        r = f(x)
        keys, values, items = r
        assert len(r) == 3 and not hasattr(r, "other")
        return r.keys + r.values + r.items + keys + values + items

    x = np.array([1.0, 2.0])
    found = f.evaluate(x)
    assert list(found) == ["keys", "values", "items"]
    np.testing.assert_array_equal(g.evaluate(x), 2 * (x + 2 * x + 3))


def test_a_mut_parameter_is_updated_by_the_result_of_its_name() -> None:
    @og.op
    def append(cache: og.Mut["length", "width"], new: og.Tensor["width"], at: og.Tensor[og.int64]) -> og.Results:
        return og.results(cache=og.where(og.index("length") == at, new, cache), sum=og.sum(new, over="width"))

    graph = append.trace(og.float16)
    cache = graph.results[0]
    assert isinstance(cache.updates, Input) and cache.updates.name == "cache" and cache.dtype is og.float16
    assert graph.results[1].updates is None
    x = np.zeros((3, 2))
    found = append.evaluate(x, np.array([1.0, 2.0]), np.int64(1))
    np.testing.assert_array_equal(found["sum"], 3)
    np.testing.assert_array_equal(found["cache"], [[0, 0], [1, 2], [0, 0]])


def test_the_new_value_of_a_mut_parameter_has_its_dims_in_its_order() -> None:
    @og.op
    def add(cache: og.Mut["length", "width"], wide: og.Mut["a", "b"], new: og.Tensor["width"]) -> og.Results:
        return og.results(cache=new + cache, wide=og.index("a") * 1.0)

    cache, new = RANDOM.standard_normal((3, 2)), RANDOM.standard_normal(2)
    found = add.evaluate(cache, np.zeros((3, 4)), new)
    np.testing.assert_array_equal(found["cache"], cache + new)
    np.testing.assert_array_equal(found["wide"], np.tile(np.arange(3.0)[:, None], 4))


# -- positions ---------------------------------------------------------------------------------------------------------
def test_index_and_size() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return og.where(og.index("b") <= og.index("a"), x, 0.0) * og.size("b")

    # the dims of og.where's values come first: a mask does not turn a result around
    assert dims_of(f) == {"out": ("a", "b")}
    x = RANDOM.standard_normal((4, 3))
    np.testing.assert_array_equal(f.evaluate(x), np.tril(x) * 3)


def test_grouped_heads_are_read_at_computed_positions() -> None:
    @og.op
    def f(q: og.Tensor["heads", "d"], k: og.Tensor["kv_heads", "keys", "d"]) -> og.Tensor:
        og.require("heads % kv_heads == 0", "heads must be a multiple of kv_heads")
        group = og.size("heads") // og.size("kv_heads")
        return og.dot(q, k.at(kv_heads=og.index("heads") // group), over="d")

    q, k = RANDOM.standard_normal((6, 5)), RANDOM.standard_normal((2, 4, 5))
    np.testing.assert_allclose(f.evaluate(q, k), np.einsum("hd,hkd->hk", q, np.repeat(k, 3, axis=0)), rtol=1e-13)
    with pytest.raises(og.OpsgenError, match=r"E4010.*multiple of kv_heads"):
        f.evaluate(q[:5], k)


def test_dims_of_reads() -> None:
    @og.op
    def f(
        x: og.Tensor["a", "b", "c"],
        i: og.Tensor["m", "n", og.int64],
        j: og.Tensor["a", og.int64],
        k: og.Tensor[og.int32],
    ) -> og.Results:
        return og.results(
            gather=x.at(b=i),  # the position's dims stand where b stood
            aligned=x.at(b=j),  # along a dim that x keeps
            one=x.at(b=k),
            number=x.at(b=1),
            two=x.at(a=i, c=j.at(a=k)),
            reverse=x.at(c=og.size("c") - 1 - og.index("c")),
        )

    assert dims_of(f) == {
        "gather": ("a", "m", "n", "c"),
        "aligned": ("a", "c"),
        "one": ("a", "c"),
        "number": ("a", "c"),
        "two": ("m", "n", "b"),
        "reverse": ("a", "b", "c"),
    }
    x = RANDOM.standard_normal((3, 4, 5))
    i, j, k = RANDOM.integers(0, 3, (2, 6)), RANDOM.integers(0, 4, 3), np.int32(2)
    found = f.evaluate(x, i, j, k)
    np.testing.assert_array_equal(found["gather"], x[:, i])
    np.testing.assert_array_equal(found["aligned"], x[np.arange(3), j])
    np.testing.assert_array_equal(found["one"], x[:, 2])
    np.testing.assert_array_equal(found["number"], x[:, 1])
    np.testing.assert_array_equal(found["two"], x[i, :, j[2]])
    np.testing.assert_array_equal(found["reverse"], x[..., ::-1])


def test_paged_reads() -> None:
    @og.op
    def f(pool: og.Tensor["pages", "slots", "d"], table: og.Tensor["batch", "blocks", og.int32]) -> og.Tensor:
        return pool.at(pages=table).merge("blocks", "slots", into="keys")

    pool, table = RANDOM.standard_normal((7, 4, 3)), RANDOM.integers(0, 7, (2, 5), np.int32)
    np.testing.assert_array_equal(f.evaluate(pool, table), pool[table].reshape(2, 20, 3))


def test_split_and_merge() -> None:
    @og.op
    def f(x: og.Tensor["...", "hidden"], y: og.Tensor["heads"]) -> og.Results:
        parts = x.split("hidden", heads=og.size("heads"), pairs=None, two=2)
        return og.results(
            parts=parts * y,
            back=parts.merge("heads", "pairs", "two", into="hidden"),
            other=parts.merge("two", "heads", into="swapped"),
            deinterleaved=og.merge(og.transpose(parts, "...", "heads", "two", "pairs"), "two", "pairs", into="halves"),
        )

    # numpy's reshape is the reference
    x, y = RANDOM.standard_normal((2, 3, 12)), RANDOM.standard_normal(3)
    parts = x.reshape(2, 3, 3, 2, 2)
    assert dims_of(f)["parts"] == ("rows", "heads", "pairs", "two")
    found = f.evaluate(x, y)
    np.testing.assert_array_equal(found["parts"], parts * y[:, None, None])
    np.testing.assert_array_equal(found["back"], x)
    np.testing.assert_array_equal(found["other"], np.moveaxis(parts, -1, 2).reshape(2, 3, 6, 2).swapaxes(-1, -2))
    np.testing.assert_array_equal(found["deinterleaved"], parts.swapaxes(-1, -2).reshape(2, 3, 3, 4))
    for size in (13, 3):
        with pytest.raises(og.OpsgenError, match=r"E4010"):
            f.evaluate(RANDOM.standard_normal((2, size)), y)
    with pytest.raises(og.OpsgenError, match=r"E4010"):
        f.evaluate(x, np.ones(0))


def test_merge_undoes_split_and_split_merge() -> None:
    """The parts may be merged into the name that was split, and a merged dim split into the names that made it."""

    @og.op
    def f(x: og.Tensor["hidden"], y: og.Tensor["a", "b"], w: og.Tensor["hidden"]) -> og.Results:
        heads = x.split("hidden", heads=None, head_dim=4)
        halves = x.split("hidden", two=2, three=3, rest=None)
        again = y.merge("b", "a", into="ba").split("ba", b=None, a=og.size("a"))
        return og.results(
            x=heads.merge("heads", "head_dim", into="hidden") * w,
            z=halves.merge("rest", "three", "two", into="hidden") * w,
            y=y + again,
        )

    x, y, w = RANDOM.standard_normal(24), RANDOM.standard_normal((3, 5)), RANDOM.standard_normal(24)
    assert dims_of(f) == {"x": ("hidden",), "z": ("hidden",), "y": ("a", "b")}
    found = f.evaluate(x, y, w)
    np.testing.assert_array_equal(found["x"], x * w)
    np.testing.assert_array_equal(found["z"], x.reshape(2, 3, 4).transpose(2, 1, 0).reshape(24) * w)
    np.testing.assert_array_equal(found["y"], 2 * y)


def test_concat() -> None:
    @og.op
    def f(past: og.Tensor["b", "past", "d"], new: og.Tensor["d", "new", "b"]) -> og.Results:
        return og.results(
            both=og.concat(past, new, dim=("past", "new"), into="keys"), twice=og.concat(new, -new, dim="d", into="dd")
        )

    past, new = RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((4, 5, 2))
    found = f.evaluate(past, new)
    np.testing.assert_array_equal(found["both"], np.concatenate([past, new.transpose(2, 1, 0)], axis=1))
    np.testing.assert_array_equal(found["twice"], np.concatenate([new, -new], axis=0))
    assert f.trace().extent("keys").evaluate({"past": 3, "new": 5}) == 8
    assert f.evaluate(past[:, :0], new)["both"].shape == (2, 5, 4)


def test_rotary_embedding() -> None:
    @og.op
    def rope(x: og.Tensor["...", "length", "d"], *, base: float = 10000.0) -> og.Tensor:
        half = og.size("d") // 2
        first = og.index("d") < half
        pair = og.where(first, og.index("d"), og.index("d") - half)
        angle = og.index("length") * base ** (-2.0 * pair / og.size("d"))
        other = x.at(d=(og.index("d") + half) % og.size("d"))
        return x * og.cos(angle) + og.where(first, -1.0, 1.0) * other * og.sin(angle)

    x = RANDOM.standard_normal((3, 5, 8))
    angle = np.arange(5)[:, None] * 10000.0 ** (-2 * np.arange(4) / 8)
    turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angle)
    wanted = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(rope.evaluate(x, dtype="float64"), wanted, rtol=1e-12, atol=1e-12)
    assert types_of(rope, og.float16) == {"out": "float16"}


def test_extents_of_sums_products_and_quotients() -> None:
    @og.op
    def blocks(x: og.Tensor["n"]) -> og.Tensor:
        place = og.compute(lambda b, i: b * 4 + i, b=(og.size("n") + 3) // 4, i=4)
        return og.max(og.where(place < og.size("n"), x.at(n=place), -1.0), over="i")

    for n in (1, 4, 5, 11):
        x = np.arange(n, dtype=np.float32)
        assert blocks.evaluate(x).tolist() == [min(b + 3, n - 1) for b in range(0, n, 4)]
    extents = [
        lambda n: n - 1,
        lambda n: n // n,
        lambda n: n * 0.5,
        lambda n: n // 0,
    ]
    for extent in extents:
        with pytest.raises(DefinitionError, match=r"E1010: .*the extent of 'b' is"):

            @og.op
            def wrong(x: og.Tensor["n"]) -> og.Tensor:
                return x * og.sum(og.compute(lambda b: b, b=extent(og.size("n"))), over="b")  # noqa: B023


def test_compute() -> None:
    @og.op
    def f(x: og.Tensor["q", "k"]) -> og.Results:
        mask = og.compute(lambda q, k: og.where(k <= q, 0.0, float("-inf")))
        return og.results(
            masked=x + mask,
            taps=og.compute(lambda taps: taps * 2, taps=3),
            constant=og.compute(lambda q, k: 1.0),
            order=og.compute(lambda k, q: q * 10 + k),
            closed=og.compute(lambda k: x * k),
        )

    x = RANDOM.standard_normal((3, 4))
    found = f.evaluate(x)
    np.testing.assert_array_equal(found["masked"], np.where(np.tri(3, 4, dtype=bool), x, -np.inf))
    np.testing.assert_array_equal(found["taps"], [0, 2, 4])
    np.testing.assert_array_equal(found["constant"], np.ones((3, 4)))
    np.testing.assert_array_equal(found["order"], np.arange(3) * 10 + np.arange(4)[:, None])
    np.testing.assert_array_equal(found["closed"], x * np.arange(4))


def test_rename_and_transpose() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Results:
        y = x.rename(a="c")
        return og.results(outer=og.dot(x, y, over="b"), swapped=og.transpose(x, "b", "a"), swap=x.rename(a="p", b="q"))

    assert dims_of(f) == {"outer": ("a", "c"), "swapped": ("b", "a"), "swap": ("p", "q")}
    x = RANDOM.standard_normal((3, 4))
    found = f.evaluate(x)
    np.testing.assert_allclose(found["outer"], x @ x.T, rtol=1e-13)
    np.testing.assert_array_equal(found["swapped"], x.T)


# -- ops that call ops -------------------------------------------------------------------------------------------------
@og.op
def normalize(
    x: og.Tensor["...", "hidden"], weight: og.Tensor["hidden"] | None = None, *, eps: float = 0.0
) -> og.Tensor:
    y = x * og.rsqrt(og.mean(x * x, over="hidden") + eps)
    return y if weight is None else y * weight


@og.op
def attend(q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"], v: og.Tensor["keys", "width"]) -> og.Tensor:
    return og.dot(og.softmax(og.dot(q, k, over="d"), over="keys"), v, over="keys")


@og.op
def similarity(q: og.Tensor["queries", "d"], k: og.Tensor["keys", "d"]) -> og.Tensor:
    return og.dot(q, k, over="d")


@og.op
def split_heads(x: og.Tensor["...", "hidden"], *, heads: int) -> og.Tensor:
    return x.split("hidden", heads=heads, head_dim=None)


def test_a_called_ops_dims_take_the_callers_names() -> None:
    @og.op
    def f(x: og.Tensor["batch", "length", "width"], w: og.Tensor["width"]) -> og.Results:
        return og.results(y=normalize(x, w), z=normalize(x, w, eps=0.5), last=og.sum(normalize(x), over="width"))

    assert dims_of(f) == {
        "y": ("batch", "length", "width"),
        "z": ("batch", "length", "width"),
        "last": ("batch", "length"),
    }
    x, w = RANDOM.standard_normal((2, 3, 5)), RANDOM.standard_normal(5)
    found = f.evaluate(x, w)
    square = np.mean(x * x, axis=-1, keepdims=True)
    np.testing.assert_allclose(found["y"], x / np.sqrt(square) * w, rtol=1e-13)
    np.testing.assert_allclose(found["z"], x / np.sqrt(square + 0.5) * w, rtol=1e-13)
    np.testing.assert_allclose(found["last"], (x / np.sqrt(square)).sum(-1), rtol=1e-12)


def test_leading_dims_capture_any_number_of_the_callers() -> None:
    @og.op
    def f(x: og.Tensor["...", "a", "b"], y: og.Tensor["b"]) -> og.Results:
        return og.results(many=normalize(x), none=normalize(y))

    assert dims_of(f) == {"many": ("rows", "a", "b"), "none": ("b",)}
    x, y = RANDOM.standard_normal((2, 2, 3, 4)), RANDOM.standard_normal(4)
    found = f.evaluate(x, y)
    np.testing.assert_allclose(found["many"], x / np.sqrt(np.mean(x * x, -1, keepdims=True)), rtol=1e-13)
    np.testing.assert_allclose(found["none"], y / np.sqrt(np.mean(y * y)), rtol=1e-13)


def test_two_dims_of_the_called_op_may_meet_one_of_the_callers() -> None:
    """Self-attention: queries and keys are one dim, d and width another. The result has the caller's names again."""

    @og.op
    def f(x: og.Tensor["length", "d"]) -> og.Tensor:
        return attend(x, x, x) + x

    assert dims_of(f) == {"out": ("length", "d")}
    x = RANDOM.standard_normal((5, 3))
    np.testing.assert_allclose(f.evaluate(x), softmax.expected(x @ x.T) @ x + x, rtol=1e-13)


def test_two_dims_that_met_one_and_both_remain_can_be_named() -> None:
    @og.op
    def f(x: og.Tensor["length", "d"]) -> og.Tensor:
        return og.softmax(similarity(x, x), over="length_keys")

    assert dims_of(f) == {"out": ("length", "length_keys")}
    x = RANDOM.standard_normal((5, 3))
    np.testing.assert_allclose(f.evaluate(x), softmax.expected(x @ x.T), rtol=1e-13)


def test_a_named_dim_of_the_called_op_is_kept_apart_from_its_leading_dims() -> None:
    @og.op
    def total(w: og.Tensor["k"], x: og.Tensor["..."]) -> og.Tensor:
        return og.sum(w * x, over="k")

    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        return total(x, x)

    x = RANDOM.standard_normal(4)
    np.testing.assert_allclose(f.evaluate(x), x * x.sum(), rtol=1e-13)


def test_new_dims_of_a_called_ops_result_can_be_named() -> None:
    @og.op
    def f(x: og.Tensor["length", "hidden"]) -> og.Tensor:
        h = split_heads(x, heads=2)
        y = attend(og.sum(h, over="heads"), og.max(h, over="heads"), h.at(heads=0))
        return og.transpose(og.dot(h, y, over="head_dim"), "heads", "length")

    x = RANDOM.standard_normal((3, 8))
    h = x.reshape(3, 2, 4)
    y = softmax.expected(h.sum(1) @ h.max(1).T) @ h[:, 0]
    np.testing.assert_allclose(f.evaluate(x), np.einsum("lhd,ld->hl", h, y), rtol=1e-12)


def test_ops_nested_two_levels() -> None:
    @og.op
    def block(x: og.Tensor["tokens", "features"], w: og.Tensor["features"]) -> og.Results:
        n = normalize(x, w, eps=1e-5)
        return og.results(out=attend(n, n, n) + x, norm=n)

    @og.op
    def f(x: og.Tensor["words", "width"], w: og.Tensor["width"]) -> og.Tensor:
        first = block(x, w)
        out, norm = block(first.out, w)
        return out + norm

    def step(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * w
        return softmax.expected(n @ n.T) @ n + x, n

    x, w = RANDOM.standard_normal((4, 6)), RANDOM.standard_normal(6)
    out, norm = step(step(x, w)[0], w)
    assert dims_of(f) == {"out": ("words", "width")}
    np.testing.assert_allclose(f.evaluate(x, w, dtype="float64"), out + norm, rtol=1e-12)


def test_a_called_op_does_not_see_the_callers_names() -> None:
    @og.op
    def inner(x: og.Tensor["a"], *, wrong: bool) -> og.Tensor:
        return og.sum(x, over="width") if wrong else og.sum(x, over="a")

    with pytest.raises(DefinitionError, match="E1002"):

        @og.op
        def f(x: og.Tensor["width"]) -> og.Tensor:
            return inner(x, wrong=True)


def test_a_dim_that_a_called_op_makes_does_not_collide_with_the_callers() -> None:
    @og.op
    def inner(x: og.Tensor["n"]) -> og.Tensor:
        return og.sum(x * og.compute(lambda taps: taps * 1.0, taps=3), over="taps")

    @og.op
    def f(x: og.Tensor["n"], w: og.Tensor["taps"]) -> og.Tensor:
        return inner(x) * og.sum(w, over="taps")

    np.testing.assert_array_equal(f.evaluate(np.ones(2), np.ones(5)), [15, 15])


# -- the graph itself --------------------------------------------------------------------------------------------------
def test_walk_visits_children_first_and_each_node_once() -> None:
    @og.op
    def f(x: og.Tensor["n"]) -> og.Tensor:
        y = og.exp(x)
        for _ in range(5000):  # deeper than Python's recursion limit
            y = y + y
        return og.sum(y, over="n")

    seen: list[Tensor] = []
    walk(f.trace().outputs(), seen.append)
    assert len(seen) == len({id(n) for n in seen}) == 5003
    position = {id(n): i for i, n in enumerate(seen)}
    assert all(position[id(c)] < position[id(n)] for n in seen for c in n.children())
    assert isinstance(seen[-1], Reduce)


def test_the_call_form_and_the_workloads() -> None:
    @og.op(name="renamed")
    def f(x: og.Tensor["n"], *, eps: float = 0.5, exact: bool = True) -> og.Tensor:
        """y = x"""
        return x + eps

    f.workload("BERT-base", n=768, attributes={"exact": False})
    assert (f.name, f.__doc__, f.call_form()) == ("renamed", "y = x", "renamed(x, *, eps=0.5, exact=True)")
    assert f.workloads[0].dims == {"n": 768} and f.workloads[0].attributes == {"exact": False}
    np.testing.assert_array_equal(f.expected(np.ones(1)), [1.5])  # without a reference: the definition in double
    f.reference(lambda x, *, eps=0.5, exact=True: x - 1)
    np.testing.assert_array_equal(f.expected(np.ones(1)), [0])
