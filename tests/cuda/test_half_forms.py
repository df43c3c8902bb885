"""Which products are computed as one function where results are rounded to a half type."""

import math
import re

import pytest

import opsgen as og
from opsgen.compiler.inspect import data


@og.op
def halved_first(x: og.Tensor["..."]) -> og.Tensor:
    return 0.5 * x * (1.0 + og.erf(x * math.sqrt(0.5)))


@og.op
def halved_last(x: og.Tensor["..."]) -> og.Tensor:
    return (og.erf(math.sqrt(0.5) * x) + 1.0) * (x * 0.5)


@og.op
def of_another(x: og.Tensor["..."], y: og.Tensor["..."]) -> og.Tensor:
    return x * (1.0 + og.erf(y))


@og.op
def falling(x: og.Tensor["..."]) -> og.Tensor:
    return x * (1.0 + og.erf(-1.0 * x))


@og.op
def beside_a_sum(x: og.Tensor["..."]) -> og.Tensor:
    return x * (1.0 + og.erf(x)) - x


def source(op: og.Op, dtype: str) -> str:
    return "".join(k["cuda"] for k in data(op, "source", "cuda/sm_90a", dtype=dtype)["kernels"])


@pytest.mark.parametrize("op", [halved_first, halved_last])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_value_times_one_plus_its_erf_is_one_function(op: og.Op, dtype: str) -> None:
    calls = re.findall(r"opsgen_half_gated_erf\(\w+, (\S+), (\S+)\)", source(op, dtype))
    assert calls
    for k, c in calls:
        factor, scale = (float.fromhex(n.partition("/")[0].rstrip("f")) for n in (k, c))
        assert (factor, scale) == (0.5, pytest.approx(math.sqrt(0.5), rel=1e-7))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(halved_first, "float32"), (of_another, "bfloat16"), (falling, "bfloat16"), (beside_a_sum, "bfloat16")],
)
def test_others_are_not(op: og.Op, dtype: str) -> None:
    """Nor where a difference would be rounded instead, which shows more."""
    assert "opsgen_half_gated_erf" not in source(op, dtype)
