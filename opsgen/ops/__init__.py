"""The standard Transformer operators, one a file: ``from opsgen.ops import rms_norm`` gives the op.

`flex_attention` makes an op: it takes functions that say which.

A file is imported when its op is first asked for; importing this package imports none of them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..dsl import Op
    from .abs_percentile import abs_percentile
    from .absmax import absmax
    from .add import add
    from .add_layer_norm import add_layer_norm
    from .add_rms_norm import add_rms_norm
    from .alibi_attention import alibi_attention
    from .argmax import argmax
    from .attention import attention
    from .avg_pool_2d import avg_pool_2d
    from .batch_norm import batch_norm
    from .bert_embedding import bert_embedding
    from .block_sparse_attention import block_sparse_attention
    from .causal_attention import causal_attention
    from .cls_pool import cls_pool
    from .cross_entropy import cross_entropy
    from .cumulative_sum import cumulative_sum
    from .dequantize_int8 import dequantize_int8
    from .dequantize_int8_channels import dequantize_int8_channels
    from .dequantize_int8_groups import dequantize_int8_groups
    from .dequantize_int8_rows import dequantize_int8_rows
    from .dropout import dropout
    from .dynamic_quantize_int8 import dynamic_quantize_int8
    from .elu import elu
    from .embedding import embedding
    from .flex_attention import flex_attention
    from .fp8_linear import fp8_linear
    from .gated_linear import gated_linear
    from .gather import gather
    from .geglu import geglu
    from .gelu import gelu
    from .group_norm import group_norm
    from .grouped_linear import grouped_linear
    from .hard_sigmoid import hard_sigmoid
    from .hard_swish import hard_swish
    from .int8_linear import int8_linear
    from .kv_cache_append import kv_cache_append
    from .l2_normalize import l2_normalize
    from .last_token_pool import last_token_pool
    from .layer_norm import layer_norm
    from .layer_norm_gelu import layer_norm_gelu
    from .layer_scale import layer_scale
    from .leaky_relu import leaky_relu
    from .linear import linear
    from .log_softmax import log_softmax
    from .masked_attention import masked_attention
    from .masked_max_pool import masked_max_pool
    from .masked_mean_pool import masked_mean_pool
    from .moe_capacity_router import moe_capacity_router
    from .moe_combine import moe_combine
    from .moe_router import moe_router
    from .mul import mul
    from .one_hot import one_hot
    from .packed_qkv_projection import packed_qkv_projection
    from .paged_attention import paged_attention
    from .patch_embedding import patch_embedding
    from .position_embedding import position_embedding
    from .qkv_projection import qkv_projection
    from .quantize_int8 import quantize_int8
    from .quantize_int8_channels import quantize_int8_channels
    from .quantize_int8_groups import quantize_int8_groups
    from .quantize_int8_rows import quantize_int8_rows
    from .reglu import reglu
    from .relu import relu
    from .residual_scale import residual_scale
    from .rms_norm import rms_norm
    from .rms_norm_silu import rms_norm_silu
    from .rope import rope
    from .rope_from_frequencies import rope_from_frequencies
    from .sample_logits import sample_logits
    from .scaled_dot_product_attention import scaled_dot_product_attention
    from .scatter_add import scatter_add
    from .sigmoid import sigmoid
    from .silu import silu
    from .sliding_window_attention import sliding_window_attention
    from .softcap_attention import softcap_attention
    from .softmax import softmax
    from .softplus import softplus
    from .swiglu import swiglu
    from .table_lookup import table_lookup
    from .tanh import tanh
    from .top_k import top_k
    from .varlen_attention import varlen_attention

__all__ = [
    "abs_percentile",
    "absmax",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "alibi_attention",
    "all_ops",
    "argmax",
    "attention",
    "avg_pool_2d",
    "batch_norm",
    "bert_embedding",
    "block_sparse_attention",
    "causal_attention",
    "cls_pool",
    "cross_entropy",
    "cumulative_sum",
    "dequantize_int8",
    "dequantize_int8_channels",
    "dequantize_int8_groups",
    "dequantize_int8_rows",
    "dropout",
    "dynamic_quantize_int8",
    "elu",
    "embedding",
    "flex_attention",
    "fp8_linear",
    "gated_linear",
    "gather",
    "geglu",
    "gelu",
    "group_norm",
    "grouped_linear",
    "hard_sigmoid",
    "hard_swish",
    "int8_linear",
    "kv_cache_append",
    "l2_normalize",
    "last_token_pool",
    "layer_norm",
    "layer_norm_gelu",
    "layer_scale",
    "leaky_relu",
    "linear",
    "log_softmax",
    "masked_attention",
    "masked_max_pool",
    "masked_mean_pool",
    "moe_capacity_router",
    "moe_combine",
    "moe_router",
    "mul",
    "one_hot",
    "packed_qkv_projection",
    "paged_attention",
    "patch_embedding",
    "position_embedding",
    "qkv_projection",
    "quantize_int8",
    "quantize_int8_channels",
    "quantize_int8_groups",
    "quantize_int8_rows",
    "reglu",
    "relu",
    "residual_scale",
    "rms_norm",
    "rms_norm_silu",
    "rope",
    "rope_from_frequencies",
    "sample_logits",
    "scaled_dot_product_attention",
    "scatter_add",
    "sigmoid",
    "silu",
    "sliding_window_attention",
    "softcap_attention",
    "softmax",
    "softplus",
    "swiglu",
    "table_lookup",
    "tanh",
    "top_k",
    "varlen_attention",
]

_NAMES = tuple(name for name in __all__ if name != "all_ops")
_BUILDERS = ("flex_attention",)


class _OpsPackage(ModuleType):
    """A package whose attribute ``rms_norm`` is the op, not the module of the same name that defines it.

    Python binds a submodule to its package once the submodule is imported, by whomever. Here the op takes that place.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NAMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _OpsPackage


def all_ops() -> dict[str, Op]:
    """Every standard op by name; imports the files of all."""
    return {name: __getattr__(name) for name in _NAMES if name not in _BUILDERS}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module(f"{__name__}.{name}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
