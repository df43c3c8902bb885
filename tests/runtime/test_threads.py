"""templates/x86/threads.cc: parallel loops, scratch memory and CPU level of x86 library files.

Runs the real source, linked with threads_driver.cc, which calls it as TVM's generated code does. What depends on how a
process starts (environment, order of imports, forks) runs in a process of its own.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import tvm_ffi

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "templates" / "x86" / "threads.cc"
FLAGS = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-march=x86-64", "-fvisibility=hidden"]

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("g++"), reason="needs g++ on an x86-64 machine"
)
several_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")

# What every process below starts with. `who` checks that each index ran exactly once and returns the thread of each;
# `run`, the set of threads; `reaches`, whether there are so many.
PRELUDE = """
import ctypes, multiprocessing, os, signal, sys, threading, time
import numpy as np

def load(path):
    driver = ctypes.CDLL(path)
    driver.run.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int64, ctypes.c_int64] + [ctypes.c_void_p] * 3
    driver.threads_runtime.restype = ctypes.c_char_p
    driver.take.restype = ctypes.c_void_p
    driver.take.argtypes = [ctypes.c_uint64]
    driver.give.argtypes = [ctypes.c_void_p]
    return driver

def who(extent, tasks=0, cost=-1, nap=0, inner=0):
    counts = np.zeros((extent, max(inner, 1)), np.int32)
    threads = np.zeros(extent, np.int64)
    naps = np.broadcast_to(np.int64(nap), extent).copy()
    pointer = naps.ctypes.data if naps.any() else None
    assert driver.run(extent, tasks, cost, inner, pointer, counts.ctypes.data, threads.ctypes.data) == 0
    assert (counts == 1).all()
    return threads.tolist()

def run(*args, **kwargs):
    return set(who(*args, **kwargs))

def reaches(count, *args, **kwargs):
    '''Whether a loop takes `count` threads and never more. Some may sleep through one loop on a busy machine.'''
    for _ in range(100):
        found = len(run(*args, **kwargs))
        assert found <= count, found
        if found == count:
            return True
    return False

def runtime():
    return driver.threads_runtime().decode()

def openmp_objects():
    names = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
    return {name for name in names if "gomp" in os.path.basename(name) or "omp" in os.path.basename(name).split(".")[0]}

NAP = 200_000  # ns an index sleeps, so that every thread gets a chunk even on a busy machine
me = threading.get_native_id
"""


@pytest.fixture(scope="session")
def threads_object(tmp_path_factory):
    """threads.cc, compiled as the compiler does it."""
    path = tmp_path_factory.mktemp("threads") / "threads.o"
    subprocess.run(["g++", *FLAGS, "-I", tvm_ffi.libinfo.find_include_path(), "-c", SOURCE, "-o", path], check=True)
    return path


@pytest.fixture(scope="session")
def link(threads_object):
    """link(path, *inputs, exports): a library of the inputs and threads.o; everything else in it is hidden."""

    def link(path, *inputs, exports="__tvm_ffi_*"):
        script = path.with_suffix(".map")
        script.write_text(f"{{ global: {exports}; local: *; }};")
        library = tvm_ffi.libinfo.find_libtvm_ffi()
        command = ["g++", *FLAGS, "-I", tvm_ffi.libinfo.find_include_path(), "-shared", "-o", path]
        command += [
            *inputs,
            threads_object,
            library,
            f"-Wl,-rpath,{Path(library).parent},--no-undefined,--version-script={script}",
        ]
        subprocess.run(command, check=True)
        return str(path)

    return link


@pytest.fixture(scope="session")
def library(link, threads_object):
    exports = "run; take; give; cpu_level; threads_runtime; __tvm_ffi_*"
    return link(threads_object.with_name("driver.so"), HERE / "threads_driver.cc", exports=exports)


@pytest.fixture(scope="session")
def driver(library):
    """The driver in this process."""
    names = {}
    exec(PRELUDE, names)
    names["driver"] = names["load"](library)
    return names["driver"]


@pytest.fixture
def script(library):
    """script(body, before="", **environment): runs body in a fresh Python, where `driver` is loaded; fails with it."""

    def script(body, before="", **environment):
        theirs = ("OMP_", "OPSGEN_", "GOMP_", "MKL_")
        env = {k: v for k, v in os.environ.items() if not k.startswith(theirs)} | environment
        start = [textwrap.dedent(before), PRELUDE, f"driver = load({library!r})"]
        text = "\n".join([*start, textwrap.dedent(body), "print('finished')"])
        result = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        assert result.stdout.endswith("finished\n"), result.stdout + result.stderr
        return result.stdout

    return script


# --- Chunks -----------------------------------------------------------------------------------------------------------

EVERY_CHUNK = """
for extent in (0, 1, 2, 3, 7, 8, 9, 31, 64, 65, 1021, 20011):
    for tasks in (0, 1, 2, 3, 5, 8, 13, 64, 1000):
        for cost in (-1, 0, 39_999, 40_000, 60_000, 10**12):
            run(extent, tasks, cost)
"""


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("openmp", ["1", "0"])
def test_every_chunk_runs_once(script, count, openmp):
    script(EVERY_CHUNK, OMP_NUM_THREADS=str(count), OPSGEN_OPENMP=openmp)


@pytest.mark.parametrize("limit", [{"OMP_THREAD_LIMIT": "2"}, {"OMP_DYNAMIC": "true"}], ids=["limit", "dynamic"])
def test_every_chunk_runs_when_openmp_gives_fewer_threads(script, limit):
    script(EVERY_CHUNK + "assert runtime().endswith(', 7 threads'), runtime()\n", OMP_NUM_THREADS="7", **limit)


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_cost_decides_threads(script, openmp):
    """20 µs of one thread's time for each thread; the statement holds for one loop."""
    body = """
        assert run(64, cost=39_999, nap=NAP) == {me()}
        assert run(64, cost=0, nap=NAP) == {me()}
        assert reaches(2, 64, cost=40_000, nap=NAP)
        assert reaches(3, 64, cost=60_000, nap=NAP)
        assert reaches(4, 64, cost=10**15, nap=NAP)
        assert run(64, cost=1, nap=NAP) == {me()}
        assert reaches(4, 64, nap=NAP)
        assert reaches(2, 2, tasks=2, nap=NAP)
    """
    script(body, OMP_NUM_THREADS="4", OPSGEN_OPENMP=openmp)


def test_a_serial_loop_touches_no_openmp(script):
    script("run(64, cost=10); assert not openmp_objects(), openmp_objects()")


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_one_thread_is_the_caller(script, openmp):
    script("assert run(64, nap=NAP) == {me()}", OMP_NUM_THREADS="1", OPSGEN_OPENMP=openmp)


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_slow_chunks_are_stolen(script, openmp):
    """While one of two threads is stuck in its first chunk, the other runs all that is left."""
    body = """
        threads = who(8, nap=[300_000_000] + [2_000_000] * 7)
        assert len(set(threads[1:])) == 1 and threads[0] != threads[1], threads
        assert threads[0] == me()
    """
    script(body, OMP_NUM_THREADS="2", OPSGEN_OPENMP=openmp)


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_a_loop_within_a_loop_stays_on_its_thread(script, openmp):
    body = "assert reaches(4, 64, nap=NAP, inner=33); run(300, inner=300)"
    script(body, OMP_NUM_THREADS="4", OPSGEN_OPENMP=openmp)


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_eight_python_threads_at_once(script, openmp):
    body = """
        failures = []
        def many():
            try:
                for i in range(300):
                    run(1021, cost=(-1, 10, 50_000)[i % 3])
            except BaseException as e:
                failures.append(e)
        callers = [threading.Thread(target=many) for _ in range(8)]
        [t.start() for t in callers]; [t.join() for t in callers]
        assert not failures, failures
    """
    script(body, OMP_NUM_THREADS="3", OPSGEN_OPENMP=openmp)


# --- Which runtime ----------------------------------------------------------------------------------------------------


def test_own_pool_runs_on_several_threads(script):
    body = """
        assert runtime() == "pool, 5 threads", runtime()
        assert reaches(5, 100, nap=NAP)
        names = [open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task")]
        assert names.count("opsgen-pool\\n") == 4, names
        assert not openmp_objects()
    """
    script(body, OPSGEN_OPENMP="0", OMP_NUM_THREADS="5")


@several_cpus
def test_own_pool_has_a_thread_for_each_cpu(script):
    script("assert runtime() == f'pool, {len(os.sched_getaffinity(0))} threads', runtime()", OPSGEN_OPENMP="0")
    one_cpu = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    body = "assert runtime() == 'serial, 1 thread', runtime(); assert run(9, nap=NAP) == {me()}"
    script(body, before=one_cpu, OPSGEN_OPENMP="0")


def test_threads_that_cannot_be_created_are_done_without(script):
    # glibc takes the stack size of new threads from the limit at the start of the process: 512 MiB, in 1 GiB of memory.
    restart = """
        import os, resource, sys
        if resource.getrlimit(resource.RLIMIT_STACK)[0] != 1 << 29:
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 29, resource.getrlimit(resource.RLIMIT_STACK)[1]))
            os.execv(sys.executable, sys.orig_argv)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    """
    body = "assert len(run(100, nap=NAP)) < 4; run(100)"
    script(body, before=restart, OPSGEN_OPENMP="0", OMP_NUM_THREADS="4", OPENBLAS_NUM_THREADS="1")


@pytest.mark.torch
@pytest.mark.parametrize("when", ["before", "after"])
def test_shares_the_openmp_of_torch(script, when):
    body = """
        import torch
        assert run(100, nap=NAP) and torch.ones(1 << 20).exp().sum() > 0
        assert len(openmp_objects()) == 1, openmp_objects()
        assert runtime().startswith("openmp "), runtime()
        for count in (1, 3, 2):
            torch.set_num_threads(count)
            assert reaches(count, 100, nap=NAP)
            assert runtime().endswith(f", {count} threads"), runtime()
        torch.set_num_threads(1)
        assert run(100, nap=NAP) == {me()}
    """
    script(("import torch\n" if when == "before" else "run(100)\n") + textwrap.dedent(body), OMP_NUM_THREADS="4")


def test_finds_an_openmp_that_is_loaded_privately_under_another_name(script, tmp_path):
    """Wheels bring libgomp-<hash>.so, and Python loads with RTLD_LOCAL: dlsym alone does not find it."""
    command = ["g++", "-print-file-name=libgomp.so.1"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip("no libgomp beside g++")
    private = tmp_path / "libgomp-0a1b2c3d.so.1.0.0"
    # Its soname too is another, or dlopen("libgomp.so.1") would be enough to find it.
    private.write_bytes(Path(found).read_bytes().replace(b"libgomp.so.1\0", b"libgomp-x.so\0"))
    before = f"import ctypes; private = ctypes.CDLL({str(private)!r})"
    body = f"""
        assert reaches(3, 100, nap=NAP)
        assert openmp_objects() == {{ {str(private)!r} }}, openmp_objects()
        assert runtime() == {f"openmp {private}, 3 threads"!r}, runtime()
        private.omp_set_num_threads(2)
        assert reaches(2, 100, nap=NAP)
    """
    script(body, before=before, OMP_NUM_THREADS="3")


# --- Forks ------------------------------------------------------------------------------------------------------------

CHILDREN = """
        def child(depth):
            signal.alarm(20)
            assert reaches(3, 100, nap=NAP)
            assert runtime() == "pool, 3 threads", runtime()
            if depth:
                grandchild = multiprocessing.get_context("fork").Process(target=child, args=(depth - 1,))
                grandchild.start(); grandchild.join(); assert grandchild.exitcode == 0

        children = [multiprocessing.get_context("fork").Process(target=child, args=(i % 2,)) for i in range(4)]
        [c.start() for c in children]; [c.join(30) for c in children]
        assert [c.exitcode for c in children] == [0] * 4
"""


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_children_of_a_fork(script, openmp):
    """GNU OpenMP hangs in a child whose parent has used it; grandchildren and the parent afterwards work too."""
    body = "        assert reaches(3, 100, nap=NAP)\n" + CHILDREN + "        assert reaches(3, 100, nap=NAP)\n"
    script(body, OMP_NUM_THREADS="3", OPSGEN_OPENMP=openmp)


@pytest.mark.torch
def test_library_loaded_in_the_child_of_a_fork(library):
    """Nothing of ours was in the parent, whose OpenMP the child inherits."""
    text = f"""
import os, signal
import torch
torch.set_num_threads(3)
torch.ones(1 << 22).exp().sum()
child = os.fork()
if child == 0:
    try:
        signal.alarm(20)
{textwrap.indent(PRELUDE, " " * 8)}
        driver = load({library!r})
        assert reaches(3, 100, nap=NAP)
        torch.set_num_threads(2)
        assert reaches(2, 100, nap=NAP)
        assert runtime() == "pool, 2 threads", runtime()
        os._exit(0)
    except BaseException:
        import traceback; traceback.print_exc()
        os._exit(1)
_, status = os.waitpid(child, 0)
assert status == 0, status
"""
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_fork_while_other_threads_run_loops(script, openmp):
    body = """
        stop = False
        def busy():
            while not stop:
                run(1021)
        callers = [threading.Thread(target=busy) for _ in range(3)]
        [t.start() for t in callers]
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                run(1021)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop = True
        [t.join() for t in callers]
    """
    script(body, OMP_NUM_THREADS="3", OPSGEN_OPENMP=openmp)


# --- Errors and signals -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def failing(library):
    return tvm_ffi.load_module(library)["fail"]


@pytest.mark.parametrize("task", [0, 5, 15])
def test_an_error_in_a_chunk_reaches_the_caller(failing, task):
    for _ in range(5):
        with pytest.raises(ValueError, match=rf"^chunk {task} on thread \d+$"):
            failing(task, 16, 0)
        failing(-1, 16, 0)  # and leaves nothing behind


@several_cpus
def test_an_error_on_another_thread_reaches_the_caller(failing):
    threads = set()
    for task in range(32):
        with pytest.raises(ValueError) as caught:
            failing(task, 32, 0)
        threads.add(int(str(caught.value).split()[-1]))
    assert threads - {threading.get_native_id()}, "every chunk ran on the caller: the test tests nothing"


def test_errors_in_every_chunk_leave_one(failing):
    with pytest.raises(ValueError, match=r"^chunk \d+ on"):
        failing(-1, 16, 2)
    failing(-1, 16, 0)


def test_a_silent_failure_has_an_error(failing):
    with pytest.raises(RuntimeError, match="gave no reason"):
        failing(3, 16, 1)


def test_a_barrier_is_refused(failing):
    with pytest.raises(RuntimeError, match="barriers"):
        failing(3, 16, 3)
    failing(0, 1, 3)  # alone there is nobody to wait for


def test_failure_stops_the_loop(script):
    script("""
        import tvm_ffi
        fail = tvm_ffi.load_module(driver._name)["fail"]
        def seconds_of_failure(chunks):
            before = time.perf_counter()
            try:
                fail(0, chunks, 0)
            except ValueError:
                return time.perf_counter() - before
        seconds_of_failure(4)  # the first error of a process takes a second: TVM-FFI collects symbols
        assert seconds_of_failure(20000) < 0.5  # 0.2 ms a chunk: 2 s if the other chunks ran
    """, OMP_NUM_THREADS="2")  # fmt: skip


@pytest.mark.parametrize("openmp", ["1", "0"])
def test_interrupt(script, openmp):
    body = """
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        for _ in range(5):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    run(1021)
                raise SystemExit("no interrupt came")
            except KeyboardInterrupt:
                pass
            assert reaches(3, 100, nap=NAP)
    """
    script(body, OMP_NUM_THREADS="3", OPSGEN_OPENMP=openmp)


# --- Scratch memory ---------------------------------------------------------------------------------------------------


def test_scratch_is_aligned_and_reused(driver):
    sizes = [0, 1, 63, 64, 65, 1000, 4096, 100_000, 3_000_001]
    for _ in range(3):
        taken = []
        for size in sizes:
            data = driver.take(size)
            assert data % 64 == 0
            ctypes.memset(data, len(taken), size)
            taken.append((data, size))
        for i, (data, size) in enumerate(taken):  # blocks in use do not overlap
            assert ctypes.string_at(data, size) == bytes([i]) * size
        for data, _ in reversed(taken):
            assert driver.give(data) == 0
    first = driver.take(1 << 20)
    driver.give(first)
    for _ in range(100):
        again = driver.take(1 << 20)
        assert again == first
        driver.give(again)


def test_more_blocks_at_once_than_are_remembered(driver):
    blocks = [driver.take(1000 + i) for i in range(100)]
    assert len(set(blocks)) == 100
    for i, data in enumerate(blocks):
        ctypes.memset(data, i, 1000 + i)
    assert all(ctypes.string_at(data, 1000 + i) == bytes([i]) * (1000 + i) for i, data in enumerate(blocks))
    for data in blocks:
        driver.give(data)


def test_scratch_kept_is_bounded_and_freed_with_its_thread(script):
    """Resident memory is that of the kernel's count, so blocks are written to."""
    script("""
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
        def take(mib):
            data = driver.take(mib << 20)
            ctypes.memset(data, 1, mib << 20)
            return data
        start = resident()
        many = [take(20) for _ in range(12)]
        assert resident() - start >= 235
        [driver.give(data) for data in many]
        kept = resident() - start
        assert 55 <= kept <= 70, kept
        driver.give(take(300))
        assert resident() - start <= 70
        def thread():
            driver.give(take(50))
            assert resident() - start >= 100
        for _ in range(4):
            t = threading.Thread(target=thread); t.start(); t.join()
        deadline = time.monotonic() + 10  # join() returns before the thread's destructors have run
        while resident() - start > 75:
            assert time.monotonic() < deadline, resident() - start
    """)


def test_no_memory_raises(script):
    """Generated code returns at once on null: the error must be set, and the 8 MiB a chunk held must not leak."""
    body = """
        import tvm_ffi
        fail = tvm_ffi.load_module(driver._name)["fail"]
        for i in range(100):
            try:
                fail(i % 8, 8, 4)
                raise SystemExit("no error")
            except RuntimeError as error:
                assert str(error) == str(1 << 60) and error.__tvm_ffi_error__.kind == "OpsgenMemory"
        resident = int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
        assert resident < 300, resident
    """
    script(body, OMP_NUM_THREADS="2")


# --- The rest ---------------------------------------------------------------------------------------------------------


def test_cpu_level(driver):
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    avx2 = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"} <= set(flags)
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= set(flags)
    assert driver.cpu_level() == avx2 + avx512
    assert tvm_ffi.load_module(driver._name)["opsgen_cpu_level"]() == avx2 + avx512


def test_runtime_is_told_to_python(driver):
    assert tvm_ffi.load_module(driver._name)["opsgen_threads_runtime"]() == driver.threads_runtime().decode()


@pytest.mark.parametrize("imported", ["", "import tvm"])
def test_a_generated_object_uses_these_threads(link, threads_object, imported):
    """Linked with a real object of TVM: its weak variables become ours, and TVM in the process leaves them alone."""
    folder = threads_object.with_name("generated")
    path = folder / "generated.so"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        build_generated(folder / "generated.o")
        link(path, folder / "generated.o")
        command = ["nm", "-D", "--defined-only", path]
        symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = {line.split()[-1] for line in symbols.splitlines()}
        assert "__tvm_ffi_doubled" in names
        assert all(name.startswith("__tvm_ffi_") for name in names), names
    text = f"""
{imported}
import os, numpy as np, tvm_ffi
module = tvm_ffi.load_module({str(path)!r})
x = np.arange(1 << 20, dtype=np.float32)
y = np.zeros_like(x)
module["doubled"](x, y)
assert (y == 2 * x).all()
names = [open(f"/proc/self/task/{{t}}/comm").read() for t in os.listdir("/proc/self/task")]
assert names.count("opsgen-pool\\n") == 2, names
"""
    env = os.environ | {"OPSGEN_OPENMP": "0", "OMP_NUM_THREADS": "3"}
    result = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def build_generated(path):
    """y[i] = 2 x[i] in a parallel loop, through scratch memory of 1024 elements."""
    import tvm
    from tvm import tirx

    n, i = tirx.Var("n", "int64"), tirx.Var("i", "int64")
    x = tirx.decl_buffer((n,), "float32", "x", data_alignment=4)
    y = tirx.decl_buffer((n,), "float32", "y", data_alignment=4)
    scratch = tirx.decl_buffer((1024,), "float32", "scratch")
    zero, size = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1024)
    j = tirx.Var("j", "int64")
    k = tirx.Var("k", "int64")
    copy = tirx.BufferStore(scratch, tirx.BufferLoad(x, [i * 1024 + j]), [j])
    fill = tirx.For(j, zero, size, tirx.ForKind.SERIAL, copy)
    double = tirx.BufferLoad(scratch, [k]) + tirx.BufferLoad(scratch, [k])
    back = tirx.For(k, zero, size, tirx.ForKind.SERIAL, tirx.BufferStore(y, double, [i * 1024 + k]))
    row = tirx.SeqStmt([tirx.AllocBuffer(scratch), fill, back])
    loop = tirx.For(i, zero, tirx.floordiv(n, size), tirx.ForKind.PARALLEL, row)
    function = tirx.PrimFunc([x, y], loop).with_attr("global_symbol", "doubled").with_attr("tirx.noalias", True)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})
    tvm.compile(tvm.IRModule({"doubled": function}), target=target).mod.write_to_file(str(path))
