"""The same model in transformers and torch, which tests and benchmarks compare with. The demo does not import this."""

from __future__ import annotations

import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from . import weights

SHAPE = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "layer_norm_eps": 1e-12,
}
"""What the package's config.json says."""


class TorchMiniLM:
    """BertModel with the package's weights, mean pooling and normalisation: what sentence-transformers computes.

    Args:
        dtype: torch.float32, or torch.float64 for a reference whose own rounding does not matter.
        random: a model of the same shape with random weights, for timing where the package is not installed.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, *, random: bool = False) -> None:
        if random:
            torch.manual_seed(0)
            self.model = BertModel(BertConfig(**SHAPE), add_pooling_layer=False)
        else:
            config = BertConfig.from_json_file(weights.folder() / "config.json")
            self.model = BertModel(config, add_pooling_layer=False)
            loaded = self.model.load_state_dict(load_file(weights.folder() / "model.safetensors"), strict=False)
            if loaded.missing_keys:
                raise RuntimeError(f"the package has no weights for {loaded.missing_keys}")
        self.model = self.model.to(dtype).eval()

    def weights(self) -> weights.Weights:
        """Its weights for our encoder."""
        tensors = {name: value.numpy() for name, value in self.model.state_dict().items()}
        return weights.of(tensors, self.model.config.to_dict())

    @torch.no_grad()
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors [batch, hidden] of ids [batch, length] and a mask that is 1 at tokens."""
        x = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        counted = mask.unsqueeze(-1).to(x.dtype)
        pooled = (x * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=1)
