"""What to write in a definition instead of a name that is not there."""

from __future__ import annotations

import sys
from difflib import get_close_matches

_INSTEAD = {
    "T": "Dims go by name, so that nothing is transposed; og.transpose(x, 'b', 'a') orders a result.",
    "arange": "Use og.index('dim').",
    "bmm": "Use og.dot(x, y, over='dim').",
    "cat": "Use og.concat(x, y, dim=('a', 'b'), into='c').",
    "clamp": "Use og.min(og.max(x, low), high).",
    "clip": "Use og.min(og.max(x, low), high).",
    "einsum": "Use og.dot(x, y, over='dim').",
    "expand": "Dims that an operand lacks are repeated: leave it out.",
    "flatten": "Use x.merge('a', 'b', into='c').",
    "matmul": "Use og.dot(x, y, over='dim').",
    "maximum": "Use og.max(x, y).",
    "minimum": "Use og.min(x, y).",
    "permute": "Dims go by name, so that nothing is permuted; og.transpose(x, 'b', 'a') orders a result.",
    "relu": "Use og.max(x, 0), or opsgen.ops.relu(x).",
    "reshape": "Use x.split('c', a=..., b=None) or x.merge('a', 'b', into='c').",
    "shape": "Use og.size('dim').",
    "squeeze": "Dims go by name: leave it out.",
    "unsqueeze": "Dims that an operand lacks are repeated: leave it out.",
    "view": "Use x.split('c', a=..., b=None) or x.merge('a', 'b', into='c').",
}
"""By the name in torch or numpy."""


def instead_of(name: str) -> str | None:
    """The fix for a method of a tensor, or a function of opsgen, that does not exist; None where nothing is near."""
    public = sys.modules["opsgen"].__all__
    if name in public:
        return f"It is a function: og.{name}(x, ...)."
    if name in _INSTEAD:
        return _INSTEAD[name]
    near = get_close_matches(name, public, n=1, cutoff=0.75)
    return f"Did you mean og.{near[0]}?" if near else None
