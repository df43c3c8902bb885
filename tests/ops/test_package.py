"""The package of ops: a name gives the op, however it is asked for, and each op's file is complete."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import opsgen.ops
from opsgen.dsl import Op


def test_every_file_is_an_op_and_every_op_a_file() -> None:
    files = {m.name for m in pkgutil.iter_modules(opsgen.ops.__path__) if not m.name.startswith("_")}
    builders = {"flex_attention"}  # a function that makes an op
    assert files == {*opsgen.ops.all_ops(), *builders} == set(opsgen.ops.__all__) - {"all_ops"}
    assert isinstance(opsgen.ops.flex_attention(), Op)
    for name, op in opsgen.ops.all_ops().items():
        assert isinstance(op, Op)
        assert op.name == name


@pytest.mark.parametrize(
    "code",
    [
        "from opsgen.ops import softmax",
        "import opsgen.ops.softmax; from opsgen.ops import softmax",
        "from opsgen.ops.softmax import softmax as _; from opsgen.ops import softmax",
        "import importlib; importlib.import_module('opsgen.ops.softmax'); from opsgen.ops import softmax",
        "import opsgen.ops; opsgen.ops.all_ops(); softmax = opsgen.ops.softmax",
        # linear imports gelu: that must not leave the module in the place of the op
        "from opsgen.ops import linear; from opsgen.ops import gelu as softmax",
        "import opsgen; softmax = opsgen.ops.softmax",
    ],
)
def test_a_name_gives_the_op_and_not_its_module(code: str) -> None:
    script = f"{code}\nfrom opsgen.dsl import Op\nassert isinstance(softmax, Op), softmax"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_unknown_name() -> None:
    with pytest.raises(ImportError, match="no_such_op"):
        from opsgen.ops import no_such_op  # noqa: F401
    assert "rms_norm" in dir(opsgen.ops)


@pytest.mark.parametrize("op", opsgen.ops.all_ops().values(), ids=lambda op: op.name)
def test_an_op_states_formula_reference_peer_and_workloads(op: Op) -> None:
    module = importlib.import_module(f"opsgen.ops.{op.name}")
    assert "Source: " in " ".join(module.__doc__.split())
    assert "Preconditions: " in module.__doc__
    assert op.__doc__
    assert op._reference is not None
    assert "torch" in op.peers  # tests hold it against the reference; `opsgen bench` times it
    assert len({w.label for w in op.workloads}) == len(op.workloads) >= 2
    for w in op.workloads:
        present = [p for p in op.parameters if p.spec and p.name not in w.absent]
        leading = {"rows"} if any(p.spec.leading for p in present) else set()
        assert set(w.dims) == leading | {d for p in present for d in p.spec.named}, w.label
        assert all(op.parameter(name).optional for name in w.absent)
        op.trace(absent=frozenset(w.absent), attributes=w.attributes)
