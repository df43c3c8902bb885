"""The forward pass of all-MiniLM-L6-v2 as calls of an op library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tokenizer import Ids, Mask, Tokenizer, pad
from .weights import Array, Weights


class MiniLM:
    """A sentence encoder: `encode` gives unit vectors, whose dot product is the similarity of two sentences.

    Its buffers are reused from call to call, so threads need an encoder each. They can share all that it is made of.

    Args:
        library: an op library with the calls below, such as `library.load` gives.
        weights: the model.
        tokenizer: makes ids of sentences; None where only token ids are encoded.
    """

    def __init__(self, library: Any, weights: Weights, tokenizer: Tokenizer | None) -> None:
        self.library = library
        self.weights = weights
        self.tokenizer = tokenizer
        self._memory: dict[str, Array] = {}

    def encode(self, sentences: Sequence[str], batch_size: int = 32) -> Array:
        """The embeddings of sentences: float32 [len(sentences), hidden], each of length 1.

        Raises:
            TypeError: ``sentences`` is a single string.
            ValueError: ``batch_size`` is not positive.
        """
        if isinstance(sentences, str):
            raise TypeError("encode takes a list of sentences, found a str; pass [sentence]")
        return self.encode_tokens(self.tokenizer(sentences), batch_size)

    def encode_tokens(self, tokens: Sequence[Ids], batch_size: int = 32) -> Array:
        """Like `encode`, from token ids. Sentences of like length share a batch, so that little is padded."""
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; wanted at least 1")
        embeddings = np.empty((len(tokens), self.weights.hidden), np.float32)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]), reverse=True)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            embeddings[rows] = self.forward(*pad([tokens[i] for i in rows]))
        return embeddings

    def forward(self, ids: Ids, mask: Mask) -> Array:
        """The embeddings of one batch. The result is a buffer that the next call overwrites.

        Args:
            ids: [batch, length], int64.
            mask: [batch, length], True at tokens and False at padding.
        """
        lib, weights, heads = self.library, self.weights, self.weights.heads
        batch, length = ids.shape
        hidden, width = weights.hidden, weights.layers[0].up.bias.size
        head_dim = hidden // heads

        x = self._buffer("x", batch, length, hidden)
        y = self._buffer("y", batch, length, hidden)
        qkv = self._buffer("qkv", batch, length, 3 * hidden)
        context = self._buffer("context", batch, length, hidden)
        inner = self._buffer("inner", batch, length, width)
        # Views [batch, heads, length, head_dim]: attention reads the fused projection, and writes heads side by side.
        q, k, v = qkv.reshape(batch, length, 3, heads, head_dim).transpose(2, 0, 3, 1, 4)
        context_by_head = context.reshape(batch, length, heads, head_dim).transpose(0, 2, 1, 3)

        tables = (weights.words, weights.positions, weights.token_type)
        lib.bert_embeddings(ids, *tables, *weights.embedding_norm, eps=weights.eps, out=x)
        for layer in weights.layers:
            lib.linear(x, *layer.qkv, out=qkv)
            lib.masked_attention(q, k, v, mask, scale=head_dim**-0.5, out=context_by_head)
            lib.linear(context, *layer.attention_output, residual=x, out=y)
            lib.layer_norm(y, *layer.attention_norm, eps=weights.eps, out=x)
            lib.linear(x, *layer.up, activation="gelu", out=inner)
            lib.linear(inner, *layer.down, residual=x, out=y)
            lib.layer_norm(y, *layer.output_norm, eps=weights.eps, out=x)
        pooled = lib.masked_mean_pool(x, mask, out=self._buffer("pooled", batch, hidden))
        return lib.l2_normalise(pooled, out=self._buffer("embeddings", batch, hidden))

    def _buffer(self, name: str, *shape: int) -> Array:
        """Uninitialised memory of a shape, taken from the largest array of this name so far."""
        size = int(np.prod(shape))
        memory: NDArray[np.float32] | None = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = self._memory[name] = np.empty(size, np.float32)
        return memory[:size].reshape(shape)
