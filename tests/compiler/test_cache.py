"""The compile cache: keys, damage, eviction, folders that cannot be used, and processes that want the same thing."""

import hashlib
import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler import cache, key
from opsgen.compiler.cache import Cache, NoCache, open_cache
from opsgen.compiler.problem import enumerate_problems
from opsgen.targets.names import parse

compiling = importlib.import_module("opsgen.compiler.compile")


@og.op
def half(x: og.Tensor["n"], *, by: float = 2.0):
    """x / by"""
    return x / by


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "cache"))
    monkeypatch.delenv(cache.SIZE, raising=False)
    cache._said.clear()
    yield tmp_path / "cache"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was really built."""
    found: list[Any] = []
    real = compiling._build
    monkeypatch.setattr(compiling, "_build", lambda *args: (found.append(args), real(*args))[1])
    return found


# -- libraries ---------------------------------------------------------------------------------------------------------
def test_a_library_is_built_once(place: Path, builds: list[Any], tmp_path: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    first, second = (og.compile(half, target="x86/avx2", output=tmp_path / name) for name in ("a.so", "b.so"))
    assert len(builds) == 1
    assert np.array_equal(first.half(x), x / 2) and np.array_equal(second.half(x), x / 2)
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()
    og.compile(half, target="x86/avx2", cache=False)
    assert len(builds) == 2


def test_a_warm_compile_needs_no_tvm(place: Path, tmp_path: Path) -> None:
    script = "import sys; import opsgen as og; from opsgen.ops import relu\n"
    script += "og.compile(relu, target='x86/avx2'); print('tvm' in sys.modules)"
    printed = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert printed == ["True\n", "False\n"]


def _key(*ops: Any, target: str = "x86/avx2", configs: Any = None, **options: Any) -> str:
    dtypes, dims = options.pop("dtypes", ["float32"]), options.pop("dims", {})
    return key.library_key(enumerate_problems(ops, dtypes, dims), parse(target), configs or {})


def test_the_key_depends_on_everything_that_is_baked_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsgen.ops import linear, rms_norm, softmax

    base = _key(softmax)
    assert base == _key(softmax)
    relu = og.variant(linear, absent=["bias", "residual"], activation="relu")
    silu = og.variant(linear, absent=["bias", "residual"], activation="silu")
    others = [
        _key(rms_norm), _key(softmax, dtypes=["float16"]), _key(softmax, target="x86/avx512"), _key(softmax, rms_norm),
        _key(softmax, target="x86/avx2,x86/avx512"), _key(softmax, configs={"x86.row_reduction": {"registers": 2}}),
        _key(relu), _key(silu), _key(relu, dims={"in_features": 64}), _key(relu, dims={"in_features": 65}),
    ]  # fmt: skip
    assert len({base, *others}) == len(others) + 1
    monkeypatch.setattr(key, "package_digest", lambda: "another opsgen")
    assert _key(softmax) != base
    monkeypatch.undo()
    monkeypatch.setattr(key, "_version", lambda package: "0.0.0")
    assert _key(softmax) != base
    monkeypatch.undo()
    monkeypatch.setattr(key, "_compilers", lambda kind: ["another compiler"])
    assert _key(softmax) != base


def test_the_key_depends_on_the_default_of_a_scalar() -> None:
    @og.op(name="half")
    def other(x: og.Tensor["n"], *, by: float = 3.0):
        """x / by"""
        return x / by

    assert _key(half) != _key(other)  # one graph; the manifest holds the default


def test_the_package_digest_sees_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("a.py", "x"), ("b/c.j2", "y"), ("b/d.txt", "no source"), ("__pycache__/e.py", "nor this")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(key.resources, "files", lambda package: tmp_path)

    def digest() -> str:
        key.package_digest.cache_clear()
        return key.package_digest()

    base = digest()
    for name in ("b/d.txt", "__pycache__/e.py"):
        (tmp_path / name).write_text("changed")
        assert digest() == base
    for name in ("a.py", "b/c.j2"):
        (tmp_path / name).write_text("changed")
        assert digest() != base
        base = digest()
    (tmp_path / "a.py").rename(tmp_path / "f.py")
    assert digest() != base
    monkeypatch.undo()
    key.package_digest.cache_clear()


# -- entries -----------------------------------------------------------------------------------------------------------
def make(value: bytes, made: list[bytes]) -> Any:
    return lambda: (made.append(value), value)[1]


def test_damage_is_built_again(place: Path) -> None:
    kept, made = Cache(place, 1 << 20), list[bytes]()
    key = "ab" * 32
    for _ in range(2):
        assert kept.fetch("unit", "t", key, make(b"payload", made)) == b"payload"
    assert len(made) == 1
    [entry] = kept.entries()
    whole = entry.path.read_bytes()
    for damaged in (
        b"",
        whole[:-1],
        whole[1:],
        whole + b"x",
        whole[:20] + bytes([whole[20] ^ 1]) + whole[21:],
        b"x" * 99,
    ):
        entry.path.write_bytes(damaged)
        made.clear()
        assert kept.fetch("unit", "t", key, make(b"payload", made)) == b"payload"
        assert len(made) == 1
        assert entry.path.read_bytes()[-39:-32] == b"payload"


def test_an_entry_of_another_key_is_built_again(place: Path) -> None:
    """A file that was copied to another's name is whole, and still not what is wanted."""
    kept, made = Cache(place, 1 << 20), list[bytes]()
    one, other = "ab" * 32, "cd" * 32
    for name, payload in ((one, b"one"), (other, b"other")):
        kept.fetch("unit", "t", name, make(payload, made))
    first, second = sorted((e.path for e in kept.entries()), key=lambda path: path.name)
    second.write_bytes(first.read_bytes())
    assert kept.fetch("unit", "t", other, make(b"other", made)) == b"other"
    assert kept.fetch("unit", "t", one, make(b"", made)) == b"one"
    assert made == [b"one", b"other", b"other"]
    body = cache._START.pack(cache._MAGIC, 4) + b"null" + b"payload"  # a header of another kind, under a right hash
    second.write_bytes(body + hashlib.sha256(body).digest())
    assert kept.fetch("unit", "t", other, make(b"other", made)) == b"other"


def test_the_key_holds_the_whole_arch() -> None:
    from opsgen.ops import softmax

    archs = ["sm_80", "sm_86", "sm_89", "sm_90a", "compute_80", "compute_90"]
    assert len({_key(softmax, target=f"cuda/{arch}") for arch in archs}) == len(archs)
    assert _key(softmax, target="h200") == _key(softmax, target="cuda/sm_90a")
    units = {key.digest("source", arch, "nvcc") for arch in archs}
    assert len(units) == len(archs)


def test_a_failure_stores_nothing(place: Path) -> None:
    kept = Cache(place, 1 << 20)

    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept.fetch("unit", "t", "ab" * 32, fail)
    assert kept.entries() == []
    assert kept.fetch("unit", "t", "ab" * 32, lambda: b"now") == b"now"


def test_the_least_recently_used_leave_first(place: Path) -> None:
    kept, made = Cache(place, 4000), list[bytes]()
    keys = [f"{i:02x}" * 32 for i in range(4)]
    for i in range(3):
        kept.fetch("unit", str(i), keys[i], make(bytes(1000), made))
        time.sleep(0.02)
    kept.fetch("unit", "0", keys[0], make(b"", made))  # used again
    time.sleep(0.02)
    kept.fetch("unit", "3", keys[3], make(bytes(1000), made))
    assert sorted(e.title for e in kept.entries()) == ["0", "2", "3"]
    kept.fetch("unit", "large", "ff" * 32, make(bytes(5000), made))
    assert [e.title for e in kept.entries()] == ["large"]


def test_folders_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "file"))
    cache._said.clear()
    with pytest.warns(
        og.errors.OpsgenWarning, match=r"W3001: the compile cache in .*file cannot be used \(Not a direc"
    ):
        assert open_cache().fetch("unit", "t", "ab" * 32, lambda: b"x") == b"x"
    assert open_cache().fetch("unit", "t", "ab" * 32, lambda: b"y") == b"y"  # said once, and nothing is kept


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER, "0")
    assert isinstance(open_cache(), NoCache) and cache.folder() is None
    monkeypatch.delenv(cache.FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "opsgen"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "opsgen"
    assert isinstance(open_cache(wanted=False), NoCache)
    monkeypatch.setenv(cache.SIZE, "3")
    assert cache.bound() == 3 << 20
    for wrong in ("", "0", "-1", "2G", "1.5"):
        monkeypatch.setenv(cache.SIZE, wrong)
        with pytest.raises(og.errors.TargetError, match="E2006: the environment variable OPSGEN_CACHE_MIB is"):
            cache.bound()


def test_threads_build_one_thing_once(place: Path) -> None:
    kept, made = Cache(place, 1 << 20), list[bytes]()

    def slow() -> bytes:
        time.sleep(0.2)
        made.append(b"x")
        return b"x"

    threads = [threading.Thread(target=kept.fetch, args=("unit", "t", "ab" * 32, slow)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert made == [b"x"]


def test_eight_processes_build_one_library_once(place: Path, tmp_path: Path) -> None:
    script = """if True:
        import importlib, sys, numpy as np, opsgen as og
        from opsgen.ops import relu
        compiling = importlib.import_module("opsgen.compiler.compile")
        real = compiling._build
        compiling._build = lambda *args: (print("built"), real(*args))[1]
        lib = og.compile(relu, target="x86/avx2", output=sys.argv[1])
        assert lib.relu(np.float32([-1, 2])).tolist() == [0, 2]
    """
    running = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path / f"{i}.so"], stdout=subprocess.PIPE, text=True)
        for i in range(8)
    ]
    printed = [p.communicate()[0] for p in running]
    assert [p.returncode for p in running] == [0] * 8
    assert sorted(printed) == [""] * 7 + ["built\n"]


def test_a_builder_that_is_killed_leaves_no_lock(place: Path) -> None:
    script = "import time; from opsgen.compiler.cache import open_cache\n"
    script += "open_cache().fetch('unit', 't', 'ab' * 32, lambda: (print('in', flush=True), time.sleep(60), b'')[2])"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "in\n"
        other.kill()
    assert open_cache().fetch("unit", "t", "ab" * 32, lambda: b"x") == b"x"
