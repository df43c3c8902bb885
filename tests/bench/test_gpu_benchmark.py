"""The benchmark of GPUs, as far as it goes without one: its sets, its two halves, and its record, on the CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, gpu_cases
from benchmarks.gpu_cases import SETS, Entry, Set
from opsgen.ops import all_ops


@pytest.mark.parametrize("name", SETS)
def test_each_figure_is_repeated_on_three_shapes_that_nobody_chose(name: str) -> None:
    entries = SETS[name].entries()
    kinds = {(e.op, e.dtype, e.absent, tuple(e.attributes.items())) for e in entries}
    for kind in kinds:
        mine = [e for e in entries if (e.op, e.dtype, e.absent, tuple(e.attributes.items())) == kind]
        listed = [e for e in mine if not e.nearby]
        assert listed
        assert len([e for e in mine if e.nearby]) >= 3
        assert not {tuple(e.dims.values()) for e in listed} & {tuple(e.dims.values()) for e in mine if e.nearby}
    assert any(e.quick for e in entries)


@pytest.mark.parametrize("name", SETS)
def test_entries_are_calls_of_their_ops(name: str) -> None:
    for e in SETS[name].entries():
        op = all_ops().get(e.op)
        if op is None:
            continue  # the benchmark leaves it out, too
        present = [p for p in op.parameters if p.spec and p.name not in e.absent]
        leading = {"rows"} if any(p.spec.leading for p in present if p.spec) else set()
        assert set(e.dims) == leading | {d for p in present if p.spec for d in p.spec.named}, e
        op.trace(absent=frozenset(e.absent), attributes=e.attributes)


def test_groups_add_up() -> None:
    for e in gpu_cases.grouped():
        offsets = e.replaced["offsets"]
        assert offsets[0] == 0 and offsets[-1] == e.dims["tokens"] and (offsets[1:] >= offsets[:-1]).all()
        assert len(offsets) == e.dims["experts"] + 1


@pytest.mark.torch
def test_both_halves(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two entries that are there, one whose kernel was not compiled, and a set whose op does not exist."""
    dims = {"rows": 40, "columns": 33}
    small = [
        Entry("softmax", dims, "float32", quick=True, label="40x33"), Entry("softmax", {**dims, "rows": 41}, "float32"),
        Entry("softmax", dims, "float16", quick=True),
    ]  # fmt: skip
    sets = {
        "some": Set("some", ("float32",), lambda: small),
        "none": Set("none", ("float32",), lambda: [Entry("no_such_op", {})]),
    }
    monkeypatch.setattr(gpu, "SETS", sets)
    words = ["gpu", "--target", "x86", "--set", "some", "--set", "none"]
    monkeypatch.setattr("sys.argv", [*words, "--build", str(tmp_path)])
    gpu.main()
    printed = capsys.readouterr().out
    assert "some: 1 variants" in printed and "none: not built: there is no op no_such_op" in printed
    words += ["--libraries", str(tmp_path), "--output", str(tmp_path / "out"), "--device", "cpu", "--rounds", "2"]
    for more, count in (([], 2), (["--quick"], 1)):
        monkeypatch.setattr("sys.argv", [*words, *more])
        with pytest.raises(SystemExit) as done:
            gpu.main()
        assert done.value.code == 0
        printed = capsys.readouterr().out
        assert "some: left out: some.so has no kernel for softmax" in printed
        assert "none: left out: there is no none.so" in printed
        (path,) = (tmp_path / "out").glob("gpu-some.*.json")
        record = json.loads(path.read_text())
        assert [r["dims"]["rows"] for r in record["results"]] == [40, 41][:count]
        assert all({"torch", "copy"} <= set(r["ratio"]) for r in record["results"])
