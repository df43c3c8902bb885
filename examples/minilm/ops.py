"""Operators that this model needs beyond the library's, described here and compiled beside them."""

import opsgen as og
from opsgen import ops


@og.op
def bert_embeddings(
    ids: og.Tensor["batch", "length", og.integer],
    words: og.Tensor["vocab", "hidden"],
    positions: og.Tensor["positions", "hidden"],
    token_type: og.Tensor["hidden"],
    weight: og.Tensor["hidden"],
    bias: og.Tensor["hidden"],
    *,
    eps: float = 1e-12,
) -> og.Tensor:
    """y = layer_norm(words[ids] + positions[0, 1, …] + token_type): BERT's embeddings, for tokens of one type."""
    og.require("length <= positions", "the model has no embedding for a position that far")
    x = ops.embedding(ids, words) + positions.at(positions=og.index("length")) + token_type
    return ops.layer_norm(x, weight, bias, eps=eps)


@og.op
def l2_normalise(x: og.Tensor["...", "hidden"], *, eps: float = 1e-12) -> og.Tensor:
    """y = x / max(|x|, eps), as torch.nn.functional.normalize does it."""
    return x / og.max(og.sqrt(og.sum(x * x, over="hidden")), eps)
