"""Exponentials that several passes over a row need: kept in the row of a result, or in scratch memory.

Whether they are in the way of something shows in the results alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.lowering.error_bounds import bounded
from opsgen.ops import all_ops
from opsgen.runtime.host import host_levels

ARCHS = ("avx2", "avx512")
SOFTMAX = all_ops()["softmax"]
LENGTHS = (1, 2, 15, 16, 17, 64, 67, 300)


@og.op
def two_results(x: og.Tensor["...", "n"]):
    """Two results made of the same exponential in the same pass."""
    e = og.exp(x)
    total = og.sum(e, over="n")
    return og.results(y=e / total, z=e * total)


@og.op
def two_exponentials(x: og.Tensor["...", "n"], w: og.Tensor["...", "n"]):
    """Two to keep; each gets a row of its own."""
    e, f = og.exp(x), og.exp2(w)
    total = og.sum(e, over="n") + og.sum(f, over="n")
    return og.results(y=e / total, z=f / total)


@og.op
def three_exponentials(x: og.Tensor["...", "n"]):
    """Three to keep, and one result."""
    e, f, g = og.exp(x), og.exp2(x), og.sigmoid(x)
    total = og.sum(e, over="n") + og.sum(f, over="n") + og.sum(g, over="n")
    return (e + 2.0 * f + 3.0 * g) / total


@og.op
def used_again(x: og.Tensor["...", "n"]):
    """A result is there before the last pass that needs the exponential."""
    e = og.exp(x)
    y = e / og.sum(e, over="n")
    return og.results(y=y, z=e * og.sum(y * x, over="n"))


@og.op
def used_again_by_a_total(x: og.Tensor["...", "n"]):
    e = og.exp(x)
    y = e / og.sum(e, over="n")
    mean = og.sum(y * x, over="n")
    return og.results(y=y, spread=og.sum(e * (x - mean) * (x - mean), over="n"))


@og.op
def exponential_itself(x: og.Tensor["...", "n"]):
    """The kept value is a result too, in the pass that finds it."""
    e = og.exp(x - og.max(x, over="n"))
    return og.results(e=e, y=e / og.sum(e, over="n"))


@og.op
def read_backwards(x: og.Tensor["...", "n"]):
    """What is kept is read at another place than that which is written."""
    y = og.softmax(x, over="n")
    return og.results(y=y, z=y + y.at(n=og.size("n") - 1 - og.index("n")))


@og.op
def read_backwards_alone(x: og.Tensor["...", "n"]):
    e = og.exp(x)
    total = og.sum(e, over="n")
    return e / total + (e / total).at(n=og.size("n") - 1 - og.index("n"))


@og.op
def kept_and_read_backwards(x: og.Tensor["...", "n"]):
    e = og.exp(x)
    y = e / og.sum(e, over="n")
    return og.results(y=y, z=y + e.at(n=og.size("n") - 1 - og.index("n")))


@og.op
def read_from_another_row(x: og.Tensor["m", "n"]):
    e = og.exp(x)
    y = e / og.sum(e, over="n")
    return og.results(y=y, z=y + e.at(m=og.size("m") - 1 - og.index("m")))


@og.op
def over_several(x: og.Tensor["r", "a", "b", "c"]):
    e = og.exp(x - og.max(x, over=("a", "c")))
    return e / og.sum(e, over=("a", "c"))


@og.op
def over_last_two(x: og.Tensor["r", "a", "b"]):
    e = og.exp(x - og.max(x, over=("a", "b")))
    return e / og.sum(e, over=("a", "b"))


@og.op
def turned(x: og.Tensor["m", "n"]):
    return og.transpose(og.softmax(x, over="n"), "n", "m")


@og.op
def turned_beside(x: og.Tensor["m", "n"]):
    y = og.softmax(x, over="n")
    return og.results(z=og.transpose(y, "n", "m"), y=y)


@og.op
def half(x: og.Tensor["...", "n"]):
    """A half type cannot keep a float32."""
    return og.cast(og.softmax(x, over="n"), "float16")


@og.op
def half_beside(x: og.Tensor["...", "n"]):
    y = og.softmax(x, over="n")
    return og.results(half=og.cast(y, "bfloat16"), y=y)


@og.op
def in_place(x: og.Mut["...", "n"]):
    return og.results(x=og.softmax(x, over="n"))


@og.op
def in_place_of_another(total: og.Mut["...", "n"], x: og.Tensor["...", "n"]):
    e = og.exp(x - og.max(x, over="n"))
    return og.results(total=total * 0.5 + e / og.sum(e * total, over="n"), y=e / og.sum(e, over="n"))


@og.op
def masked(x: og.Tensor["...", "n"], mask: og.Tensor["...", "n"]):
    """Softmax of a masked row, NaN kept out."""
    y = og.softmax(og.where(mask > 0.0, x, float("-inf")), over="n")
    return og.where(og.isnan(y), 0.0, y)


OPS: list[og.Op] = [
    two_results, two_exponentials, three_exponentials, used_again, used_again_by_a_total, exponential_itself,
    read_backwards, read_backwards_alone, kept_and_read_backwards, read_from_another_row, over_several, over_last_two,
    turned, turned_beside, half, half_beside, in_place, in_place_of_another, masked, SOFTMAX,
]  # fmt: skip
STREAMED: list[og.Op] = [used_again, two_exponentials, half_beside, in_place, over_last_two, SOFTMAX]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file in which results never stream, and one in which long rows do."""
    from opsgen.compiler.compile import build

    folder = tmp_path_factory.mktemp("kept")
    targets = [f"x86/{arch}" for arch in ARCHS]
    build(OPS, folder / "plain.so", targets)
    build(STREAMED, folder / "streamed.so", targets, configs={"x86.row_reduction": {"stream_bytes": 1}})
    return {"plain": folder / "plain.so", "streamed": folder / "streamed.so"}


LIBRARIES = [f"{kind}-{arch}" for kind in ("plain", "streamed") for arch in ARCHS]
CASES = [(library, op) for library in LIBRARIES for op in (OPS if library.startswith("plain") else STREAMED)]


@pytest.fixture(scope="module", params=LIBRARIES)
def lib(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Iterator[Any]:
    kind, arch = request.param.split("-")
    if arch not in host_levels():
        pytest.skip(f"this CPU has no {arch}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSGEN_CPU_LEVEL", arch)
        found = og.load(paths[kind])
    yield found


def shapes(op: og.Op, n: int) -> list[tuple[int, ...]]:
    """One shape for each tensor."""
    found: list[tuple[int, ...]] = []
    for p in op.parameters:
        if p.spec:
            lead = (2, 3) if p.spec.leading else ()
            named = {"m": 5, "r": 2, "a": 3, "b": n, "c": 7}
            found.append((*lead, *(named.get(d, n) for d in p.spec.named)))
    return found


def check(lib: Any, op: og.Op, *given: Any) -> None:
    names = [p.name for p in op.parameters]
    bounds = bounded(op, dict(zip(names, given)))
    copies = [x.copy() for x in given]
    got = lib[op.name](*copies)
    found = dict(zip(names, copies)) | dict(
        zip([n for n in bounds if n not in names], got if isinstance(got, tuple) else (got,))
    )
    for name, bound in bounds.items():
        y = found[name]
        bad = bound.wrong(y)
        assert not len(bad), (
            f"{name}: {len(bad)} of {y.size} wrong, first at {tuple(bad[0])}; {[x.shape for x in given]}"
        )


@pytest.mark.parametrize(("lib", "op"), CASES, ids=lambda x: getattr(x, "name", x), indirect=["lib"])
def test_kept_values(lib: Any, op: og.Op) -> None:
    for n in (*LENGTHS, 600):
        rng = np.random.default_rng(n)
        check(lib, op, *(rng.standard_normal(s).astype(np.float32) for s in shapes(op, n)))


@pytest.mark.parametrize("n", [1, 16, 67, 600])
def test_rows_without_a_softmax(lib: Any, n: int) -> None:
    """NaN or +inf anywhere in a row, or -inf all along it, make the row NaN, and leave the others alone."""
    x = np.random.default_rng(n).standard_normal((n + 3, n)).astype(np.float32)
    x[np.arange(n), np.arange(n)] = np.nan
    x[n] = -np.inf
    x[n + 1, n // 2] = np.inf
    frame = np.full((n + 5, n + 7), 7, np.float32)
    for out in (np.empty_like(x), frame[1:-1, 3:-4]):
        assert lib.softmax(x, out=out) is out
        assert np.isnan(out[:-1]).all()
        np.testing.assert_allclose(out[-1], SOFTMAX.expected(x[-1]), rtol=(np.sqrt(n) + 24) * 2.0**-24)
    updated = x.copy()
    lib.in_place(updated)
    assert np.array_equal(updated, out, equal_nan=True)
    frame[1:-1, 3:-4] = 7
    assert (frame == 7).all()


@pytest.mark.parametrize("lib", [f"plain-{arch}" for arch in ARCHS], indirect=True)
def test_masked_rows(lib: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 67)).astype(np.float32)
    mask = np.ones_like(x)
    mask[0], mask[1, ::2] = 0, 0
    x[1, ::2] = np.nan
    found = lib.masked(x, mask)
    assert not found[0].any() and not found[1, ::2].any()
    np.testing.assert_allclose(found[1, 1::2], SOFTMAX.expected(x[1, 1::2]), rtol=32 * 2.0**-24)
    np.testing.assert_allclose(found[2], SOFTMAX.expected(x[2]), rtol=32 * 2.0**-24)
