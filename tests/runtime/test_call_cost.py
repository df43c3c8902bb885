"""What the runtime costs: the import, which has a limit, and calls and loading, which are measured by

    python -m tests.runtime.test_call_cost

It prints the host time of a call, in microseconds, for each kind of array.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import threading
import timeit
from pathlib import Path

import numpy as np
import pytest

from opsgen.runtime import ffi, load
from tests.runtime import handmade


def run(script: str) -> str:
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_import_takes_a_quarter_second_at_most() -> None:
    """Of the CPU's time: the same as the clock's on an idle machine, and other work on a busy one does not count."""
    script = """
        import time
        start = time.process_time()
        import opsgen.runtime
        print(time.process_time() - start)
    """
    assert min(float(run(script)) for _ in range(5)) <= 0.25


def test_import_brings_neither_torch_nor_tvm_and_leaves_no_trace() -> None:
    found = run("""
        import sys
        before = list(sys.meta_path)
        import opsgen.runtime
        print([name for name in ("torch", "tvm", "ml_dtypes.x", "sympy", "xgboost") if name in sys.modules])
        assert sys.meta_path == before
        import torch
        print(torch.zeros(1).item())
    """)
    assert found == "[]\n0.0"


@pytest.mark.parametrize("first", ["torch", "opsgen.runtime", "tvm_ffi"])
def test_torch_may_be_imported_before_or_after(library_path: Path, first: str) -> None:
    found = run(f"""
        import {first}
        import opsgen.runtime, torch
        lib = opsgen.runtime.load({str(library_path)!r})
        print(lib.same(torch.ones(2, 3, dtype=torch.bfloat16)).sum().item())
    """)
    assert found == "6.0"


def test_import_of_torch_in_another_thread_is_not_disturbed() -> None:
    found = run("""
        import threading, time
        start, problems = threading.Barrier(2), []
        def other():
            start.wait()
            try:
                import torch
                torch.zeros(1)
            except Exception as problem:
                problems.append(problem)
        thread = threading.Thread(target=other)
        thread.start()
        start.wait()
        import opsgen.runtime
        thread.join()
        print(problems)
    """)
    assert found == "[]"


def test_torch_is_hidden_from_one_thread_only() -> None:
    finder = ffi._WithoutTorch()
    with pytest.raises(ModuleNotFoundError, match="torch is hidden"):
        finder.find_spec("torch")
    assert finder.find_spec("torchvision") is None
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(finder.find_spec("torch")))
    thread.start()
    thread.join()
    assert found == [None]


def test_a_failed_import_leaves_no_trace() -> None:
    found = run("""
        import sys
        before = list(sys.meta_path)
        sys.modules["tvm_ffi.core"] = None
        try:
            import opsgen.runtime
        except ImportError as problem:
            print("tvm_ffi.core" in str(problem), sys.meta_path == before)
    """)
    assert found == "True True"


def measure_load() -> None:
    """Print how long it takes to load 30 kernels, each of which is checked against the others of its op."""
    kernels = [
        handmade.scale_add(
            f"many_{i:02d}", region=(f"rows * hidden > {i}", f"rows * hidden <= {i + 1}"), workspace="rows"
        )
        for i in range(30)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, chosen in {"of one op, told apart by region": kernels, "of 30 kinds": None}.items():
            if chosen is None:
                chosen = [handmade.scale_add(f"many_{i:02d}", hidden=str(i)) for i in range(30)]
            path = handmade.write(Path(folder) / "many.so", *chosen)
            times = timeit.repeat(lambda path=path: load(path), number=1, repeat=15)
            print(f"load 30 kernels {name:36s} first {times[0] * 1e3:6.2f} ms, best {min(times) * 1e3:6.2f} ms")


def measure() -> None:
    """Print the host time of calls with a kernel that does nothing, on 1 x 1024 float32."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        lib = load(handmade.write(Path(folder) / "handmade.so"))
    f = lib.nothing
    x, w, out = np.ones((1, 1024), np.float32), np.ones(1024, np.float32), np.empty((1, 1024), np.float32)
    tx, tw, tout = map(torch.from_numpy, (x, w, out))
    parameter = torch.nn.Parameter(tw)
    idle, packed = lib.idle, lib.pack("idle.weight", w)
    read_only = w.copy()
    read_only.flags.writeable = False
    many = np.ones((1024, 8), np.float32).T
    cases = {
        "numpy, out=": lambda: f(x, w, scale=0.5, out=out),
        "numpy, new result": lambda: f(x, w, scale=0.5),
        "numpy, by name, out=": lambda: f(x=x, weight=w, scale=0.5, out=out),
        "numpy, read-only weight, out=": lambda: f(x, read_only, scale=0.5, out=out),
        "numpy, transposed x (a copy of 8 x 1024)": lambda: f(many, w, scale=0.5),
        "numpy, weight that could be packed, out=": lambda: idle(x, w, scale=0.5, out=out),
        "numpy, packed weight, out=": lambda: idle(x, packed, scale=0.5, out=out),
        "torch, packed weight, out=": lambda: idle(tx, packed, scale=0.5, out=tout),
        "torch, out=": lambda: f(tx, tw, scale=0.5, out=tout),
        "torch, new result": lambda: f(tx, tw, scale=0.5),
        "torch, Parameter, out=": lambda: f(tx, parameter, scale=0.5, out=tout),
        "bare tvm_ffi.Function, numpy": lambda g=lib._ops["nothing"].candidates[0].launch: g(0, x, w, 0.5, out),
        "bare tvm_ffi.Function, torch": lambda g=lib._ops["nothing"].candidates[0].launch: g(0, tx, tw, 0.5, tout),
    }
    for name, call in cases.items():
        call()
        times = sorted(timeit.repeat(call, number=5000, repeat=15))
        print(f"{name:44s} best {times[0] / 5000 * 1e6:6.2f} us, median {times[7] / 5000 * 1e6:6.2f} us")


if __name__ == "__main__":
    measure_load()
    measure()
