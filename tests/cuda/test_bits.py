"""Operations on the bits of integers in generated CUDA, emulated and compiled."""

from pathlib import Path
from typing import Any

import opsgen as og
from opsgen.compiler.plan import make_plan
from opsgen.compiler.problem import enumerate_problems
from opsgen.dsl import Op
from opsgen.ops import dropout
from opsgen.targets.cuda import codegen
from opsgen.targets.names import parse
from tests import bits
from tests.cuda import emulated
from tests.cuda.test_compile import check_resources


def test_emulated(tmp_path: Path) -> None:
    with emulated.on_cpu():
        emulated.pretend(capability=80)
        lib = emulated.compile(bits.OPS, tmp_path)

        def call(op: Op, given: dict[str, Any]) -> dict[str, Any]:
            found = lib[op.name](**given)
            return found._asdict() if isinstance(found, tuple) else {"out": found}

        bits.check_bits(call)


def test_compiles() -> None:
    check_resources(enumerate_problems(bits.OPS, ["float32"], {}), "sm_90a")


def test_blocks_of_random_numbers_are_made_once_for_all_of_a_strip() -> None:
    """Of whole strips the offset alone says which word of a block is an element's: nvcc unrolls the loop over it."""
    (problem,) = enumerate_problems([og.variant(dropout, absent=["residual"])], ["bfloat16"], {})
    plan = make_plan(problem, parse(["cuda/sm_90a"])[0])
    text = next(codegen.kernel_source(k.name, k.function, "sm_90a") for k in plan.launches if k.name.endswith("_map"))
    whole = text[text.index("#pragma unroll") :]
    whole = whole[: whole.index("opsgen_round_bfloat16")]
    assert "(lane & (int64_t)3)" in whole
    assert "((start >> (int64_t)2) + (lane >> (int64_t)2))" in whole
