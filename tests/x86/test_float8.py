"""8-bit floats on x86: what codes mean and how numbers round to them, of everything there is."""

import pytest

import opsgen as og
from opsgen.runtime.host import host_levels
from tests import float8


@pytest.mark.parametrize("arch", ["avx2", "avx512"])
def test_conversions(arch: str) -> None:
    if arch not in host_levels():
        pytest.skip(f"this CPU has no {arch}")
    float8.check_conversions(og.compile(float8.OPS, target=f"x86/{arch}"))


def test_torch_rounds_alike(torch: object) -> None:
    """The reference itself, beside torch: float8_e4m3fn saturates since 2.13."""
    import torch as t

    x = t.from_numpy(float8.numbers())
    for name in float8.FORMATS:
        found = x.to(getattr(t, name)).view(t.uint8).numpy()
        saturates = t.tensor(1e9).to(t.float8_e4m3fn).float().item() == 448
        within = slice(None) if saturates or name == "float8_e5m2" else (x.abs() <= 448).numpy()
        assert (found[within] == float8.encoded(x.numpy(), name)[within]).all()
