"""Sentences to token ids, and lists of ids to a padded batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tokenizers
from numpy.typing import NDArray

from . import weights

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Tokenizer:
    """The model's WordPiece tokenizer. Longer sentences are cut to ``limit`` tokens, as its makers do.

    Raises:
        ModelError: see `weights.read`.
    """

    def __init__(self) -> None:
        self.limit: int = weights.config("sentence_bert_config.json")["max_seq_length"]
        self._tokenizer = tokenizers.Tokenizer.from_str(weights.read("tokenizer.json").decode("utf-8"))
        self._tokenizer.enable_truncation(self.limit)  # the file says 128, for training
        self._tokenizer.no_padding()  # sentences are sorted by length first: see `pad`

    def __call__(self, sentences: Sequence[str]) -> list[Ids]:
        """The ids of each sentence, [CLS] and [SEP] included: at least two, at most ``limit``."""
        encoded = self._tokenizer.encode_batch(list(sentences))
        return [np.asarray(e.ids, np.int64) for e in encoded]


def pad(tokens: Sequence[Ids]) -> tuple[Ids, Mask]:
    """Ids [batch, length] and a mask that is True at tokens; [PAD] is 0."""
    length = max(len(ids) for ids in tokens)
    padded = np.zeros((len(tokens), length), np.int64)
    mask = np.zeros((len(tokens), length), np.bool_)
    for row, ids in enumerate(tokens):
        padded[row, : len(ids)] = ids
        mask[row, : len(ids)] = True
    return padded, mask
