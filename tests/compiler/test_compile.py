"""`opsgen.compile` around the kernels: names, folders, forks, progress, knobs, and the errors of compiling."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.compile import build
from opsgen.errors import CompileError, TargetError
from opsgen.ops import linear, softmax

ROOT = Path(__file__).parents[2]


def doubled(factor: float) -> og.Op:
    @og.op(name="scaled")
    def scaled(x: og.Tensor["n"]) -> og.Tensor:
        return x * factor

    return scaled


def test_two_ops_of_one_name_are_refused() -> None:
    with pytest.raises(CompileError, match=r"E3009: .*two ops are named 'scaled'.*Give one a name"):
        og.compile([doubled(2.0), doubled(3.0)])


def test_an_op_with_an_underscore_is_for_other_ops() -> None:
    @og.op
    def _double(x: og.Tensor["n"]) -> og.Tensor:
        return x * 2.0

    @og.op
    def quadruple(x: og.Tensor["n"]) -> og.Tensor:
        return _double(_double(x))

    with pytest.raises(CompileError, match=r"E3009: .*'_double' starts with _.*@og.op\(name="):
        og.compile(_double)
    np.testing.assert_array_equal(og.compile(quadruple).quadruple(np.ones(3, np.float32)), np.full(3, 4, np.float32))


def test_a_result_may_have_the_name_of_an_input() -> None:
    @og.op
    def both(x: og.Tensor["a", "n"], w: og.Tensor["n"]) -> og.Results:
        return og.results(x=x * w, w=og.sum(x, over="n"))

    rng = np.random.default_rng(0)
    x, w = rng.random((3, 9), np.float32), rng.random(9, np.float32)
    around, sums = np.zeros((3, 40), np.float32), np.empty(3, np.float32)
    og.compile(both).both(x, w, out=(around[:, :9], sums))  # strides that are not the input's
    np.testing.assert_array_equal(around[:, :9], x * w)
    assert not around[:, 9:].any()
    np.testing.assert_allclose(sums, x.sum(axis=1, dtype=np.float64), rtol=9 * 2.0**-24)


def test_one_op_twice_is_one_op() -> None:
    op = doubled(2.0)
    assert og.compile([op, op]).ops == ("scaled",)


def test_compiling_again_to_a_path_that_is_loaded(tmp_path: Path) -> None:
    """The dynamic loader takes a name that it knows for the object that it has."""
    x = np.arange(5, dtype=np.float32)
    libs = [og.compile(doubled(factor), output=tmp_path / "lib.so") for factor in (2.0, 3.0, 5.0)]
    for lib, factor in zip(libs, (2.0, 3.0, 5.0), strict=True):
        np.testing.assert_array_equal(lib.scaled(x), x * np.float32(factor))


def test_a_forked_child_leaves_the_file_to_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys, opsgen as og\n"
        "from opsgen.ops import relu\n"
        "lib = og.compile(relu)\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        f"lib.save({str(tmp_path / 'kept.so')!r})\n"
        "print(lib.path)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (tmp_path / "kept.so").exists()
    assert not Path(done.stdout.strip()).exists(), "the parent removes its folder when it ends"


def test_progress_counts_up_to_the_total(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    target = "x86/avx2,x86/avx512"
    build(softmax, tmp_path / "lib.so", target, progress=lambda what, done, total: steps.append((done, total)))
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    assert steps[-1][0] == steps[-1][1]
    assert len({total for _, total in steps}) == 1


def test_an_unknown_knob_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"E3013: schedule x86.contraction has no knob 'colums'; .*columns"):
        build(linear, tmp_path / "lib.so", configs={"x86.contraction": {"colums": 32}})


def test_knobs_change_the_kernel_and_not_the_answer(tmp_path: Path) -> None:
    item = og.variant(linear, absent=["bias", "residual"], activation="none")
    build(item, tmp_path / "lib.so", configs={"x86.contraction": {"rows": 5, "rows_at_end": 2, "columns": 16}})
    lib = og.load(tmp_path / "lib.so")
    assert lib.manifest.kernels[0].groups[0].config["columns"] == 16
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((31, 40)).astype(np.float32), rng.standard_normal((33, 40)).astype(np.float32)
    wanted = x.astype(np.float64) @ w.astype(np.float64).T
    # Every product and every sum rounds once: 40 of each.
    bound = 41 * 2.0**-24 * (np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)).T)
    assert (np.abs(lib.linear(x, w) - wanted) <= bound).all()


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no space for you >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(CompileError, match="E3005: broken failed with exit status 3: no space for you"):
        build(softmax, tmp_path / "lib.so")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken"]


def test_a_temporary_folder_that_is_missing(tmp_path: Path) -> None:
    code = f"import opsgen as og\nfrom opsgen.ops import relu\nog.compile(relu, output={str(tmp_path / 'a.so')!r})"
    script = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'absent')!r}\n" + code
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "E3006: a temporary folder (TMPDIR=" in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_schedule_serves_an_unknown_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsgen.compiler import plan

    monkeypatch.setattr(plan, "schedules_for", lambda target: ())
    with pytest.raises(
        CompileError, match=r"E3004: op 'softmax' on x86/.*: no schedule serves the row_reduction group"
    ):
        og.compile(softmax)


def test_a_host_without_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSGEN_CPU_LEVEL", "baseline")
    with pytest.raises(TargetError, match=r"E2004: this machine's CPU is baseline; x86 needs AVX2.*--target x86/avx2"):
        og.compile(softmax)


@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_a_dim_is_bound_to_a_size(value: object) -> None:
    with pytest.raises(CompileError, match="E3008"):
        og.compile(softmax, dims={"columns": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("target", ["x86", "cuda/sm_80"])
@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0)])
def test_dims_bound_to_0(target: str, rows: int, columns: int, tmp_path: Path) -> None:
    @og.op
    def product(a: og.Tensor["rows", "k"], b: og.Tensor["k", "columns"], c: og.Tensor["columns"]):
        return og.results(y=og.dot(a, b, over="k") + c, z=a * 2.0)

    build(product, tmp_path / "a.so", target, dims={"rows": rows, "columns": columns})
    if target == "x86":
        given = (np.ones(s, np.float32) for s in ((rows, 5), (5, columns), (columns,)))
        y, z = og.load(tmp_path / "a.so").product(*given)
        assert y.shape == (rows, columns) and np.array_equal(z, np.full((rows, 5), 2.0, np.float32))


def test_a_dim_bound_to_zero() -> None:
    lib = og.compile(softmax, dims={"columns": 0})
    assert lib.softmax(np.empty((3, 0), np.float32)).shape == (3, 0)


def test_an_unwritable_folder_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"E3006: .*does not exist"):
        build(softmax, tmp_path / "absent" / "lib.so")
    if os.geteuid() != 0:  # root may write anywhere
        tmp_path.chmod(0o500)
        with pytest.raises(CompileError, match=r"E3006: .*not writable"):
            build(softmax, tmp_path / "lib.so")
