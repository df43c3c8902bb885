"""What to do for one kind of call: decided once, kept, and run for every call like it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from opsgen.errors import InternalError, OpsgenError, error
from opsgen.runtime.arrays import Adapter, ArrayInfo, memory_of
from opsgen.runtime.devices import kind_of, refusal
from opsgen.runtime.dtypes import DTYPES
from opsgen.runtime.ffi import from_dlpack
from opsgen.runtime.layout import is_direct
from opsgen.runtime.packed import Packer
from opsgen.runtime.selection import Selection

_SKIP_OVERLAP = 1  # flags bit 0 of a launcher
_OVERLAP_WORK = 1_000_000  # numpy.shares_memory gives up after so many candidates; no real layout comes near


@dataclass
class OpStats:
    """Counters of one op. Under the GIL ``+=`` on a slot is one step between two checks for other threads, so they
    are exact without a lock.

    Attributes:
        calls: launches.
        copies_in: arguments that were copied because of their strides or alignment, or packed because another was.
        copies_out: results, or updated arguments, that were written through a temporary for the same reason.
    """

    __slots__ = ("calls", "copies_in", "copies_out")

    calls: int
    copies_in: int
    copies_out: int


class Operand:
    """One tensor of a plan: an argument, or a result that the caller gives memory for.

    Attributes:
        adapter: of its framework.
        name, info: which, and what it is like.
        written: a result, or a parameter that is updated in place.
        copied: its layout is not one that the launcher takes.
        fresh: makes the temporary for a result that is copied; None for an argument, whose values are copied.
        hand_over: how it goes to the launcher; None: as it is.
        packer: packs it first, for a kernel that takes it packed; else None.
    """

    __slots__ = ("adapter", "copied", "fresh", "hand_over", "info", "name", "packer", "written")

    def __init__(
        self, adapter: Adapter, name: str, info: ArrayInfo, leading: int | None, *, written: bool, result: bool = False
    ) -> None:
        if info.packed is not None:  # to a launcher, a packed weight is a vector of bytes
            info = ArrayInfo((info.packed.nbytes,), (1,), "uint8", info.device, info.framework, False, True)
        self.adapter = adapter
        self.name = name
        self.info = info
        self.written = written
        self.packer: Packer | None = None
        self.fresh = adapter.fresh(info.shape, info.dtype, info.device) if result else None
        self.copied = not (info.aligned and info.strides is not None and is_direct(info.shape, info.strides, leading))
        own_memory = info._replace(writeable=True) if self.copied else info
        self.hand_over = adapter.hand_over(own_memory)

    def hand(self, native: Any) -> Any:
        """What a launcher gets for ``native``, the value of an argument."""
        value = self.adapter.copy(native) if self.copied else native
        value = value if self.hand_over is None else self.hand_over(value)
        return value if self.packer is None else from_dlpack(self.packer.memory(value))


class Plan:
    """A kernel, and how to hand it the arrays of one kind of call.

    Attributes:
        launch: the kernel's launcher.
        direct: the arguments, and the results where given, go to the launcher as they are.
        fresh: makes each result, where the caller does not give them; else empty.
    """

    __slots__ = (
        "_adapter", "_copied_bytes", "_given", "_inputs", "_like", "_op", "_result_bytes", "_results", "_stats",
        "direct", "fresh", "launch",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        stats: OpStats,
        adapter: Adapter,
        selection: Selection,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        device: str,
    ) -> None:
        """``outputs`` is empty where the results are to be made, on ``device``.

        Raises:
            Unusable: the framework cannot make a result of the kernel's dtype.
        """
        specs = selection.candidate.kernel.outputs
        self.launch = selection.candidate.launch
        self.fresh: tuple[Callable[[], Any], ...] = ()
        if not outputs:
            shapes = selection.outputs
            self.fresh = tuple(adapter.fresh(shape, spec.dtype, device) for shape, spec in zip(shapes, specs))
            if device != "cpu":
                sizes = [_bytes([(shape, spec.dtype)]) for shape, spec in zip(shapes, specs)]
                self.fresh = tuple(_or_no_memory(op, make, size, device) for make, size in zip(self.fresh, sizes))
        sized = [(shape, spec.dtype) for shape, spec in zip(selection.outputs, specs)]
        self._result_bytes = _bytes(sized)
        self._copied_bytes = _bytes([(i.info.shape, i.info.dtype) for i in (*inputs, *outputs) if i.copied])
        self._op = op
        self._stats = stats
        self._adapter = adapter
        self._inputs = tuple(inputs)
        self._results = tuple(outputs)
        if not outputs:
            self._results = tuple(Operand(adapter, s.name, _new(s.dtype), None, written=True) for s in specs)
        self._given = (*inputs, *outputs)
        self._like = next((i for i, operand in enumerate(self._inputs) if operand.adapter is adapter), None)
        self.direct = adapter.keyed and all(
            not operand.copied and operand.hand_over is None and operand.packer is None
            for operand in (*self._inputs, *self._results)
        )

    def run(self, arguments: Sequence[Any], scalars: Sequence[float], outs: Sequence[Any]) -> tuple[Any, ...]:
        """Call the kernel, with whatever copies it takes.

        Args:
            arguments: the tensors that the caller gave, in order.
            outs: the caller's memory for the results; empty if there is none.

        Returns:
            The results: ``outs``, or new arrays of the caller's framework.
        """
        adapter = self._adapter
        inputs = [operand.adapter.native(value) for operand, value in zip(self._inputs, arguments)]
        try:
            results = [adapter.native(value) for value in outs] if outs else [make() for make in self.fresh]
        except Exception as failure:
            raise self._no_memory(failure, self._result_bytes) from None
        natives = [*inputs, *results]
        if any(operand.copied or operand.packer is not None for operand in self._given):
            self._refuse_overlap(natives)
        written_back: list[tuple[Any, Any]] = []
        try:
            handed: list[Any] = [self._hand(*pair, written_back) for pair in zip(self._inputs, inputs)]
            handed += scalars
            handed += [self._hand(*pair, written_back) for pair in zip(self._results, results)]
        except (MemoryError, RuntimeError) as failure:
            if isinstance(failure, RuntimeError) and not re.search("allocate|overflow", str(failure)):  # of torch
                raise
            raise self._no_memory(failure, self._copied_bytes) from None
        self._stats.calls += 1
        try:
            self.launch(0, *handed)
        except Exception as failure:
            self._recover(failure, handed, natives)
        for target, value in written_back:
            adapter.assign(target, value)
            self._stats.copies_out += 1
        if outs:
            return tuple(outs)
        like = None if self._like is None else arguments[self._like]
        return tuple(adapter.finish(native, o.info.dtype, like) for o, native in zip(self._results, results))

    def _hand(self, operand: Operand, native: Any, written_back: list[tuple[Any, Any]]) -> Any:
        """What the launcher gets for ``native``; a copy of a written one is noted, to be written back."""
        if operand.fresh is None and not operand.written:
            self._stats.copies_in += operand.copied or operand.packer is not None
            return operand.hand(native)
        value = native
        if operand.copied:
            if operand.fresh is None:
                value = self._adapter.copy(native)
                self._stats.copies_in += 1
            else:
                value = operand.fresh()
            written_back.append((native, value))
        return value if operand.hand_over is None else operand.hand_over(value)

    def recover(
        self, failure: Exception, arguments: Sequence[Any], scalars: Sequence[float], outs: Sequence[Any]
    ) -> None:
        """After a direct launch, or the making of its results, raised ``failure``: raise the right error, or launch
        again where it was none."""
        if any(out is None for out in outs):
            raise self._no_memory(failure, self._result_bytes) from None
        self._recover(failure, [*arguments, *scalars, *outs], [*arguments, *outs])

    def _no_memory(self, failure: Exception, wanted: int) -> Exception:
        """E6001 for memory of the CPU that a framework did not find: numpy and torch say so in several classes."""
        return failure if isinstance(failure, OpsgenError) else error("E6001", op=self._op, found=wanted)

    def _recover(self, failure: Exception, handed: Sequence[Any], natives: Sequence[Any]) -> None:
        kind = kind_of(failure)
        if kind == "OpsgenOverlap":
            self._refuse_overlap(natives)
            try:
                self.launch(_SKIP_OVERLAP, *handed)
                return
            except Exception as second:
                failure, kind = second, kind_of(second)
        fields = str(failure).split("|")
        if kind in ("OpsgenIndex", "OpsgenLength") and len(fields) == 4 and fields[2].isdigit():
            name, value, position, limit = fields
            shape = next((operand.info.shape for operand in self._inputs if operand.name == name), ())
            where = [int(i) for i in np.unravel_index(int(position), shape)] if shape else int(position)
            code = "E4009" if kind == "OpsgenIndex" else "E4025"
            raise error(code, op=self._op, argument=name, found=value, position=where, limit=limit) from None
        if kind == "OpsgenOffsets" and len(fields) == 5:
            name, value, position, low, high = fields
            wanted = low if int(low) >= int(high) else f"{low} to {high}"
            raise error(
                "E4024", op=self._op, argument=name, found=value, position=int(position), wanted=wanted
            ) from None
        if kind == "OpsgenSorted" and len(fields) == 4:
            name, value, position, before = fields
            raise error(
                "E4027", op=self._op, argument=name, found=value, position=int(position), before=before
            ) from None
        if kind == "OpsgenMemory":
            raise error("E6001", op=self._op, found=fields[0]) from None
        device = refusal(self._op, failure)
        if device is not None:
            raise device from None
        text = f"{self._op}: the launcher failed with {kind or type(failure).__name__}: {failure}"
        raise InternalError(f"{text}. This is a bug in opsgen; please report it.") from failure

    def _refuse_overlap(self, natives: Sequence[Any]) -> None:
        """E4007 if an element of a written array is one of another argument. Interleaved views share none."""
        if not any(operand.written for operand in self._given):
            return
        pairs = [
            (operand, memory_of(operand.adapter, native, operand.info, DTYPES[operand.info.dtype].itemsize))
            for operand, native in zip(self._given, natives)
        ]
        for index, (operand, memory) in reversed(list(enumerate(pairs))):
            if operand.written:
                for other_index, (other, other_memory) in enumerate(pairs):
                    if other_index != index and _share(memory, other_memory):
                        raise error("E4007", op=self._op, argument=operand.name, other=other.name) from None


def _or_no_memory(op: str, make: Callable[[], Any], nbytes: int, device: str) -> Callable[[], Any]:
    """``make``, which raises E6002 where torch finds no memory on a device."""

    def made() -> Any:
        try:
            return make()
        except RuntimeError as failure:
            torch: Any = sys.modules.get("torch")
            if torch is None or not isinstance(failure, torch.OutOfMemoryError):
                raise
            raise error("E6002", op=op, wanted=nbytes, found=torch.cuda.mem_get_info(device)[0]) from None

    return made


def _bytes(arrays: Sequence[tuple[tuple[int, ...], str]]) -> int:
    """Of arrays of these shapes and dtypes."""
    return sum(prod(shape) * DTYPES[dtype].itemsize for shape, dtype in arrays)


def _new(dtype: str) -> ArrayInfo:
    """Of a result that `Adapter.fresh` makes. Its shape does not matter, for it is contiguous."""
    return ArrayInfo((), (), dtype, "", "", True, True)


def _share(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if not np.may_share_memory(one, other):
        return False
    try:
        return np.shares_memory(one, other, max_work=cast(Any, _OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True
