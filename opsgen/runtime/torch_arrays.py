"""torch tensors. Imported only once torch is loaded, and the first tensor seen.

There is no autograd here: a tensor that requires grad is read as its plain values, and the result has no history.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from opsgen.runtime.arrays import ArrayInfo, Unusable
from opsgen.runtime.dtypes import DTYPES

torch: Any = sys.modules["torch"]


class TorchAdapter:
    """torch.Tensor and its subclasses, on any device."""

    keyed = True

    def describe(self, value: Any) -> ArrayInfo:
        if value.device.type == "meta":
            raise Unusable("a meta tensor, which has no memory", "a tensor with values")
        if value.layout is not torch.strided:
            raise Unusable(f"a tensor of layout {value.layout}", "a dense one, such as {argument}.to_dense()")
        if value.is_quantized:
            raise Unusable("a quantized tensor", "a plain one, such as {argument}.dequantize()")
        if value.is_conj():
            raise Unusable("a conjugate view", "its values, as {argument}.resolve_conj() gives them")
        if value.is_neg():
            raise Unusable("a negated view", "its values, as {argument}.resolve_neg() gives them")
        try:
            address = value.data_ptr()
        except RuntimeError:
            address = 0
        if address == 0 and value.numel():
            raise Unusable("a tensor without memory (fake or functional)", "a tensor with values")
        name = str(value.dtype).removeprefix("torch.")
        size = DTYPES[name].itemsize if name in DTYPES else 1
        aligned = address % size == 0
        shape, strides = tuple(value.shape), tuple(value.stride())
        return ArrayInfo(shape, strides, name, str(value.device), "torch", True, aligned, value.requires_grad)

    def native(self, value: Any) -> Any:
        return value

    def hand_over(self, info: ArrayInfo) -> Callable[[Any], Any] | None:
        return None

    def copy(self, native: Any) -> Any:
        return native.detach().clone(memory_format=torch.contiguous_format)

    def assign(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def fresh(self, shape: tuple[int, ...], dtype: str, device: str) -> Callable[[], Any]:
        return partial(torch.empty, shape, dtype=getattr(torch, dtype), device=device)

    def finish(self, native: Any, dtype: str, like: Any) -> Any:
        return native

    def address(self, native: Any) -> int:
        return int(native.data_ptr())


ADAPTER = TorchAdapter()
