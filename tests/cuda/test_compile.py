"""Compiling for NVIDIA GPUs, without one: every op, what its kernels take, their sources, tools and errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import opsgen as og
from opsgen.compiler.inspect import data
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import Problem, enumerate_problems
from opsgen.ops import all_ops
from opsgen.runtime import devices
from opsgen.targets.cuda import ARCHS, codegen, toolchain
from opsgen.targets.names import parse

OPS = all_ops()
GOLDEN = Path(__file__).parent / "golden"
KERNELS = {  # golden file: op, without, dtype, arch, dims, which kernel
    "gelu.cu": ("gelu", [], "bfloat16", "sm_80", {}, "map"),
    "softmax.cu": ("softmax", [], "float32", "sm_80", {}, "rows_to_2048"),
    "linear.cu": ("linear", ["residual"], "float32", "sm_80", {"in_features": 768}, "small"),
}


def problems(names: list[str], dtypes: list[str]) -> list[Problem]:
    return enumerate_problems([OPS[n] for n in names], dtypes, {})


def check_resources(found: list[Problem], arch: str) -> None:
    """Compiles; no kernel may spill, or leave its arrays on the stack."""
    [target] = parse(f"cuda/{arch}")
    functions = {x.name: x.function for p in found for x in make_plan(p, target).launches}
    units = codegen.units(codegen.sources(functions, arch))
    cubins, used = codegen.compile_units([source for _, source in units], arch)
    assert all(c.startswith(b"\x7fELF") for c in cubins)
    ours = {name for names, _ in units for name in names}
    assert ours <= set(used)
    for name in ours:
        u = used[name]
        functions_on_stack = 40 if "sin" in name or "cos" in name else 0  # the exact reduction of large arguments
        assert u.spilled == 0 and u.stack <= functions_on_stack, f"{name}: {u}"
        assert u.registers * 256 <= ARCHS[arch].registers, f"{name}: {u}"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_sample_compiles_without_spills(arch: str) -> None:
    check_resources(problems(["softmax", "rms_norm", "swiglu", "embedding", "masked_mean_pool"], ["float32"]), arch)
    linear = og.variant(OPS["linear"], absent=["residual"], activation="gelu", dtype="float32")
    check_resources(enumerate_problems([linear], [], {}), arch)
    grouped = og.variant(OPS["grouped_linear"], absent=["scale"], activation="gelu", dtype="float32")
    check_resources(enumerate_problems([grouped], [], {}), arch)


@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_100a"])
def test_other_archs_compile_without_spills(arch: str) -> None:
    check_resources(problems(["softmax"], ["bfloat16"]), arch)
    linear = og.variant(OPS["linear"], absent=["bias", "residual"], activation="relu", dtype="bfloat16")
    check_resources(enumerate_problems([linear], [], {}), arch)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", OPS)
def test_every_op_compiles_without_spills(name: str, arch: str, dtype: str) -> None:
    check_resources(problems([name], [dtype])[:2], arch)


@pytest.mark.parametrize("name", KERNELS)
def test_sources(name: str) -> None:
    """OPSGEN_TEST_GOLDEN=write writes the files anew, for the change to be read."""
    op, absent, dtype, arch, dims, part = KERNELS[name]
    given = {"activation": "gelu"} if op == "linear" else {"approximate": "none"} if op == "gelu" else {}
    found = data(OPS[op], "source", f"cuda/{arch}", dtype=dtype, dims=dims, absent=absent, **given)
    [source] = [k["cuda"] for k in found["kernels"] if k["name"].endswith(f"_{part}")]
    source = re.sub(rf"{op}_[0-9a-f]{{10}}_", f"{op}_", source)  # the hash changes with every op
    if os.environ.get("OPSGEN_TEST_GOLDEN") == "write":
        (GOLDEN / name).write_text(source)
    assert source.splitlines() == (GOLDEN / name).read_text().splitlines()


def test_which_functions_results_get() -> None:
    """Those for half types only where nothing could make more of what they are off by."""

    @og.op
    def cancels(x: og.Tensor["n"]):
        return og.exp(x) - 1.0

    @og.op
    def grows(x: og.Tensor["n", "m"]):
        return og.sum(og.exp(x) * x, over="m")

    @og.op
    def also_exact(x: og.Tensor["n", "m"]):
        e = og.exp(x - og.max(x, over="m"))
        return og.results(weights=e / og.sum(e, over="m"), largest=og.cast(og.max(e, over="m"), "float32"))

    def source(op: object, dtype: str) -> str:
        return "".join(k["cuda"] for k in data(op, "source", "cuda/sm_80", dtype=dtype)["kernels"])

    assert "opsgen_half_exp(" in source(OPS["softmax"], "bfloat16")
    assert "expf(" not in source(OPS["softmax"], "bfloat16").replace("opsgen_half_exp", "")
    for op, dtype in ((OPS["softmax"], "float32"), (cancels, "bfloat16"), (grows, "float16"), (also_exact, "float16")):
        text = source(op, dtype)
        assert "expf(" in text and "opsgen_half_" not in text


def test_a_library_for_two_archs(tmp_path: Path) -> None:
    from opsgen.compiler.compile import build

    build([OPS["relu"], OPS["softmax"]], tmp_path / "a.so", "a100,h200")
    lib = og.load(tmp_path / "a.so")  # no GPU is needed for that
    assert (lib.manifest.kind, lib.manifest.archs) == ("cuda", ("sm_80", "sm_90a"))
    assert lib.manifest.driver == f"{toolchain.compiler().version[0]}.0"
    needed = subprocess.run(
        ["readelf", "-d", str(tmp_path / "a.so")], capture_output=True, text=True, check=True
    ).stdout
    libraries = set(re.findall(r"NEEDED.*\[(.*)\]", needed))
    assert libraries <= {
        "libtvm_ffi.so",
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "ld-linux-x86-64.so.2",
    }
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(tmp_path / "a.so")], capture_output=True, text=True, check=True
    )
    assert all("__tvm_ffi_" in line for line in symbols.stdout.splitlines())


def test_a_library_with_ptx(tmp_path: Path) -> None:
    from opsgen.compiler.compile import build

    build(OPS["relu"], tmp_path / "a.so", "cuda/sm_80,cuda/compute_80")
    lib = og.load(tmp_path / "a.so")
    version = toolchain.compiler().version
    assert lib.manifest.archs == ("sm_80", "compute_80")
    assert lib.manifest.driver == f"{version[0]}.{version[1]}"  # an older driver does not know the PTX
    held = (tmp_path / "a.so").read_bytes()
    start = held.index(b"//\n// Generated by NVIDIA NVVM Compiler")
    text = held[start : held.index(b"\0", start)].decode()
    assert ".target sm_80" in text and ".visible .entry relu_" in text


@pytest.mark.parametrize(
    ("arch", "runs_on"),
    [
        ("sm_80", {80, 86, 89}),
        ("sm_86", {86, 89}),
        ("sm_90a", {90}),
        ("sm_100a", {100}),
        ("compute_80", {80, 86, 89, 90, 100, 103, 120}),
        ("compute_90", {90, 100, 103, 120}),
    ],
)
def test_what_runs_where(arch: str, runs_on: set[int]) -> None:
    assert {c for c in (75, 80, 86, 89, 90, 100, 103, 120) if devices.runs(arch, c)} == runs_on


def test_machine_code_goes_before_ptx() -> None:
    assert sorted(["compute_90", "sm_80", "sm_90a", "compute_80", "sm_86"], key=devices.rank) == [
        "compute_80", "compute_90", "sm_80", "sm_86", "sm_90a",
    ]  # fmt: skip


def test_the_launcher_has_no_warnings(tmp_path: Path) -> None:
    from opsgen.targets.x86 import toolchain as host

    plain = [
        p for n in ("linear", "masked_mean_pool", "embedding", "layer_norm") for p in problems([n], ["float32"])[:1]
    ]
    for p in plain:
        source = tmp_path / "launcher.cc"
        text = data(og.variant(p.op, absent=sorted(p.graph.absent), **p.graph.attributes), "source", "cuda/sm_80")[
            "launcher"
        ]
        source.write_text(re.sub(r"\.incbin [^;]*?\\n", ".space 8\\\\n", text))
        flags = ["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", *host.include_flags()]
        subprocess.run([host.compiler(), *flags, "-c", str(source), "-o", str(tmp_path / "x.o")], check=True)


def test_inspect_shows_what_a_kernel_takes() -> None:
    kernel, _ = data(OPS["relu"], "asm", "cuda/sm_90a")["kernels"]  # for aligned memory, and for any
    assert ".target sm_90a" in kernel["asm"] and ".visible .entry relu_" in kernel["asm"]
    assert kernel["usage"]["spilled"] == 0 < kernel["usage"]["registers"]
    assert "// registers " in og.inspect(OPS["relu"], "asm", "cuda/sm_90a")
    assert "result_out_data[" in og.inspect(OPS["relu"], "source", "cuda/sm_90a")


# -- names and tools ---------------------------------------------------------------------------------------------------
def test_names() -> None:
    assert [str(t) for t in parse("A100,h100,cuda/sm_90a,l40s")] == ["cuda/sm_80", "cuda/sm_90a", "cuda/sm_89"]
    with pytest.raises(og.errors.TargetError, match="E2001: unknown target 'cuda/sm_70'"):
        parse("cuda/sm_70")
    with pytest.raises(og.errors.TargetError, match="E2005"):
        parse("h100,x86/avx2")


def test_dims_named_like_words_of_c(tmp_path: Path) -> None:
    @og.op
    def words(half: og.Tensor["int", "exp"], sqrt: og.Tensor["exp"], *, float: float):
        return og.softmax(half * sqrt * float, over="exp") + og.exp(half)

    found = enumerate_problems([words], ["float32"], {})
    check_resources(found, "sm_80")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NVCC", str(tmp_path / "nvcc"))
    monkeypatch.setattr(toolchain, "_nvrtc", lambda: None)
    with pytest.raises(og.errors.TargetError) as caught:
        og.compile(OPS["relu"], target="cuda/sm_80")
    assert str(caught.value) == (
        f"E2002: {tmp_path / 'nvcc'} was not found; compiling for cuda needs it. Install it: the CUDA toolkit "
        "(https://developer.nvidia.com/cuda-downloads), or pip install nvidia-cuda-nvrtc"
    )


def test_what_nvcc_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("named", "home/bin"):
        (tmp_path / place).mkdir(parents=True)
        script = tmp_path / place / "nvcc"
        script.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.1'\n")
        script.chmod(0o755)
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert toolchain.compiler().path == str(tmp_path / "home/bin/nvcc")
    monkeypatch.setenv("NVCC", str(tmp_path / "named/nvcc"))
    found = toolchain.compiler()
    assert (found.path, str(found), found.driver()) == (str(tmp_path / "named/nvcc"), "nvcc 12.9", (12, 0))


def test_what_nvcc_says_of_wrong_source() -> None:
    with pytest.raises(og.errors.CompileError, match=r"(?s)E3005: nvcc failed with exit status \d: .*identifier \"x\""):
        toolchain.compile_source("__global__ void k() { x; }", ARCHS["sm_80"])


def test_nvrtc_compiles_the_same_sources() -> None:
    library = toolchain._nvrtc()
    if library is None:
        pytest.skip("the package nvidia-cuda-nvrtc is not installed")
    using = toolchain.Compiler("NVRTC", library, toolchain._nvrtc_version(library))
    [target] = parse("cuda/sm_90a")
    functions = {
        x.name: x.function for p in problems(["softmax", "gelu"], ["float16"]) for x in make_plan(p, target).launches
    }
    for _, source in codegen.units(codegen.sources(functions, "sm_90a")):
        assert toolchain.compile_source(source, ARCHS["sm_90a"], using)[0].startswith(b"\x7fELF")


def test_doctor_shows_nvcc() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opsgen", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    found = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
    assert found["cuda compiler"]["found"].startswith(str(toolchain.compiler()))
    assert found["gpu"]["status"] in ("ok", "note")
