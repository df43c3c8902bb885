"""Arrays of any framework, seen alike: numpy, torch, and whatever else speaks DLPack.

An `Adapter` knows one framework. It describes a value, hands it to a launcher, copies it and makes new ones. "Native"
below is what the adapter works on inside: a plain numpy array for numpy and foreign arrays, a torch.Tensor for torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from opsgen.errors import error


class PackedForm(NamedTuple):
    """How a weight is packed, and the size of the buffer that it is in."""

    layout: str
    nbytes: int


class ArrayInfo(NamedTuple):
    """What dispatch needs to know of one array. Hashable, and without the array's address.

    Attributes:
        shape: sizes.
        strides: in elements; None where they are not whole elements, which only a copy repairs.
        dtype: its name, as in `opsgen.runtime.dtypes.DTYPES`, or the framework's own for a dtype that is not there.
        device: ``"cpu"``, ``"cuda:0"``, ...
        framework: ``"numpy"``, ``"torch"`` or the name of the module that the array comes from.
        writeable: whether memory may be written through it.
        aligned: whether its address is a multiple of the element's size.
        grad: a torch tensor that requires grad.
        packed: of a `opsgen.runtime.packed.Packed`, which the rest describes as it was before.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device: str
    framework: str
    writeable: bool
    aligned: bool
    grad: bool = False
    packed: PackedForm | None = None


class Adapter(Protocol):
    """One framework."""

    keyed: bool
    """Whether exact instances of the framework's array type take the fast path, and need no `native`."""

    def describe(self, value: Any) -> ArrayInfo:
        """What ``value`` is. Raises `Unusable` where it has no memory to work on."""

    def native(self, value: Any) -> Any:
        """``value`` as this adapter works on it; shares memory."""

    def hand_over(self, info: ArrayInfo) -> Callable[[Any], Any] | None:
        """How a native array like ``info`` goes to a launcher; None: as it is."""

    def copy(self, native: Any) -> Any:
        """A contiguous, aligned, writeable copy."""

    def assign(self, target: Any, source: Any) -> None:
        """Copy ``source`` into ``target``, element by element."""

    def fresh(self, shape: tuple[int, ...], dtype: str, device: str) -> Callable[[], Any]:
        """A function that makes an uninitialised native array."""

    def finish(self, native: Any, dtype: str, like: Any) -> Any:
        """A new native array as the user gets it, where ``like`` is one of his arguments (None: there is none)."""

    def address(self, native: Any) -> int:
        """Of the first element."""


class Unusable(Exception):
    """A value that is no array, or one without usable memory: ``found``, and what was ``wanted`` instead."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found)
        self.found = found
        self.wanted = wanted


def adapter_of(value: Any) -> Adapter:
    """The adapter for ``value``.

    Raises:
        Unusable: it is not an array of any framework.
    """
    from opsgen.runtime import dlpack_arrays, numpy_arrays

    if isinstance(value, np.ndarray):
        return numpy_arrays.ADAPTER
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        from opsgen.runtime import torch_arrays

        return torch_arrays.ADAPTER
    if isinstance(value, (bool, int, float, complex, np.generic)):
        raise Unusable(f"the number {value!r}", "an array (numpy, torch or DLPack), such as np.asarray({argument})")
    if isinstance(value, (list, tuple)):
        found = f"a {type(value).__name__}"
        raise Unusable(found, "an array (numpy, torch or DLPack), such as np.asarray({argument}, dtype=...)")
    if hasattr(type(value), "__dlpack__"):
        return dlpack_arrays.ADAPTER
    found = "None" if value is None else f"of type {type(value).__qualname__}"
    raise Unusable(found, "an array (numpy, torch or DLPack)")


def describe(op: str, argument: str, value: Any) -> tuple[Adapter, ArrayInfo]:
    """The adapter of ``value`` and what it is.

    Raises:
        CallError: E4017, it is not an array, or one without memory.
    """
    try:
        adapter = adapter_of(value)
        return adapter, adapter.describe(value)
    except Unusable as problem:
        wanted = problem.wanted.replace("{argument}", argument)
        raise error("E4017", op=op, argument=argument, found=problem.found, wanted=wanted) from None


def memory_of(adapter: Adapter, native: Any, info: ArrayInfo, itemsize: int) -> np.ndarray[Any, Any]:
    """A numpy array of ``info``'s layout at the address of ``native``, for comparing addresses; never to be read."""
    if 0 in info.shape:
        return np.empty(0, np.uint8)
    if info.strides is None:  # numpy only: its own byte strides
        strides: tuple[int, ...] = native.strides
    else:
        strides = tuple(stride * itemsize for stride in info.strides)
    return array_at(adapter.address(native), info.shape, strides, f"|V{itemsize}", keep=native)


class _Memory:
    """Bare memory in the form of numpy's array interface."""

    def __init__(self, interface: dict[str, Any], keep: Any) -> None:
        self.__array_interface__ = interface
        self.keep = keep


def array_at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str, keep: Any, readonly: bool = False
) -> np.ndarray[Any, Any]:
    """A numpy array over bare memory, which ``keep`` keeps alive. Strides are in bytes."""
    interface = {"version": 3, "data": (address, readonly), "shape": shape, "strides": strides, "typestr": typestr}
    return np.asarray(_Memory(interface, keep))
