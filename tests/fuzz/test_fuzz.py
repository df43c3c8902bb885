"""Damaged files and wild calls: a few hundred cases of a seed that changes, in processes of their own.

A failure names its seed and case; tests/fuzz/harness.py says how to run it alone. OPSGEN_TEST_FUZZ=20000 runs more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.fuzz import harness

CASES = int(os.environ.get("OPSGEN_TEST_FUZZ", "300"))


@pytest.mark.parametrize(
    ("suite", "wanted"),
    [
        ("files", {"damaged: E4012", "nonsense: E4016", "no_json: E4016", "packed: E4019", "put_together: E4011"}),
        ("calls", {f"{op}: {end}" for op in ("affine", "lookup", "advance", "product") for end in ("right", "E4017")}),
    ],
)
@pytest.mark.torch
def test_nothing_crashes_hangs_or_is_taken_for_right(suite: str, wanted: set[str], tmp_path: Path) -> None:
    seed = str(random.SystemRandom().randrange(10**9))
    found = harness.run(suite, tmp_path, seed, CASES)
    assert not found.failures, "\n\n".join(found.failures)
    assert found.ran == CASES == sum(found.counts.values())
    assert set(found.counts) >= wanted


def test_the_harness_names_what_goes_wrong_and_goes_on(tmp_path: Path) -> None:
    outcome = [random.Random(f"s/{i}").choice(["right"] * 8 + ["wrong", "crash"]) for i in range(30)]
    assert {"wrong", "crash"} <= set(outcome)
    found = harness.run("broken", tmp_path, "s", 30)
    assert found.ran == 30 and found.counts == {"right": outcome.count("right")}
    ended = [i for i, what in enumerate(outcome) if what == "crash"]
    assert [f.split("\n")[0] for f in found.failures if "ends the process" in f] == [
        f"case {i} of seed s ends the process: SIGSEGV" for i in ended
    ]
    wrong = [i for i, what in enumerate(outcome) if what == "wrong"]
    assert [f.split(":")[0] for f in found.failures if "AssertionError: this is wrong" in f] == [
        f"case {i} of seed s" for i in wrong
    ]


def test_a_case_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_PATIENCE", 0.0)
    found = harness.run("broken", tmp_path, "s", 1)
    assert found.failures == ["case -1 of seed s hangs"]
