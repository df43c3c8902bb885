"""Names that a library cannot hold are refused where the op is defined, with the line."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import opsgen as og
from opsgen.dsl import names
from opsgen.errors import DefinitionError
from opsgen.runtime import Library


def _define(source: str) -> object:
    scope: dict[str, object] = {"og": og}
    exec(source, scope)
    return scope["f"]


@pytest.mark.parametrize("dim", ["class", "and", "None", "é", "a b", "1", "min", "max", ""])
def test_dims(dim: str) -> None:
    with pytest.raises(DefinitionError, match=rf"E1005: <string>:2: .*{dim!r} is no dim name. Dims are identifiers"):
        _define(f"@og.op\ndef f(x: og.Tensor[{dim!r}]): return x")


@pytest.mark.parametrize("dim", ["_a", "__x", "int", "rows", "auto", "match", "x"])
def test_dims_that_are_names(dim: str) -> None:
    f = _define(f"@og.op\ndef f(x: og.Tensor[{dim!r}]): return x + og.index({dim!r})")
    assert f.dims == (dim,)


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x.split("a", **{"class": 2, "b": None}),
        lambda x: x.rename(a="é"),
        lambda x: x.split("a", b=2, c=None).merge("b", "c", into="max"),
        lambda x: og.concat(x, x, dim="a", into="not a name"),
        lambda x: x * og.sum(og.compute(lambda é: 1.0 * é, é=3), over="é"),
    ],
)
def test_dims_that_a_definition_makes(made: Callable[[og.Tensor], og.Tensor]) -> None:
    with pytest.raises(DefinitionError, match=r"E1010: test_names\.py:\d+ .* is no dim name"):

        @og.op
        def f(x: og.Tensor["a"]) -> og.Tensor:
            return made(x)


@pytest.mark.parametrize("name", ["é", "_og_x"])
@pytest.mark.parametrize("kind", ["og.Tensor['a']", "float", "bool"])
def test_parameters(name: str, kind: str) -> None:
    with pytest.raises(DefinitionError, match=rf"E1005: <string>:1: parameter {name!r}: a parameter cannot have this"):
        _define(f"@og.op\ndef f(x: og.Tensor['a'], {name}: {kind}): return x")


@pytest.mark.parametrize("name", ["a b", "class", "_y", "é", ""])
def test_results(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"E1010: test_names\.py:\d+ .*: a result cannot be called {name!r}"):

        @og.op
        def f(x: og.Tensor["a"]) -> og.Results:
            return og.results(**{name: x})


@pytest.mark.parametrize("name", ["a b", "class", "é", "", 5])
def test_ops(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"E1010: test_names\.py:\d+ .*: an op cannot be called {name!r}"):

        @og.op(name=name)
        def f(x: og.Tensor["a"]) -> og.Tensor:
            return x


def test_an_op_with_the_name_of_a_library_member_warns() -> None:
    with pytest.warns(og.OpsgenWarning, match=r"W1001: op '(save|stats)': lib\.") as found:

        @og.op
        def save(x: og.Tensor["a"]) -> og.Tensor:
            return x * 2.0

        @og.op(name="stats")
        def other(x: og.Tensor["a"]) -> og.Tensor:
            return x * 3.0

    assert [w.filename for w in found] == [__file__] * 2
    assert "lib.save is Library's own; call it as lib['save'](...)" in str(found[0].message)
    lib = og.compile([save], target="x86", dtypes=["float32"])
    assert np.array_equal(lib["save"](np.ones(3, np.float32)), np.full(3, 2, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @og.op
        def saved(x: og.Tensor["a"]) -> og.Tensor:
            return x


def test_the_members_are_those_of_a_library() -> None:
    assert {n for n in vars(Library) if not n.startswith("_")} == names.LIBRARY_MEMBERS
