"""What importing loads: describing an op needs no TVM, and asking for the package of ops imports none of them."""

import subprocess
import sys

import pytest

HEAVY = ("tvm", "tvm_ffi", "torch", "sympy", "xgboost", "jinja2")


def _loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after ``code``."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import opsgen",
        "import opsgen.ops",
        "from opsgen.ops import rms_norm",
        "import opsgen.ops; opsgen.ops.all_ops()",
        "import opsgen as og; og.op, og.Tensor, og.softmax, og.ops.attention",
        "import numpy; from opsgen.ops import softmax; softmax.evaluate(numpy.zeros((2, 3)))",
    ],
)
def test_describing_ops_loads_nothing_heavy(code: str) -> None:
    assert _loaded(code).isdisjoint(HEAVY)


@pytest.mark.parametrize("code", ["import opsgen", "import opsgen.ops"])
def test_importing_the_packages_loads_no_numpy_and_no_op(code: str) -> None:
    loaded = _loaded(code)
    assert "numpy" not in loaded
    assert not {m for m in loaded if m.startswith("opsgen.ops.")}
