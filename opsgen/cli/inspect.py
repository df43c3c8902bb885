"""`opsgen inspect`: one stage of an op."""

from __future__ import annotations

import argparse

from ..compiler.inspect import PLANNED, STAGES, data, text
from ..errors import error
from . import choices
from .output import OK, UsageError, print_json, put


def run(arguments: argparse.Namespace) -> int:
    """The command."""
    if arguments.stage not in STAGES:  # before the op is looked for
        fix = f"Those planned are {', '.join(PLANNED)}."
        raise error("E3011", found=arguments.stage, known=", ".join(STAGES), fix=fix)
    chosen = choices.read(arguments)
    if len(chosen.ops) != 1 or len(chosen.dtypes) != 1:
        raise UsageError("inspect takes one OP and one floating type")
    (op,), (dtype,) = chosen.ops, chosen.dtypes
    found = data(
        op, arguments.stage, arguments.target, dtype=dtype, dims=chosen.dims_of(op), absent=chosen.absent_of(op),
        **chosen.attributes_of(op),
    )  # fmt: skip
    if arguments.json:
        print_json(found)
    else:
        put(text(found))
    return OK
