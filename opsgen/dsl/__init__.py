"""Describe: named dims, tensor annotations, ``@op`` and the functions of the language. Imports no TVM."""

from . import functions as functions  # gives tensors their methods
from .dtypes import (
    bfloat16,
    bool_,
    float8,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    floating,
    int8,
    int16,
    int32,
    int64,
    integer,
    uint8,
)
from .op import Graph, Op, Results, Workload, op, results
from .tensor import Mut, Tensor

__all__ = [
    "Graph",
    "Mut",
    "Op",
    "Results",
    "Tensor",
    "Workload",
    "bfloat16",
    "bool_",
    "float8",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "floating",
    "int8",
    "int16",
    "int32",
    "int64",
    "integer",
    "op",
    "results",
    "uint8",
]  # fmt: skip
