"""numpy arrays, with ml_dtypes' bfloat16 and float8."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from opsgen.runtime.arrays import ArrayInfo, Unusable, array_at
from opsgen.runtime.dtypes import DTYPES
from opsgen.runtime.ffi import from_dlpack, set_dtype_code

Array = np.ndarray[Any, Any]
_SIGNALS_READONLY = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


class NumpyAdapter:
    """np.ndarray and its subclasses (np.memmap, ...); a masked array is refused, for its mask would be ignored."""

    keyed = True

    def describe(self, value: Array) -> ArrayInfo:
        if isinstance(value, np.ma.MaskedArray):
            raise Unusable("a masked array", "a plain one, such as {argument}.filled(0)")
        return describe(value, dtype_name(value.dtype), "numpy")

    def native(self, value: Array) -> Array:
        return value if type(value) is np.ndarray else value.view(np.ndarray)

    def hand_over(self, info: ArrayInfo) -> Callable[[Array], Any] | None:
        return hand_over(info)

    def copy(self, native: Array) -> Array:
        return np.array(native, order="C", copy=True)

    def assign(self, target: Array, source: Array) -> None:
        target[...] = source

    def fresh(self, shape: tuple[int, ...], dtype: str, device: str) -> Callable[[], Array]:
        return partial(np.empty, shape, numpy_dtype(dtype))

    def finish(self, native: Array, dtype: str, like: Any) -> Array:
        return native

    def address(self, native: Array) -> int:
        return int(native.__array_interface__["data"][0])


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Its name in the table of dtypes, or numpy's own for what is not there (big endian, object, text, ...)."""
    return dtype.name if dtype.isnative and dtype.name in DTYPES else str(dtype)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of that name.

    Raises:
        Unusable: numpy has none, and ml_dtypes is not installed.
    """
    if DTYPES[name].native:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise Unusable("missing", f"one, for numpy has no {name} to make it of (pip install ml_dtypes)") from None
    return np.dtype(getattr(ml_dtypes, name))


def describe(array: Array, dtype: str, framework: str) -> ArrayInfo:
    """What ``array`` is, when ``dtype`` is the meaning of its elements."""
    itemsize = array.dtype.itemsize
    flags = array.flags
    whole = itemsize and not any(step % itemsize for step, extent in zip(array.strides, array.shape) if extent != 1)
    strides = tuple(step // itemsize for step in array.strides) if whole else None
    return ArrayInfo(array.shape, strides, dtype, "cpu", framework, flags.writeable, flags.aligned)


def hand_over(info: ArrayInfo) -> Callable[[Array], Any] | None:
    """How an array goes to a launcher: as it is, as an alias that may be read-only, or with its dtype put right."""
    dtype = DTYPES[info.dtype]
    if not dtype.native:
        return partial(export, dtype=info.dtype)
    if info.writeable:
        return None
    return _readonly_signalled if _SIGNALS_READONLY else _writeable_alias


def _readonly_signalled(array: Array) -> Any:
    """A read-only array as a DLPack tensor: numpy exports it only to those who understand the read-only flag."""
    return from_dlpack(array.__dlpack__(max_version=(1, 0)))


def _writeable_alias(array: Array) -> Array:
    """The same for numpy before 2.1, which has no such flag: the same memory under a writeable array."""
    interface = array.__array_interface__
    return array_at(interface["data"][0], array.shape, array.strides, array.dtype.str, keep=array)


def export(array: Array, dtype: str) -> Any:
    """An array of a dtype that numpy cannot export, such as bfloat16, as a DLPack tensor.

    Its bytes are exported as integers of the same size; then the dtype code of the tensor made of that, which is ours
    alone, is set to the right one.
    """
    entry = DTYPES[dtype]
    integers = array.view(entry.raw)
    if not integers.flags.writeable:
        tensor = _readonly_signalled(integers) if _SIGNALS_READONLY else from_dlpack(_writeable_alias(integers))
    else:
        tensor = from_dlpack(integers)
    set_dtype_code(tensor, entry.code)
    return tensor


ADAPTER = NumpyAdapter()
