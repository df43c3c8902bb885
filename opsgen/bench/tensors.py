"""Arrays for measuring, of numpy or of torch on a device: made, read back, and copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import error
from ..runtime.arrays import Unusable
from ..runtime.dtypes import DTYPES
from ..runtime.numpy_arrays import numpy_dtype

Positions = Mapping[int, NDArray[np.int64]]
"""Positions by axis; an axis that is not there is whole."""


class Tensors(Protocol):
    """One framework on one device."""

    device: str
    torch: Any
    """The module, or None."""

    def normal(self, shape: tuple[int, ...], dtype: str) -> Any:
        """N(0, 1), rounded to ``dtype``."""

    def put(self, values: NDArray[Any], dtype: str) -> Any:
        """Given values, integers or bools."""

    def integers(self, least: int, below: int, shape: tuple[int, ...], dtype: str) -> Any:
        """Uniform in [least, below)."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory for a result."""

    def read(self, x: Any, positions: Positions) -> NDArray[Any]:
        """Elements as float64, or as the integers or bools that they are."""

    def double(self, x: Any) -> Any:
        """In float64 if it is floating."""

    def clone(self, x: Any) -> Any:
        """The same values elsewhere."""

    def copy_call(self, nbytes: int) -> Callable[[], Any]:
        """A call that reads and writes ``nbytes`` together."""

    def free_bytes(self) -> int:
        """Of the device's memory."""


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    """Of an array."""
    return prod(shape) * DTYPES[dtype].itemsize


class NumpyTensors:
    """numpy, in this machine's memory."""

    device = "cpu"
    torch = None

    def __init__(self, seed: int | Sequence[int] = 0) -> None:
        self.random = np.random.default_rng(seed)

    def _dtype(self, name: str) -> Any:
        try:
            return numpy_dtype(name)
        except Unusable:
            raise error(
                "E2007", what=f"{name} arrays", package="torch or ml_dtypes", found="neither is there"
            ) from None

    def normal(self, shape: tuple[int, ...], dtype: str) -> Any:
        kind = np.float64 if dtype == "float64" else np.float32
        return self.random.standard_normal(shape, kind).astype(self._dtype(dtype))

    def put(self, values: NDArray[Any], dtype: str) -> Any:
        return np.array(values, self._dtype(dtype))

    def integers(self, least: int, below: int, shape: tuple[int, ...], dtype: str) -> Any:
        return self.random.integers(least, below, shape).astype(self._dtype(dtype))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, self._dtype(dtype))

    def read(self, x: Any, positions: Positions) -> NDArray[Any]:
        for axis, at in positions.items():
            x = np.take(x, at, axis)
        floating = x.dtype.kind not in "iub"  # ml_dtypes' types are of kind V
        return x.astype(np.float64) if floating else np.array(x)

    def double(self, x: Any) -> Any:
        return x if x.dtype.kind in "iub" else x.astype(np.float64)

    def clone(self, x: Any) -> Any:
        return np.array(x)

    def copy_call(self, nbytes: int) -> Callable[[], Any]:
        source, target = np.ones(nbytes // 2, np.uint8), np.empty(nbytes // 2, np.uint8)
        return lambda: np.copyto(target, source)

    def free_bytes(self) -> int:
        return _free_host()


class TorchTensors:
    """torch on a device."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.device = device
        self.random = torch.Generator(device=device)
        self.random.manual_seed(0)

    def _dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def normal(self, shape: tuple[int, ...], dtype: str) -> Any:
        made = self.torch.float64 if dtype == "float64" else self.torch.float32
        x = self.torch.randn(shape, generator=self.random, dtype=made, device=self.device)
        return x.to(self._dtype(dtype))

    def put(self, values: NDArray[Any], dtype: str) -> Any:
        return self.torch.from_numpy(np.array(values)).to(self.device, self._dtype(dtype))

    def integers(self, least: int, below: int, shape: tuple[int, ...], dtype: str) -> Any:
        return self.torch.randint(
            least, below, shape, generator=self.random, dtype=self._dtype(dtype), device=self.device
        )

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.torch.empty(shape, dtype=self._dtype(dtype), device=self.device)

    def read(self, x: Any, positions: Positions) -> NDArray[Any]:
        kept = x.view(self.torch.uint8) if x.element_size() == 1 else x  # not every type of a byte has index_select
        for axis, at in positions.items():
            kept = kept.index_select(axis, self.torch.from_numpy(at).to(x.device))
        return self.double(kept.view(x.dtype)).cpu().numpy()

    def double(self, x: Any) -> Any:
        return x.double() if x.is_floating_point() else x

    def clone(self, x: Any) -> Any:
        return x.clone()

    def copy_call(self, nbytes: int) -> Callable[[], Any]:
        source = self.torch.ones(max(nbytes // 2, 1), dtype=self.torch.uint8, device=self.device)
        target = self.torch.empty_like(source)
        return lambda: target.copy_(source)

    def free_bytes(self) -> int:
        if self.device == "cpu":
            return _free_host()
        return int(self.torch.cuda.mem_get_info(self.device)[0])


def _free_host() -> int:
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 1 << 34
