"""Random ops, compiled and compared with float64 within the bounds of an error analysis; see random_ops.py.

The slow test takes its seeds from OPSGEN_TEST_SEEDS, such as ``1000:400`` for 400 ops from seed 1000 on.
"""

from __future__ import annotations

import os

import pytest

from opsgen.runtime.host import host_levels
from tests.x86 import random_ops


def check(seeds: list[int], calls: int, target: str = "x86") -> None:
    failures, checked, total = random_ops.run_apart(seeds, calls, target)
    assert not failures, "\n\n".join(map(str, failures))
    assert checked > 0.7 * total > 0, f"only {checked} of {total} elements have a bound that says something"


@pytest.mark.parametrize("first", [0, 10_000, 20_000])
def test_random_ops(first: int) -> None:
    check(list(range(first, first + 16)), calls=8)


@pytest.mark.skipif("avx512" not in host_levels(), reason="the other tests are of avx2 already")
def test_random_ops_on_avx2() -> None:
    check(list(range(30_000, 30_012)), calls=8, target="x86/avx2")


FIRST, COUNT = map(int, os.environ.get("OPSGEN_TEST_SEEDS", "100000:400").split(":"))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", list(random_ops.batches(FIRST, COUNT)), ids=lambda seeds: str(seeds[0]))
def test_many_random_ops(seeds: list[int]) -> None:
    check(seeds, calls=4)


def test_a_seed_gives_the_same_op_always() -> None:
    assert [random_ops.make(s).source for s in range(20)] == [random_ops.make(s).source for s in range(20)]
