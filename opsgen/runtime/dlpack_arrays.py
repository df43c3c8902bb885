"""Arrays of any other framework that speaks DLPack, in CPU memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opsgen.runtime import numpy_arrays
from opsgen.runtime.arrays import ArrayInfo, Unusable, array_at
from opsgen.runtime.dtypes import DTYPES
from opsgen.runtime.ffi import Tensor, from_dlpack
from opsgen.runtime.numpy_arrays import Array

_CPU = (1, 3)  # kDLCPU, and kDLCUDAHost: pinned memory of the host
_DEVICES = {
    2: "cuda",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    12: "ext_dev",
    13: "cuda_managed",
    14: "oneapi",
}


class DLPackAdapter:
    """An object with ``__dlpack__``; its native form is a numpy array of the raw bytes' dtype over the same memory."""

    keyed = False

    def describe(self, value: Any) -> ArrayInfo:
        framework = type(value).__module__.partition(".")[0]
        kind, index = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (1, 0)
        tensor, readonly = _import(value)
        name = str(tensor.dtype)
        if int(kind) not in _CPU or name not in DTYPES:
            device = "cpu" if int(kind) in _CPU else f"{_DEVICES.get(int(kind), f'device type {int(kind)}')}:{index}"
            return ArrayInfo(tuple(tensor.shape), tuple(tensor.strides), name, device, framework, not readonly, True)
        return numpy_arrays.describe(_view(tensor, readonly), name, framework)

    def native(self, value: Any) -> Array:
        return _view(*_import(value))

    def hand_over(self, info: ArrayInfo) -> Callable[[Array], Any] | None:
        return numpy_arrays.hand_over(info)

    def copy(self, native: Array) -> Array:
        return numpy_arrays.ADAPTER.copy(native)

    def assign(self, target: Array, source: Array) -> None:
        target[...] = source

    def fresh(self, shape: tuple[int, ...], dtype: str, device: str) -> Callable[[], Array]:
        return lambda: np.empty(shape, DTYPES[dtype].raw)

    def finish(self, native: Array, dtype: str, like: Any) -> Any:
        """By the argument's own namespace where it has one, else a numpy array."""
        if hasattr(like, "__array_namespace__"):
            exported = native if DTYPES[dtype].native else numpy_arrays.export(native, dtype)
            return like.__array_namespace__().from_dlpack(exported)
        return native if DTYPES[dtype].native else native.view(numpy_arrays.numpy_dtype(dtype))

    def address(self, native: Array) -> int:
        return numpy_arrays.ADAPTER.address(native)


def _import(value: Any) -> tuple[Any, bool]:
    """A tensor over the memory of ``value``, and whether that is read-only."""
    if isinstance(value, Tensor):
        return value, False
    try:
        try:
            return from_dlpack(value), False
        except BufferError:  # the plain form cannot say "read-only"; the versioned one can
            return from_dlpack(value.__dlpack__(max_version=(1, 0))), True
    except Exception as problem:
        raise Unusable(f"an array that cannot be exported by DLPack ({problem})", "a plain array") from None


def _view(tensor: Any, readonly: bool) -> Array:
    """A numpy array over the memory of a tensor in CPU memory, of the dtype that carries its bytes."""
    dtype = DTYPES[str(tensor.dtype)]
    shape = tuple(tensor.shape)
    if 0 in shape:
        return np.empty(shape, dtype.raw)
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
    return array_at(tensor.data_ptr(), shape, strides, np.dtype(dtype.raw).str, keep=tensor, readonly=readonly)


ADAPTER = DLPackAdapter()
