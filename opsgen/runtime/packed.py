"""A weight packed once: `Library.pack` makes it, a file keeps it, and a call takes it in place of the array.

docs/library-format.md, "Packed weights", describes the bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, BinaryIO, Final, final

import numpy as np

from opsgen.errors import CallError, OpsgenError, error
from opsgen.runtime import library_file
from opsgen.runtime.arrays import ArrayInfo, PackedForm
from opsgen.runtime.dtypes import DTYPES
from opsgen.runtime.ffi import from_dlpack
from opsgen.runtime.numpy_arrays import Array, NumpyAdapter

_MAGIC: Final = b"OPSGENPK"
_VERSION: Final = 1
MOST_DIMS: Final = 8
_ALIGNMENT: Final = 64
# magic, version, number of dims, shape, digest of the layout, bytes of elements, bytes of information, CRC-32
_HEADER: Final = struct.Struct("<8sII8q32sQII")
_CHECKED: Final = _HEADER.size - 4  # what the CRC-32 is of, with the information
_INFORMATION: Final = ("op", "parameter", "layout", "dtype")
_LONGEST_INFORMATION: Final = 1 << 16


class Kind:
    """What calls tell packed weights apart by: one object for all that are alike, so that comparing takes no time.

    ``info`` describes the weight before it was packed.
    """

    __slots__ = ("info",)

    def __init__(self, info: ArrayInfo) -> None:
        self.info = info


@lru_cache(maxsize=4096)
def _kind(layout: str, shape: tuple[int, ...], dtype: str, nbytes: int) -> Kind:
    return Kind(ArrayInfo(shape, None, dtype, "cpu", "packed", False, True, packed=PackedForm(layout, nbytes)))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Packed:
    """A packed weight. It does not change, so threads and libraries can share it; it goes with numpy and torch alike.

    Made by ``lib.pack("linear.weight", w)``, `from_bytes` and `load`. A kernel takes it if it has the kernel's layout,
    whichever op it was packed for.

    Attributes:
        op, parameter: what it was packed for.
        layout: names the order of its elements exactly, instruction set included.
        shape, dtype: of the weight before it was packed.
        buffer: header and elements: uint8, read-only, at an address that is a multiple of 64.
        kind, tensor: for the runtime: what its calls are planned by, and ``buffer`` as launchers take it.
    """

    op: str
    parameter: str
    layout: str
    shape: tuple[int, ...]
    dtype: str
    buffer: Array
    kind: Kind = field(init=False)
    tensor: Any = field(init=False)

    def __post_init__(self) -> None:
        memory = self.buffer
        shown = memory.view()
        shown.flags.writeable = False
        object.__setattr__(self, "buffer", shown)
        object.__setattr__(self, "tensor", from_dlpack(memory))
        object.__setattr__(self, "kind", _kind(self.layout, self.shape, self.dtype, memory.size))

    @property
    def nbytes(self) -> int:
        """Size of the buffer."""
        return self.buffer.size

    def tobytes(self) -> bytes:
        """Header, elements, and what it was packed for; `from_bytes` makes an equal weight of it."""
        return b"".join((self.buffer.data, self._information()))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Packed:
        """The packed weight that `tobytes` gave ``data`` for.

        Raises:
            CallError: E4019, it is no packed weight, of another version, cut short or changed. (That the elements are
                the same is not checked.)
        """
        return _read(io.BytesIO(data), memoryview(data).nbytes, "Packed.from_bytes", "data")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `tobytes` to ``path``, which appears whole or not at all.

        Raises:
            CompileError: E3006, it cannot be written.
            ResourceError: E6003, the disk is full.
        """
        library_file.write_bytes(path, self.buffer.data, self._information())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Packed:
        """The packed weight in the file ``path``.

        Raises:
            CallError: E4021, it cannot be opened; E4019, as for `from_bytes`.
        """
        name = library_file.path_text(path)
        try:
            with open(name, "rb") as file:
                return _read(file, os.fstat(file.fileno()).st_size, "Packed.load", name)
        except CallError:  # a ValueError too
            raise
        except OSError as problem:
            raise error("E4021", path=name, found=problem.strerror or problem) from None
        except ValueError as problem:  # a null byte in the path
            raise error("E4021", path=repr(name), found=problem) from None

    def __reduce__(self) -> tuple[Callable[[bytes], Packed], tuple[bytes]]:
        return Packed.from_bytes, (self.tobytes(),)

    def __copy__(self) -> Packed:
        return self

    def __deepcopy__(self, memo: object) -> Packed:
        return self

    def __repr__(self) -> str:
        made_for = f"{self.op}.{self.parameter}"
        return f"<opsgen.Packed {made_for} {self.dtype}{list(self.shape)} as {self.layout}, {self.nbytes:,} bytes>"

    def _information(self) -> bytes:
        return _information(self.op, self.parameter, self.layout, self.dtype)


class PackedAdapter(NumpyAdapter):
    """Packed weights, whose memory is numpy's. Native is `Packed.tensor`, which an op's function has put in already."""

    def describe(self, value: Packed) -> ArrayInfo:  # type: ignore[override]
        return value.kind.info

    def native(self, value: Any) -> Any:
        return value

    def hand_over(self, info: ArrayInfo) -> None:
        return None

    def address(self, native: Any) -> int:
        return int(native.data_ptr())


ADAPTER = PackedAdapter()


class Packer:
    """Packs weights that are alike: of one shape and dtype, for one parameter, into one layout.

    Args:
        launch: the launcher that packs.
        nbytes: size of the packed weight, header included.
    """

    def __init__(
        self,
        launch: Callable[..., None],
        op: str,
        parameter: str,
        layout: str,
        shape: tuple[int, ...],
        dtype: str,
        nbytes: int,
    ) -> None:
        self._launch = launch
        self._made_for = (op, parameter, layout)
        self._shape, self._dtype = shape, dtype
        self._nbytes = nbytes
        elements = nbytes - _HEADER.size
        self._header = _header(shape, layout, elements, _information(op, parameter, layout, dtype))

    def memory(self, native: Any) -> Array:
        """Header and elements for ``native``, an array whose strides launchers take, as they take it."""
        memory = _aligned(self._nbytes)
        memory[: _HEADER.size] = np.frombuffer(self._header, np.uint8)
        self._launch(0, native, from_dlpack(memory))
        return memory

    def pack(self, native: Any) -> Packed:
        """The packed weight of ``native``."""
        return Packed(*self._made_for, self._shape, self._dtype, self.memory(native))


def _aligned(nbytes: int) -> Array:
    """Zeros: where a weight has no elements nothing is written, and what is saved must not be chance."""
    memory = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes]


def _information(op: str, parameter: str, layout: str, dtype: str) -> bytes:
    return json.dumps(dict(zip(_INFORMATION, (op, parameter, layout, dtype)))).encode()


def _digest(layout: str) -> bytes:
    return hashlib.sha256(layout.encode()).digest()


def _header(shape: tuple[int, ...], layout: str, elements: int, information: bytes) -> bytes:
    padded = (*shape, *(0,) * (MOST_DIMS - len(shape)))
    fields = (_MAGIC, _VERSION, len(shape), *padded, _digest(layout), elements, len(information))
    start = _HEADER.pack(*fields, 0)[:_CHECKED]
    return start + struct.pack("<I", zlib.crc32(information, zlib.crc32(start)))


def _read(file: BinaryIO, length: int, op: str, argument: str) -> Packed:
    """The packed weight in ``file``, which has ``length`` bytes: no more memory is taken, whatever the header says."""

    def wrong(found: str, wanted: str) -> OpsgenError:
        return error("E4019", op=op, argument=argument, found=found, wanted=wanted)

    header = file.read(_HEADER.size)
    if header[: len(_MAGIC)] != _MAGIC:
        raise wrong(f"it starts with {header[: len(_MAGIC)]!r}", f"{_MAGIC!r}, as a packed weight does")
    if len(header) < _HEADER.size:
        raise wrong(f"it is cut short at {len(header)} bytes", f"a header of {_HEADER.size}")
    _, version, dims, *rest = _HEADER.unpack(header)
    shape, (digest, elements, tail, crc) = rest[:MOST_DIMS], rest[MOST_DIMS:]
    if version != _VERSION:
        raise wrong(f"version {version}", f"version {_VERSION}")
    if tail <= _LONGEST_INFORMATION and length < _HEADER.size + elements + tail:
        raise wrong(f"it is cut short at {length} bytes", f"{_HEADER.size + elements + tail}, as its header says")
    if length != _HEADER.size + elements + tail or dims > MOST_DIMS:
        raise wrong(f"its header does not fit its {length} bytes", "one that is whole")
    memory = _aligned(_HEADER.size + elements)
    memory[: _HEADER.size] = np.frombuffer(header, np.uint8)
    _fill(file, memory.data[_HEADER.size :])
    information = file.read(tail)
    if crc != zlib.crc32(information, zlib.crc32(header[:_CHECKED])):
        raise wrong("its header has changed since it was written", "one that is whole")
    made_for = _parse(information)
    sound = made_for and _digest(made_for["layout"]) == digest and made_for["dtype"] in DTYPES
    if not (made_for and sound and all(size >= 0 for size in shape) and prod(shape[:dims]) < 1 << 63):
        raise wrong("its header contradicts itself", "one that this version of opsgen wrote")
    return Packed(**made_for, shape=tuple(shape[:dims]), buffer=memory)


def _fill(file: BinaryIO, target: memoryview) -> None:
    """Read bytes until ``target`` is full; less is left where the file ends early, and the CRC-32 finds that out."""
    while target.nbytes:
        count = file.readinto(target)  # type: ignore[attr-defined]  # of every binary file; typeshed leaves it out
        if not count:
            return
        target = target[count:]


def _parse(information: bytes) -> dict[str, str] | None:
    try:
        found = json.loads(information)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or set(found) != set(_INFORMATION):
        return None
    return found if all(isinstance(value, str) for value in found.values()) else None
