"""Grouped contractions for NVIDIA GPUs without tensor cores, run on the CPU (emulated.py)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsgen as og
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import enumerate_problems
from opsgen.ops.grouped_linear import grouped_linear
from opsgen.targets.names import parse
from tests import grouped_ops
from tests.cuda import cases, emulated
from tests.grouped_inputs import OFFSETS, SHAPES, arguments

CHOICES: list[tuple[tuple[str, ...], str]] = [((), "gelu"), (("bias", "scale"), "none")]


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        yield


_libs: dict[str, Any] = {}


@pytest.fixture(scope="module", params=["float32", "bfloat16", "float64"])
def dtype(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    name: str = request.param
    if name not in _libs:
        items = [og.variant(grouped_linear, absent=list(a), activation=f) for a, f in CHOICES]
        folder = tmp_path_factory.mktemp("grouped")
        # Small problems with the large tile too.
        configs = {"cuda.grouped_contraction": {"multiprocessors": 2}}
        _libs[name] = emulated.compile([*items, *grouped_ops.ALL], folder, dtypes=[name], configs=configs)
    return name


def test_the_schedule() -> None:
    [problem] = enumerate_problems([og.variant(grouped_linear, absent=[], activation="gelu")], ["float32"], {})
    [target] = parse(["cuda/sm_80"])
    steps = make_plan(problem, target).steps
    assert [s.schedule.name for s in steps] == ["cuda.row_reduction", "cuda.grouped_contraction"]
    assert [x.name.rpartition("_g1_")[2] for x in steps[1].launches] == ["segments", "large", "medium", "small", "any"]


@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
def test_groups(dtype: str, offsets: list[int]) -> None:
    try:
        for i, (columns, summed) in enumerate(SHAPES[:4]):
            emulated.driver().run_backwards(i % 2)  # the rows of a next group must not be stored, first or last
            for without, activation in CHOICES:
                call = {**arguments(offsets, columns, summed, dtype, without), "activation": activation}
                cases.check(_libs[dtype], grouped_linear, call)
    finally:
        emulated.driver().run_backwards(0)


def test_what_users_write(dtype: str) -> None:
    for call in grouped_ops.calls(dtype):
        cases.check(_libs[dtype], call.pop("op"), call)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-300, 300), min_size=2, max_size=12), st.integers(0, 140))
def test_offsets_that_nobody_checked(offsets: list[int], rows: int) -> None:
    """The host does not read them: what they hold decides on the groups alone, and never on what memory is used."""
    if "float32" not in _libs:
        pytest.skip("of the float32 library")
    call = arguments([0] * (len(offsets) - 1) + [rows], 9, 5, "float32", ("bias", "scale"))
    cases.check(_libs["float32"], grouped_linear, {**call, "offsets": np.array(offsets), "activation": "none"})


def test_ids_that_are_not_sorted_stay_in_memory(dtype: str) -> None:
    """Each row of the result is that of some group, and what lies behind the result is not touched."""
    rng = np.random.default_rng(2)
    for n in (5, 70, 200):
        x, weight = np.ones((n, 3)), np.arange(4.0).repeat(15).reshape(4, 3, 5)
        kind = cases.arrays.numpy_dtype(dtype)
        room = np.full((n + 2, 5), 77.0).astype(kind)
        for low, high in ((0, 4), (-9, 9)):
            ids = rng.integers(low, high, n)
            _libs[dtype].by_sorted_ids(x.astype(kind), weight.astype(kind), ids, out=room[1:-1])
            assert np.isin(room[1:-1].astype(float), [0, 3, 6, 9]).all()
            assert (room[0].astype(float) == 77).all() and (room[-1].astype(float) == 77).all()


def test_the_same_bits_each_time(dtype: str) -> None:
    call = {**arguments(OFFSETS["uneven"], 33, 65, dtype, ("bias", "scale")), "activation": "none"}
    first = _libs[dtype].grouped_linear(**call)
    assert all(np.array_equal(first, _libs[dtype].grouped_linear(**call)) for _ in range(3))
