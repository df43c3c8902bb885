"""Grouped contractions on x86: groups of every size, packed weights, offsets and ids that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.compiler.compile import build
from opsgen.lowering.error_bounds import bounded
from opsgen.ops.grouped_linear import grouped_linear
from opsgen.runtime.host import host_levels
from tests import grouped_ops
from tests.grouped_inputs import OFFSETS, SHAPES, arguments

ARCHS = ("avx2", "avx512")
CHOICES: list[tuple[tuple[str, ...], str]] = [((), "gelu"), (("bias", "scale"), "none")]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    dtype: str = request.param
    path = tmp_path_factory.mktemp("grouped") / "library.so"
    items = [og.variant(grouped_linear, absent=list(a), activation=f) for a, f in CHOICES]
    users = grouped_ops.ALL if dtype == "float32" else ()
    build([*items, *users], path, ["x86/avx2", "x86/avx512"], [dtype])
    return dtype, path


@pytest.fixture(params=ARCHS)
def lib(built: tuple[str, Path], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param not in host_levels():
        pytest.skip(f"this CPU has no {request.param}")
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", request.param)
    loaded = og.load(built[1])
    monkeypatch.undo()
    return loaded


def check(lib: Any, op: Any, call: dict[str, Any], **changed: Any) -> None:
    absent = {p.name: None for p in op.parameters if p.spec and p.name not in call}
    [bound] = bounded(op, {**call, **absent}).values()
    found = lib[op.name](**{**call, **changed})
    bad = bound.wrong(found)
    assert not len(bad), (bad[0], found[tuple(bad[0])], bound.value[tuple(bad[0])], call)
    assert bound.checked == bound.value.size


@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
def test_groups(lib: Any, built: tuple[str, Path], offsets: list[int]) -> None:
    for columns, summed in SHAPES:
        for without, activation in CHOICES:
            call = {**arguments(offsets, columns, summed, built[0], without), "activation": activation}
            check(lib, grouped_linear, call)
            check(lib, grouped_linear, call, weight=lib.pack("grouped_linear.weight", call["weight"]))


def test_many_rows_and_few_a_group(lib: Any, built: tuple[str, Path]) -> None:
    """On both sides of where `direct` ends."""
    for rows in (47, 48, 49, 50, 500):
        for first in (0, 1, rows // 2, rows):
            call = arguments([0, first, rows], 70, 65, built[0], ("bias", "scale"))
            check(lib, grouped_linear, {**call, "activation": "none"})


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_offsets(data: st.DataObject) -> None:
    lib = _any_lib()
    rows = data.draw(st.integers(0, 200))
    cuts = data.draw(st.lists(st.integers(0, rows), max_size=12))
    call = arguments([0, *sorted(cuts), rows], data.draw(st.integers(1, 80)), data.draw(st.integers(1, 40)), "float32")
    check(lib, grouped_linear, {**call, "activation": "silu"})


_libs: list[Any] = []


def _any_lib() -> Any:
    if not _libs:
        _libs.append(og.compile([og.variant(grouped_linear, absent=[], activation="silu")], dtypes=["float32"]))
    return _libs[0]


def test_int32_offsets() -> None:
    types = {"*": "float32", "offsets": "int32"}
    lib = og.compile([og.variant(grouped_linear, absent=["bias", "scale"], activation="none")], dtypes=[types])
    call = arguments([0, 3, 3, 80], 33, 17, "float32", ("bias", "scale"))
    check(lib, grouped_linear, {**call, "offsets": call["offsets"].astype(np.int32), "activation": "none"})


@pytest.fixture
def users(lib: Any, built: tuple[str, Path]) -> Any:
    if built[0] != "float32":
        pytest.skip("compiled in one precision only")
    return lib


def test_what_users_write(users: Any) -> None:
    for call in grouped_ops.calls("float32"):
        check(users, call.pop("op"), call)


def test_a_run_that_has_no_weight_takes_the_last(users: Any) -> None:
    call = next(c for c in grouped_ops.calls("float32") if c["op"] is grouped_ops.in_runs)
    call["weight"] = call["weight"][:2]  # sixty tokens are nine runs
    check(users, call.pop("op"), call)


def test_offsets_and_ids_that_fall_are_refused(users: Any) -> None:
    lib = users
    call = {**arguments([0, 3, 5, 9], 4, 6, "float32", ("bias", "scale")), "activation": "none"}
    for offsets, position in (([0, 5, 3, 9], 2), ([1, 3, 5, 9], 0), ([0, 3, 5, 8], 3)):
        with pytest.raises(og.OpsgenError, match=rf"E4024.*'offsets'.*at position {position}"):
            lib.grouped_linear(**{**call, "offsets": np.array(offsets)})
    x, weight = call["x"], np.ascontiguousarray(call["weight"].transpose(0, 2, 1))
    ids = np.array([0, 0, 1, 1, 1, 2, 2, 1, 2])
    for given_ids in (ids, np.repeat(ids, 2)[::2]):
        with pytest.raises(og.OpsgenError) as caught:
            lib.by_sorted_ids(x, weight, given_ids)
        assert str(caught.value).startswith(
            "E4027: by_sorted_ids: argument 'ids' holds 1 at position 7, after 2; its elements must never fall. Sort"
        )
    with pytest.raises(og.OpsgenError, match=r"E4009.*'ids' holds index 3"):
        lib.by_sorted_ids(x, weight, np.full(9, 3))


def test_no_experts(lib: Any, built: tuple[str, Path]) -> None:
    call = {**arguments([0, 3], 4, 6, built[0], ("bias", "scale")), "activation": "none"}
    with pytest.raises(og.OpsgenError, match=r"E4010.*experts is read at computed positions"):
        lib.grouped_linear(**{**call, "weight": call["weight"][:0], "offsets": np.array([0])})
