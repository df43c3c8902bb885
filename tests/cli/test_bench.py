"""`opsgen bench` on libraries for the CPU, from the command line to the record; and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import opsgen as og
from opsgen import ops
from opsgen.runtime import host, library_file

from .conftest import Command, Done

NUMBER, TEXT, TEXTS = {"type": "number"}, {"type": "string"}, {"type": "array", "items": {"type": "string"}}
QUANTILES = {"type": "object", "required": ["p20", "p50", "p80"], "additionalProperties": NUMBER}
RESULT = {
    "op": TEXT, "workload": TEXT, "dims": {"type": "object", "additionalProperties": {"type": "integer"}},
    "dtype": TEXT, "attributes": {"type": "object"}, "absent": TEXTS,
    "scalars": {"type": "object", "additionalProperties": NUMBER}, "arch": TEXT, "schedules": TEXTS,
    "checked": {
        "type": "object", "required": ["small", "positions", "of", "worst", "whole", "why"],
        "properties": {"worst": {"type": "number", "minimum": 0, "maximum": 1}},
    },
    "seconds": {"type": "object", "required": ["opsgen", "copy"], "additionalProperties": QUANTILES},
    "ratio": {"type": "object", "required": ["copy"], "additionalProperties": NUMBER},
    "flops": {"type": "integer"}, "bytes": {"type": ["integer", "null"]}, "tflops": NUMBER,
    "gbs": {"type": ["number", "null"]}, "copy_gbs": NUMBER, "of_copy": {"type": ["number", "null"]},
    "of_roofline": {"type": ["number", "null"]}, "roofline": {"type": ["string", "null"]}, "notes": TEXTS,
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["format", "file", "date", "device", "machine", "versions", "settings", "results", "skipped"],
    "properties": {
        "format": {"const": 1}, "file": {"type": ["string", "null"]}, "date": TEXT,
        "machine": {"type": "object", "required": ["cpu", "cpus"]},
        "device": {"type": "object", "required": ["name", "kind"]},
        "versions": {"type": "object", "required": ["opsgen", "numpy", "torch"], "additionalProperties": TEXT},
        "settings": {"type": "object", "required": ["rounds", "compiled"]},
        "results": {
            "type": "array",
            "items": {
                "type": "object", "additionalProperties": False, "required": list(RESULT), "properties": RESULT,
            },
        },
        "skipped": {"type": "array", "items": {"type": "object", "required": ["op", "why"]}},
    },
}  # fmt: skip
"""Of the document that docs/cli.md describes."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "some.so"
    norm = og.variant(ops.rms_norm, absent=["residual"])
    plain = og.variant(ops.linear, absent=["bias", "residual"], activation="none")
    og.compile([norm, plain, ops.softmax, ops.embedding], dtypes=["float32", "bfloat16"]).save(path)
    return path


def document(done: Done) -> dict[str, Any]:
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.mark.torch
def test_a_record(opsgen: Command, library: Path) -> None:
    found = document(
        opsgen(
            "bench", library, "softmax", "--dims", "rows=40,columns=300", "--rounds", 2, "--dtype", "float32", "--json"
        )
    )
    assert found["device"]["kind"] == "cpu" and found["settings"] == {"rounds": 2, "compiled": False}
    (row,) = found["results"]
    assert (row["op"], row["dtype"], row["dims"]) == ("softmax", "float32", {"rows": 40, "columns": 300})
    assert row["checked"]["small"] == {"rows": 40, "columns": 300}
    assert row["checked"]["positions"] == row["checked"]["of"] == 40 * 300
    assert row["bytes"] == 2 * 4 * 40 * 300
    assert set(row["seconds"]) == {"opsgen", "torch", "copy"}
    ours = row["seconds"]["opsgen"]["p50"]
    assert row["gbs"] == pytest.approx(row["bytes"] / ours / 1e9, rel=0.02, abs=0.01)


@pytest.mark.torch
def test_workloads_are_taken_by_their_label_and_changed_by_some_dims(opsgen: Command, library: Path) -> None:
    done = opsgen(
        "bench", library, "rms_norm", "--workload", "qwen", "--dims", "rows=3", "rows=5", "--rounds", 1, "--json"
    )  # fmt: skip
    rows = document(done)["results"]
    assert [(r["workload"], r["dtype"], r["dims"]) for r in rows] == [
        ("Qwen2.5-0.5B", dtype, {"rows": n, "hidden": 896}) for dtype in ("float32", "bfloat16") for n in (3, 5)
    ]


@pytest.mark.torch
def test_packed_weights_and_a_file_beside_the_table(opsgen: Command, library: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    size = "rows=3,in_features=64,out_features=130"
    done = opsgen("bench", library, "linear", "--dims", size, "--dtype", "float32", "--rounds", 1, "--json", path)
    assert done.code == 0
    shown = f"linear float32 {host.host_levels()[-1]} (none, without bias, without residual)"
    assert f"{shown}: rows x in_features x out_features" in done.out
    assert "3x64x130 as given" in done.out and "small+all" in done.out
    found = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    assert set(found["results"][0]["seconds"]) == {"opsgen", "opsgen, packed", "torch", "copy"}


@pytest.mark.torch
def test_a_gather_states_no_bytes(opsgen: Command, library: Path) -> None:
    size = "rows=7,vocab=100,hidden=33"
    rows = document(opsgen("bench", library, "embedding", "--dims", size, "--rounds", 1, "--json"))["results"]
    assert [(r["bytes"], r["gbs"], r["of_copy"]) for r in rows] == [(None, None, None)] * 2


def test_ops_are_compiled_first_and_measured_at_each_level(opsgen: Command) -> None:
    levels = [level for level in host.host_levels() if level in host.X86_COMPILED]
    target = ",".join(f"x86/{level}" for level in levels)
    words = ["bench", "softmax", "rms_norm", "--absent", "residual", "--target", target, "--dtype", "float16"]
    done = opsgen(*words, "--dims", "rows=3,columns=33", "rows=3,hidden=33", "--rounds", 1, "--json")
    found = document(done)
    assert found["file"] is None
    wanted = [("softmax", {"rows": 3, "columns": 33}), ("rms_norm", {"rows": 3, "hidden": 33})]
    assert [(r["arch"], r["op"], r["dims"]) for r in found["results"]] == [(a, *w) for a in levels for w in wanted]
    for r in found["results"]:
        assert (r["dtype"], r["absent"]) == ("float16", ["residual"] if r["op"] == "rms_norm" else [])
        assert re.fullmatch(rf"{r['arch']} with \d+ threads?, as measured", r["roofline"]) and r["of_roofline"] > 0
    assert host.VARIABLE not in os.environ


def test_a_level_of_a_file(opsgen: Command, library: Path) -> None:
    level = host.host_levels()[-1]
    rows = document(
        opsgen("bench", library, "softmax", "--arch", level, "--dims", "rows=2,columns=3", "--rounds", 1, "--json")
    )["results"]
    assert {r["arch"] for r in rows} == {level}
    done = opsgen("bench", library, "--arch", "amx")
    assert done.code == 1 and done.err.startswith("error E4014: ") and "--arch amx is not among both" in done.err


def test_a_roofline_needs_a_compiler(process: Command, library: Path, tmp_path: Path) -> None:
    words = ["bench", library, "softmax", "--dims", "rows=2,columns=3", "--rounds", 1, "--json"]
    rows = document(process(*words, PATH=str(tmp_path), CXX=""))["results"]
    assert [(r["roofline"], r["of_roofline"]) for r in rows] == [(None, None)] * 2


def test_it_needs_neither_torch_nor_tvm(process: Command, library: Path, tmp_path: Path) -> None:
    for name in ("torch", "tvm", "ml_dtypes"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is not here')\n")
    words = ["bench", library, "rms_norm", "softmax", "--dims", "rows=5,hidden=33", "rows=5,columns=33", "--rounds", 1]
    here = f"{tmp_path}:{Path(__file__).parents[2]}"
    done = process(*words, "--dtype", "float32", "--json", PYTHONPATH=here)
    rows = document(done)["results"]
    assert [set(r["seconds"]) for r in rows] == [{"opsgen", "copy"}] * 2
    assert all(r["checked"]["positions"] == r["checked"]["of"] for r in rows)
    done = process(*words, "--dtype", "bfloat16", PYTHONPATH=here)
    assert done.code == 1 and done.err.strip().split("\n")[-1].startswith("error E2007: bfloat16 arrays need torch")


# -- a wrong kernel ----------------------------------------------------------------------------------------------------
WRONG = '''
import opsgen as og

@og.op(name="softmax")
def everywhere(x: og.Tensor["...", "columns"]) -> og.Tensor:
    """y"""
    return og.softmax(x, over="columns") * 1.0001

@og.op(name="masked_mean_pool")
def in_one_place(x: og.Tensor["batch", "length", "hidden"], mask: og.Tensor["batch", "length", og.bool_]) -> og.Tensor:
    """y"""
    total = og.sum(og.where(mask, x, 0.0), over="length")
    y = total / og.max(og.sum(og.where(mask, 1.0, 0.0), over="length"), 1.0)
    return og.where((og.index("hidden") == 1399) & (og.index("batch") == 123), y + 1.0, y)
'''


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from opsgen.cli.choices import find_op

    folder = tmp_path_factory.mktemp("wrong")
    (folder / "wrong.py").write_text(WRONG)
    names = ("everywhere", "in_one_place")
    og.compile([find_op(f"{folder / 'wrong.py'}:{n}") for n in names]).save(folder / "wrong.so")
    return folder / "wrong.so"


@pytest.mark.parametrize("size", ["rows=3,columns=5", "rows=5000,columns=4000"])
def test_a_wrong_kernel_is_an_error_and_not_a_timing(opsgen: Command, wrong: Path, size: str) -> None:
    done = opsgen("bench", wrong, "softmax", "--dims", size, "--rounds", 1, "--json")
    assert (done.code, done.out) == (1, "")
    message = json.loads(done.err)["error"]
    assert message["code"] == "E4031"
    assert re.match(r"softmax\[float32\] at .*rows=\d+.* gives a wrong out: \d+ of \d+ compared", message["message"])
    assert "Nothing was timed." in message["message"]


@pytest.mark.torch
def test_one_wrong_element_among_positions_that_were_not_chosen_is_found(opsgen: Command, wrong: Path) -> None:
    size = "batch=200,length=40,hidden=1500"
    done = opsgen("bench", wrong, "masked_mean_pool", "--dims", size, "--rounds", 1)
    assert done.code == 1
    assert "1 of 300000 elements are off the peer in float64, first at [123, 1399]" in done.err.split("\n")[-2]


# -- ops of users ------------------------------------------------------------------------------------------------------
@pytest.mark.torch
def test_an_op_of_a_user(opsgen: Command, op_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.so"
    assert opsgen("compile", f"{op_file}:scaled", "-o", path).code == 0
    words = ["bench", path, "--dims", "rows=4,n=70", "--rounds", 1, "--json"]
    (row,) = document(opsgen(*words))["results"]
    assert row["checked"]["positions"] == 0
    assert row["checked"]["why"] == "the definition of scaled is not known: name its module with --module"
    (row,) = document(opsgen(*words, "--module", op_file, "--scalar", "factor=3"))["results"]
    assert row["checked"]["positions"] == 280 and row["scalars"] == {"factor": 3.0}
    op_file.write_text(op_file.read_text().replace("return x * factor", "return x * factor + 1e-3"))
    other = op_file.rename(tmp_path / "others.py")
    done = opsgen(*words, "--module", other)
    assert done.out == "" and json.loads(done.err.split("\n")[-2])["error"]["code"] == "E4031"


UPDATE = '''
import opsgen as og

@og.op
def advance(state: og.Mut["rows", "n"], x: og.Tensor["rows", "n"]) -> og.Results:
    """state = 3 state + x, and the sum of each row"""
    new = state * 3.0 + x
    return og.results(total=og.sum(new, over="n"), state=new)
'''


def test_an_op_that_updates_in_place_is_checked_against_what_was_there_before(opsgen: Command, tmp_path: Path) -> None:
    (tmp_path / "update.py").write_text(UPDATE)  # triton #6547
    words = ["bench", f"{tmp_path}/update.py:advance", "--dims", "rows=7,n=100", "--rounds", 3, "--json"]
    (row,) = document(opsgen(*words))["results"]
    assert row["checked"]["positions"] == row["checked"]["of"] == 7 * 100 + 7 and row["checked"]["worst"] <= 1


# -- what is refused ---------------------------------------------------------------------------------------------------
ERRORS = {
    "E4001": ["layer_norm"],
    "E3001": ["softmax", "--dims", "rows=3,hidden=4"],
    "E3008": ["softmax", "--dims", "rows=-1,columns=4"],
    "E3010": ["softmax", "--module", "no_such_module"],
    "E4030": ["softmax", "--device", "cuda:0"],
    "E4032": ["softmax", "--workload", "no such model"],
}


@pytest.mark.parametrize(
    ("code", "words"),
    [("E3007", ["no_such_op"]), ("E4021", ["no-such-file.so"]), ("E2001", ["relu", "--target", "z80"])],
)
def test_errors_of_what_is_no_file(opsgen: Command, code: str, words: list[str]) -> None:
    done = opsgen("bench", *words)
    assert done.code == 1 and done.err.startswith(f"error {code}: ")


@pytest.mark.parametrize("code", ERRORS)
def test_errors(opsgen: Command, library: Path, code: str) -> None:
    done = opsgen("bench", library, *ERRORS[code])
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error {code}: ") and done.err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--target", "x86"], ["--rounds", "0"], ["--dims", "rows"], ["--scalar", "eps=small"], ["--rounds", "x"]]
)
def test_a_command_line_that_cannot_be_understood(opsgen: Command, library: Path, words: list[str]) -> None:
    done = opsgen("bench", library, *words)
    assert (done.code, done.out) == (2, "")


def test_a_size_that_no_kernel_takes(opsgen: Command, tmp_path: Path) -> None:
    og.compile(og.variant(ops.softmax, dims={"columns": 64})).save(tmp_path / "bound.so")
    done = opsgen("bench", tmp_path / "bound.so", "--dims", "columns=65,rows=2")
    assert "E4032" in done.err and "columns=65, and the library was compiled for columns=64" in done.err
    found = document(opsgen("bench", tmp_path / "bound.so", "--dims", "rows=2", "--rounds", 1, "--json"))
    assert found["results"][0]["dims"] == {"rows": 2, "columns": 64}


@pytest.fixture
def cuda_library(library: Path, tmp_path: Path) -> Path:
    """A file that says that its kernels are for GPUs. None of it is loaded before there is one."""
    manifest = library_file.read_manifest(library)
    kernels = tuple(dataclasses.replace(k, arch="sm_90a") for k in manifest.kernels)
    path = tmp_path / "cuda.so"
    library_file.write(path, b"\x7fELF", dataclasses.replace(manifest, kind="cuda", archs=("sm_90a",), kernels=kernels))
    return path


def test_a_gpu_that_is_not_there(opsgen: Command, cuda_library: Path, torch: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = opsgen("bench", cuda_library)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error E2004: this machine's GPU is not there: cuda:0 of 0 that torch finds")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "Name one of cuda:0 to cuda:1." in opsgen("bench", cuda_library, "--device", "cuda:2").err
    assert opsgen("bench", cuda_library, "--device", "cpu").err.startswith("error E4030: ")


def test_a_gpu_without_torch(process: Command, cuda_library: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = process("bench", cuda_library, PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
    assert done.code == 1
    assert done.err.startswith("error E2007: GPUs need torch, which cannot be imported (no torch here).")


def test_what_does_not_fit_into_memory_is_left_out(opsgen: Command, library: Path) -> None:
    size = f"rows={1 << 24},columns={1 << 24}"
    found = document(opsgen("bench", library, "softmax", "--dims", size, "rows=2,columns=3", "--rounds", 1, "--json"))
    assert len(found["results"]) == len(found["skipped"]) == 2
    assert "MiB needed" in found["skipped"][0]["why"]


def test_ratios_are_of_samples_of_one_round() -> None:
    from opsgen.bench.timing import Samples

    drifting = Samples({"opsgen": [1.0, 2.0, 4.0], "torch": [2.0, 4.0, 8.0]})
    assert drifting.ratio("opsgen", "torch") == 2.0
    assert np.allclose(drifting.quantiles("opsgen"), (1.4, 2.0, 3.2))
