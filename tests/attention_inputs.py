"""Arguments for the attention ops: random tensors, and masks, offsets and page tables as calls have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from opsgen.dsl import Op
from tests import arrays

BLOCK = 16
"""The block_size that block_sparse_attention is tested with."""

SIZES: dict[str, dict[str, int]] = {
    "ones": {"batch": 1, "heads": 1, "kv_heads": 1, "queries": 1, "keys": 1, "head_dim": 1, "value_dim": 1},
    "more queries than keys": {"queries": 8, "keys": 5},
    "9 heads on 3": {"heads": 9, "kv_heads": 3, "queries": 5, "keys": 5, "head_dim": 64, "value_dim": 64},
    "12 heads on 2": {"batch": 1, "heads": 12, "kv_heads": 2, "queries": 1, "keys": 4096, "head_dim": 16},
    **{f"7 heads on 1, {n} queries": {"heads": 7, "kv_heads": 1, "queries": n, "keys": 37} for n in (1, 2, 3, 4)},
    "8 queries": {"heads": 4, "kv_heads": 2, "queries": 8, "keys": 70, "head_dim": 32, "value_dim": 48},
    "fewer keys than a tile": {"queries": 1, "keys": 16, "head_dim": 64, "value_dim": 64},
    **{
        f"width {d}": {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 3, "keys": 19, "head_dim": d, "value_dim": v}
        for d, v in ((8, 8), (40, 24), (96, 96), (192, 128), (256, 256), (7, 65))
    },
    **{
        f"length {n}": {"batch": 1, "heads": 2, "kv_heads": 1, "queries": n, "keys": n, "window": w}
        for n, w in ((129, 16), (257, 64))
    },
    "129 queries of 257": {"batch": 1, "heads": 1, "kv_heads": 1, "queries": 129, "keys": 257, "window": 130},
    "no queries": {"queries": 0, "keys": 3},
    "no keys": {"queries": 3, "keys": 0},
    "no batch": {"batch": 0},
    "no heads": {"heads": 0, "kv_heads": 0},
    "no width": {"head_dim": 0, "value_dim": 2},
    "no values": {"head_dim": 2, "value_dim": 0},
}
"""Sizes by name; dims left out have those of `_USUAL`."""

_USUAL = {"batch": 2, "heads": 6, "kv_heads": 3, "queries": 5, "keys": 11, "head_dim": 8, "value_dim": 8}
_SEQUENCES = 4
_PAGE = 4


def offsets(rng: np.random.Generator, total: int) -> Any:
    """Where four sequences start and end, one of them empty."""
    cuts = np.sort(rng.integers(0, total + 1, _SEQUENCES - 2))
    return np.r_[0, cuts, cuts[-1], total]


def arguments(op: Op, sizes: dict[str, int], dtype: str = "float64", integers: str = "int64") -> dict[str, Any]:
    """A call of an attention op: every second row of a mask is False throughout, pages hold NaN past the lengths."""
    rng = np.random.default_rng(list(sizes.values()))
    s = {**_USUAL, "window": 3, **sizes}
    max_pages = -(-s["keys"] // _PAGE)
    s |= {"offsets": _SEQUENCES + 1, "page_size": _PAGE, "max_pages": max_pages, "pages": s["batch"] * max_pages + 1}
    s |= {"query_blocks": -(-s["queries"] // BLOCK), "key_blocks": -(-s["keys"] // BLOCK)}
    given: dict[str, Any] = {}
    for p in op.parameters:
        if p.role == "scalar":
            known = {"scale": max(s["head_dim"], 1) ** -0.5, "window": float(s["window"]), "cap": 2.0}
            given[p.name] = known[p.name]
        elif p.spec is not None:
            shape = tuple(s[d] for d in p.spec.named)
            given[p.name] = _tensor(rng, p.name, shape, s, dtype)
    if "page_table" in given:
        given["page_table"] = rng.permutation(s["pages"])[: s["batch"] * max_pages].reshape(s["batch"], max_pages)
        given["lengths"] = rng.integers(0, max_pages * _PAGE + 1, s["batch"])
        for name in ("k_pages", "v_pages"):
            _spoil(given[name], given["page_table"], given["lengths"])
    return {n: x.astype(integers) if isinstance(x, np.ndarray) and x.dtype.kind == "i" else x for n, x in given.items()}


def _tensor(rng: np.random.Generator, name: str, shape: tuple[int, ...], s: dict[str, int], dtype: str) -> Any:
    if name in ("mask", "block_mask"):
        mask = rng.random(shape) < 0.6
        mask[..., 1::2, :] = False
        return mask
    if name == "bias":
        bias = arrays.values(rng, shape, dtype)
        bias[rng.random(shape) < 0.3] = -np.inf
        bias[..., 1::2, :] = -np.inf
        return bias
    if name == "slopes":
        return (2.0 ** -np.arange(shape[0])).astype("float32")
    if name == "document":
        return np.sort(rng.integers(0, 3, shape), axis=-1)
    if name in ("q_offsets", "k_offsets"):
        return offsets(rng, s["queries" if name == "q_offsets" else "keys"])
    if name in ("page_table", "lengths"):
        return np.zeros(shape, np.int64)
    return arrays.values(rng, shape, dtype)


def _spoil(pages: Any, table: Any, lengths: Any) -> None:
    """NaN wherever no token is: in pages that no sequence has, and past the lengths."""
    there = np.zeros(pages.shape[:2], bool)
    for row, length in zip(table, lengths):
        at = np.arange(length)
        there[row[at // _PAGE], at % _PAGE] = True
    pages[~there] = np.nan
