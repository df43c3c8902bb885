"""The same model in transformers and torch, which tests and benchmarks compare with. The demo does not import this."""

from __future__ import annotations

import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from . import weights


class TorchMiniLM:
    """BertModel with the package's weights, mean pooling and normalisation: what sentence-transformers computes.

    Args:
        dtype: torch.float32, or torch.float64 for a reference whose own rounding does not matter.
    """

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        config = BertConfig.from_json_file(weights.folder() / "config.json")
        self.model = BertModel(config, add_pooling_layer=False)
        loaded = self.model.load_state_dict(load_file(weights.folder() / "model.safetensors"), strict=False)
        if loaded.missing_keys:
            raise RuntimeError(f"the package has no weights for {loaded.missing_keys}")
        self.model = self.model.to(dtype).eval()

    @torch.no_grad()
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors [batch, hidden] of ids [batch, length] and a mask that is 1 at tokens."""
        x = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        counted = mask.unsqueeze(-1).to(x.dtype)
        pooled = (x * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=1)
