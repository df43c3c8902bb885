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
    from .add import add
    from .add_layer_norm import add_layer_norm
    from .add_rms_norm import add_rms_norm
    from .alibi_attention import alibi_attention
    from .attention import attention
    from .block_sparse_attention import block_sparse_attention
    from .causal_attention import causal_attention
    from .cross_entropy import cross_entropy
    from .cumulative_sum import cumulative_sum
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
    from .layer_norm import layer_norm
    from .layer_scale import layer_scale
    from .leaky_relu import leaky_relu
    from .linear import linear
    from .log_softmax import log_softmax
    from .masked_attention import masked_attention
    from .masked_mean_pool import masked_mean_pool
    from .mul import mul
    from .one_hot import one_hot
    from .paged_attention import paged_attention
    from .reglu import reglu
    from .relu import relu
    from .residual_scale import residual_scale
    from .rms_norm import rms_norm
    from .scaled_dot_product_attention import scaled_dot_product_attention
    from .scatter_add import scatter_add
    from .sigmoid import sigmoid
    from .silu import silu
    from .sliding_window_attention import sliding_window_attention
    from .softcap_attention import softcap_attention
    from .softmax import softmax
    from .softplus import softplus
    from .swiglu import swiglu
    from .tanh import tanh
    from .varlen_attention import varlen_attention

__all__ = [
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "alibi_attention",
    "all_ops",
    "attention",
    "block_sparse_attention",
    "causal_attention",
    "cross_entropy",
    "cumulative_sum",
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
    "layer_norm",
    "layer_scale",
    "leaky_relu",
    "linear",
    "log_softmax",
    "masked_attention",
    "masked_mean_pool",
    "mul",
    "one_hot",
    "paged_attention",
    "reglu",
    "relu",
    "residual_scale",
    "rms_norm",
    "scaled_dot_product_attention",
    "scatter_add",
    "sigmoid",
    "silu",
    "sliding_window_attention",
    "softcap_attention",
    "softmax",
    "softplus",
    "swiglu",
    "tanh",
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
