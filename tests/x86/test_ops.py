"""Every op of the library on x86, against its independent reference, at sizes around every tile, on both archs.

What a result may be off by comes from an error analysis of the op's graph (opsgen.lowering.error_bounds), not from a
guess. One file holds both archs; each level is loaded from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler import Variant
from opsgen.dsl import Op
from opsgen.dsl.op import variants
from opsgen.lowering.error_bounds import LARGEST, UNIT, bounded
from opsgen.ops import all_ops
from opsgen.runtime.host import host_levels
from tests import arrays

ARCHS = ("avx2", "avx512")
# Heads that are shared, offsets and page tables are not drawn at random: test_attention.py and test_grouped_linear.py
# have those ops. Which token is drawn may hang on a rounding: ops/test_sample_logits.py says when.
OPS = {
    name: op for name, op in all_ops().items() if not {"kv_heads", "offsets"} & set(op.dims) and name != "sample_logits"
}
SLOW = {"qkv_projection", "patch_embedding"}  # contractions as linear's, of which each takes seconds to compile
DTYPES = ("float32", "float16", "bfloat16", "float64")

ROWS = (0, 1, 2, 5, 6, 7, 12, 13, 25)
COLUMNS = (1, 15, 16, 17, 31, 32, 33, 65, 257)
SUMMED = (1, 3, 4, 5, 8, 17, 64, 0, 257)
LEADS = ((), (1,), (2, 3), (3, 1, 2))

_ROWS_OF = ("queries", "length")  # dims that are rows of a contraction or a reduction, columns, or neither
_COLUMNS_OF = ("out_features", "keys", "value_dim", "hidden", "columns", "classes")
_FEW_OF = {
    "batch": (1, 2, 0),
    "heads": (1, 3, 2),
    "vocab": (5, 1, 33),
    "entries": (5, 1, 33),
    "destinations": (5, 1, 33),
    "channels": (12, 4, 36),
}


def sizes_of(op: Op) -> list[tuple[tuple[int, ...], dict[str, int]]]:
    """Leading shapes and dims: each size of a dim once, the sizes of different dims shifted against each other."""
    if op.name in arrays.SIZES_OF:
        return list(zip(itertools.cycle(LEADS), arrays.SIZES_OF[op.name]))
    found = []
    for i in range(len(COLUMNS)):
        sizes: dict[str, int] = {}
        for shift, d in enumerate(op.dims):
            choice = COLUMNS if d in _COLUMNS_OF else _FEW_OF.get(d, ROWS if d in _ROWS_OF else SUMMED)
            sizes[d] = choice[(i + 2 * shift) % len(choice)]
        lead = (ROWS[i],) if i % 2 else LEADS[i // 2 % len(LEADS)]
        found.append((lead, sizes))
    found.append(((4,), {d: int(d in ("vocab", "entries")) for d in op.dims}))  # an id needs a row of the table
    return found


def attribute_choices(op: Op) -> list[dict[str, Any]]:
    named = [p for p in op.parameters if p.role == "attribute"]
    choices = [arrays.choices(p) for p in named]
    return [dict(zip([p.name for p in named], chosen)) for chosen in itertools.product(*choices)]


def calls_of(op: Op, every: bool) -> list[tuple[frozenset[str], dict[str, Any]]]:
    """Combinations of absent tensors and attributes: all, or two that differ in everything."""
    absences, choices = variants(op), attribute_choices(op)
    if every:
        return list(itertools.product(absences, choices))
    return [(absences[0], choices[-1]), (absences[-1], choices[0])][: len(absences) * len(choices)]


def check(lib: Any, op: Op, given: dict[str, Any]) -> None:
    absent = {p.name: None for p in op.parameters if p.spec and p.name not in given}
    bounds = bounded(op, {**given, **absent})
    wanted = op.expected(**given)
    wanted = wanted if isinstance(wanted, dict) else {"out": wanted}
    got = lib[op.name](**given)
    returned = iter(got if isinstance(got, tuple) else (got,))
    updated = {p.name for p in op.parameters if p.spec and p.spec.mutable}
    assert list(bounds) == list(wanted)
    shapes = {n: v.shape for n, v in given.items() if isinstance(v, np.ndarray)}
    for name, bound in bounds.items():
        y = given[name] if name in updated else next(returned)
        scale = np.abs(bound.value.astype(np.float64)).max(initial=0) + 1
        np.testing.assert_allclose(bound.value, wanted[name], rtol=1e-10, atol=1e-10 * scale)
        bad = bound.wrong(y)
        assert not len(bad), (
            f"{name}: {len(bad)} of {y.size} wrong, first at {tuple(bad[0])}: {y[tuple(bad[0])]} where "
            f"{bound.value[tuple(bad[0])]} ± {bound.bound[tuple(bad[0])]:.2e} is right; {shapes}"
        )
        # Where float32 decides which way a half is rounded, or on which side of a border a number lies, no bound says
        # anything: see test_quantized.py and test_abs_percentile.py.
        whole = bound.value.dtype == np.int8 or op.name == "abs_percentile"
        kind = y.dtype.name  # where a rounding may make infinity of the value, no bound says anything either
        most = LARGEST[kind] * (1 - 2 * UNIT[kind]) if kind in UNIT else np.inf
        beyond = int(np.sum(np.abs(bound.value) >= most))
        assert whole or bound.checked + beyond >= bound.value.size, "every element has a bound that says something"


BUILT = {"float16": "avx2", "bfloat16": "avx512"}
"""The arch that most ops are compiled for in a half type, to save half of the time; test_every_variant takes both."""


def items(ops: list[Op], every: bool) -> list[Variant]:
    return [og.variant(op, absent=sorted(a), **c) for op in ops for a, c in calls_of(op, every)]


@pytest.fixture(scope="module", params=["float32", "float16", "bfloat16", "float64"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """One file with every op in one dtype: float32 for both archs, each half type for one of them."""
    from opsgen.compiler.compile import build

    dtype: str = request.param
    ops = (
        [op for n, op in OPS.items() if n not in SLOW]
        if dtype != "float64"
        else [OPS[n] for n in ("layer_norm", "softmax", "attention", "gelu")]
    )
    path = tmp_path_factory.mktemp("ops") / f"{dtype}.so"
    archs = [f"x86/{a}" for a in ARCHS if BUILT.get(dtype, a) == a]
    build(items(ops, every=False), path, archs, [dtype])
    return dtype, path


def levels() -> Iterator[str]:
    return (a for a in ARCHS if a in host_levels())


@pytest.mark.parametrize("arch", ARCHS)
def test_ops(built: tuple[str, Path], arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype, path = built
    if arch not in host_levels():
        pytest.skip(f"this CPU has no {arch}")
    if BUILT.get(dtype, arch) != arch:
        pytest.skip(f"{dtype} is compiled for {BUILT[dtype]} here, and for all archs in test_every_variant")
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", arch)
    lib = og.load(path)
    monkeypatch.undo()
    assert all(c.kernel.arch == arch for d in lib._ops.values() for c in d.candidates)
    for name in lib.ops:
        op = OPS[name]
        for absent, attributes in calls_of(op, every=False):
            for lead, sizes in sizes_of(op):
                check(lib, op, {**arrays.arguments(op, absent, lead, sizes, dtype), **attributes})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_every_variant(name: str, dtype: str) -> None:
    op = OPS[name]
    lib = og.compile(items([op], every=True), dtypes=[dtype])
    for absent, attributes in calls_of(op, every=True):
        for lead, sizes in sizes_of(op):
            check(lib, op, {**arrays.arguments(op, absent, lead, sizes, dtype), **attributes})


def test_a_gather_with_each_type_of_index() -> None:
    embedding = OPS["embedding"]
    lib = og.compile(embedding, dtypes=[{"*": "float32", "ids": "int32"}, {"*": "float32", "ids": "int64"}])
    table = np.random.default_rng(0).standard_normal((33, 17)).astype(np.float32)
    for kind in (np.int32, np.int64):
        ids = np.random.default_rng(1).integers(0, 33, (2, 9)).astype(kind)
        assert np.array_equal(lib.embedding(ids, table), table[ids])
