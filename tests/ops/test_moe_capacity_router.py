"""Experts that are full: who is dropped, and where the others go."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.ops import moe_capacity_router


def check(call: Any, logits: Any, capacity: int | None, top: int) -> dict[str, Any]:
    found = call(logits, None if capacity is None else np.int64(capacity), top=top)
    found = found if isinstance(found, dict) else found._asdict()
    wanted = moe_capacity_router.expected(logits, capacity, top=top)
    for name, y in wanted.items():
        if name == "weight":
            np.testing.assert_allclose(found[name], y, rtol=1e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(found[name], y, err_msg=name)
    return found


def calls(call: Any, top: int) -> None:
    rng = np.random.default_rng(0)
    for tokens, experts in ((1, 3), (40, 3), (130, 17), (0, 4)):
        logits = rng.standard_normal((tokens, experts)).astype(np.float32)
        logits[: tokens // 2] = np.round(logits[: tokens // 2])  # equals
        for capacity in (None, 0, 1, 7, tokens + 1, -3):
            found = check(call, logits, capacity, top)
            taken = found["position"] >= 0
            places = {(e, p) for e, p in zip(found["expert"][taken].tolist(), found["position"][taken].tolist())}
            assert len(places) == taken.sum() == found["load"].sum()  # no two have one place
            if capacity is not None:
                assert found["position"].max(initial=-1) < max(capacity, 0)


@pytest.mark.parametrize("top", [1, 2, 3])
def test_numpy(top: int) -> None:
    calls(moe_capacity_router.evaluate, top)


def test_a_full_expert_drops_those_that_come_later() -> None:
    logits = np.float32([[9, 1, 0], [9, 0, 1], [0, 9, 1], [9, 1, 0]])
    found = moe_capacity_router.evaluate(logits, np.int64(2), top=2)
    assert found["expert"].tolist() == [[0, 1], [0, 2], [1, 2], [0, 1]]
    assert found["position"].tolist() == [[0, 0], [1, 0], [1, 1], [-1, -1]]
    assert found["load"].tolist() == [2, 2, 2]
    assert not found["weight"][3].any() and np.allclose(found["weight"][:3].sum(1), 1)


def test_x86() -> None:
    pytest.importorskip("tvm")
    lib = og.compile([og.variant(moe_capacity_router, top=t, dtype="float32") for t in (1, 3)], target="x86")
    for top in (1, 3):
        calls(lib.moe_capacity_router, top)


@pytest.mark.slow
def test_cuda_emulated(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    from tests.cuda import emulated

    with emulated.on_cpu():
        emulated.pretend(capability=80)
        lib = emulated.compile([og.variant(moe_capacity_router, top=3)], tmp_path, "cuda/sm_80")
        calls(lib.moe_capacity_router, 3)
