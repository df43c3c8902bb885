"""From a call to its plan: the arguments are checked, the kernel is chosen, and the plan is kept."""

from __future__ import annotations

import numbers
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opsgen.errors import error
from opsgen.runtime import binding
from opsgen.runtime.arrays import Adapter, ArrayInfo, Unusable, describe
from opsgen.runtime.expressions import expression
from opsgen.runtime.layout import shares_elements
from opsgen.runtime.manifest import Param, Signature, TensorParam
from opsgen.runtime.numpy_arrays import ADAPTER as NUMPY
from opsgen.runtime.packed import ADAPTER as PACKED
from opsgen.runtime.packed import Packed, Packer
from opsgen.runtime.plan import Operand, OpStats, Plan
from opsgen.runtime.selection import Candidate, Selection, on_device, result_dtype_error, select, select_packing

_NUMBERS = (numbers.Real, np.floating, np.integer)
_INTEGERS = frozenset({int, *(np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64))})
_FLAGS = 0x100 | 0x400  # NPY_ARRAY_ALIGNED and NPY_ARRAY_WRITEABLE: what matters and strides do not tell
_MOST_PLANS = 1024  # of one op; a program with more kinds of calls than that plans some of them again

TORCH_TYPES: set[type] = set()
"""The exact types of tensors that take the fast path; filled when the first torch tensor is seen."""


class OpDispatch:
    """One op of a loaded library: its kernels, its plans and its function.

    Thread safety: plans are found and added by single dict operations. Two threads may make the same plan; either will
    do.
    """

    def __init__(self, op: str, signature: Signature, candidates: Sequence[Candidate]) -> None:
        self.op = op
        self.signature = signature
        self.candidates = tuple(candidates)
        packed = {name for item in candidates for name in item.packed}
        self.packable = tuple(param.name for param in signature.tensors if param.name in packed)
        self.stats = OpStats(0, 0, 0)
        self._plans: dict[Any, Plan] = {}
        self._results: Any = namedtuple(f"{op}_results", signature.results) if len(signature.results) > 1 else None

    def function(self) -> Callable[..., Any]:
        """The op as a Python function."""
        signature, op = self.signature, self.op
        scope: dict[str, Any] = {f"_og_default_{param.name}": binding.default_of(param) for param in signature.params}
        scope |= {
            "_og_type": type,
            "_og_float": float,
            "_og_ndarray": np.ndarray,
            "_og_flags": _FLAGS,
            "_og_torch_types": TORCH_TYPES,
            "_og_packed": Packed,
            "_og_plans": self._plans,
            "_og_stats": self.stats,
            "_og_results": self._results,
            "_og_make_plan": self._make_plan,
            "_og_number": self._number,
            "_og_integers": _INTEGERS,
            "_og_scalar_tensor": self._scalar_tensor,
            "_og_misuse": lambda *given: binding.misuse(op, signature, *given),
            "_og_split_out": lambda out: binding.split_out(op, signature, out),
        }
        exec(compile(binding.source(op, signature, self.packable), f"<opsgen op {op}>", "exec"), scope)
        function: Any = scope[op]
        dtypes = {
            param.name: sorted({s.dtype for c in self.candidates for s in c.kernel.inputs if s.name == param.name})
            for param in signature.tensors
        }
        function.__signature__ = binding.python_signature(signature)
        function.__doc__ = binding.document(op, signature, dtypes)
        function.__module__ = __name__
        return function

    def pack(self, parameter: str, weight: Any, layout: str | None) -> Packed:
        """See `opsgen.runtime.library.Library.pack`."""
        op, packable = self.op, self.packable
        param = next((param for param in self.signature.tensors if param.name == parameter), None)
        if param is None or parameter not in packable:
            wanted = " or ".join(f'lib.pack("{op}.{name}", ...)' for name in packable)
            wanted = wanted or f"{binding.call_form(op, self.signature)}, with nothing packed"
            found = f"{parameter!r} is no parameter of it" if param is None else f"no kernel takes {parameter!r} packed"
            raise error("E4002", op=op, found=found, wanted=wanted)
        if isinstance(weight, Packed):
            wanted = "the array that it was made of"
            raise error("E4017", op=op, argument=parameter, found="packed already", wanted=wanted)
        adapter, info = describe(op, parameter, weight)
        candidates = [item for item in self.candidates if parameter in item.packed]
        chosen, dims = select_packing(op, self.signature, candidates, param, info, layout)
        operand = Operand(adapter, parameter, info, None, written=False)
        return packer(op, chosen, parameter, info, dims).pack(operand.hand(adapter.native(weight)))

    def _make_plan(
        self, key: Any, tensors: Sequence[Any], scalars: Sequence[Any], attributes: Sequence[Any], outs: Sequence[Any]
    ) -> Plan:
        """Check a call and plan it; kept under ``key``, or under what the arrays are where that is None.

        Raises:
            CallError: the first thing that is wrong with the call.
        """
        signature, op = self.signature, self.op
        ordered: list[Param] = [*signature.tensors, *signature.scalars, *signature.attributes]
        absent = {p.name for p, value in zip(ordered, (*tensors, *scalars, *attributes)) if value is binding.MISSING}
        for param in signature.params:
            if param.name in absent:
                raise binding.missing(op, signature, param.name)
        arrays = [
            (tensor, *self._describe(tensor.name, value))
            for tensor, value in zip(signature.tensors, tensors)
            if value is not None or not tensor.optional
        ]
        given_outs = outs if outs and outs[0] is not None else ()
        results = [(name, *describe(op, name, value)) for name, value in zip(signature.results, given_outs)]
        infos = [(param.name, info) for param, _, info in arrays] + [(name, info) for name, _, info in results]
        self._one_framework(infos)
        self._register_torch()
        if key is None:
            key = (*(info for _, info in infos), len(results), *attributes, *map(type, attributes))
            key = (tuple(param.name for param, _, _ in arrays), key)
            try:
                found = self._plans.get(key)
            except TypeError:  # an attribute that has no hash
                found, key = None, None
            if found is not None:
                return found
        values = {param.name: value for param, value in zip(signature.attributes, attributes)}
        given = [(tensor, info) for tensor, _, info in arrays]

        def check_scalars() -> None:
            for scalar, value in zip(signature.scalars, scalars):
                self._number(scalar.name, value)

        candidates: Sequence[Candidate] = self.candidates
        if not signature.tensors:  # the results tell the device
            argument, device = (infos[0][0], infos[0][1].device) if infos else ("out", "cpu")
            candidates = on_device(op, candidates, argument, device)
        selection = select(op, signature, candidates, given, values, check_scalars)
        for name, info in infos:
            if info.device != "cpu" and info.framework != "torch":
                fix = f"a torch tensor, which torch.from_dlpack({name}) makes of it without a copy"
                what = f"an array of {info.framework} on {info.device}"
                raise error("E4017", op=op, argument=name, found=what, wanted=fix)
        for tensor, _, info in arrays:
            if tensor.mutable:
                self._check_written(tensor.name, info)
        for index, (name, _, info) in enumerate(results):
            self._check_result(name, info, selection, index, infos[0])
        plan = self._plan(selection, arrays, results)
        if key is not None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _plan(
        self,
        selection: Selection,
        arrays: Sequence[tuple[TensorParam, Adapter, ArrayInfo]],
        results: Sequence[tuple[str, Adapter, ArrayInfo]],
    ) -> Plan:
        leading = None if selection.leading is None else len(selection.leading)
        packed = selection.candidate.packed
        inputs = []
        for param, adapter, info in arrays:
            operand = Operand(adapter, param.name, info, leading if param.leading else None, written=param.mutable)
            if param.name in packed and info.packed is None:
                operand.packer = packer(self.op, selection.candidate, param.name, info, selection.dims)
            inputs.append(operand)
        specs = selection.candidate.kernel.outputs
        outputs = [
            Operand(adapter, name, info, leading if spec.leading else None, written=True, result=True)
            for (name, adapter, info), spec in zip(results, specs)
        ]
        tellers = [(adapter, info.device) for _, adapter, info in (*arrays, *results) if info.packed is None]
        if not self.signature.tensors:
            tellers.append((NUMPY, "cpu"))  # what it makes where it is given no memory
        if not tellers:
            found = "it has no array to tell the framework and the device by"
            raise error("E4002", op=self.op, found=found, wanted="one with out=...")
        adapter, device = tellers[0]
        try:
            return Plan(self.op, self.stats, adapter, selection, inputs, outputs, device)
        except Unusable as problem:
            wanted = problem.wanted
            raise error("E4017", op=self.op, argument="out", found=problem.found, wanted=wanted) from None

    def _describe(self, name: str, value: Any) -> tuple[Adapter, ArrayInfo]:
        """The adapter of an argument and what it is. Raises E4017, see `describe`."""
        if type(value) is not Packed:
            return describe(self.op, name, value)
        if name not in self.packable:
            wanted = f"an array (those that can be packed: {', '.join(self.packable) or 'none'})"
            raise error("E4017", op=self.op, argument=name, found="a packed weight", wanted=wanted)
        return PACKED, PACKED.describe(value)

    def _one_framework(self, infos: Sequence[tuple[str, ArrayInfo]]) -> None:
        first: dict[str, str] = {}
        for name, info in infos:
            if info.packed is None:  # a packed weight goes with any
                first.setdefault(info.framework, name)
        if len(first) > 1:
            found = " and ".join(f"{framework} ({name!r})" for framework, name in first.items())
            raise error("E4020", op=self.op, found=found)

    def _check_result(
        self, name: str, info: ArrayInfo, selection: Selection, index: int, first: tuple[str, ArrayInfo]
    ) -> None:
        """The caller's memory for a result: its device, dtype, shape, and that it can be written."""
        spec, wanted = selection.candidate.kernel.outputs[index], selection.outputs[index]
        argument = "out" if len(selection.outputs) == 1 else name
        if info.device != first[1].device:
            where = f"{first[1].device} here, where {first[0]!r} is"
            raise error("E4006", op=self.op, argument=argument, found=info.device, wanted=where)
        if info.dtype != spec.dtype:
            raise result_dtype_error(self.op, argument, info, spec.dtype, wanted)
        if len(info.shape) != len(wanted):
            shown = f"{len(wanted)}, as the result has (shape {wanted})"
            raise error("E4004", op=self.op, argument=argument, found=len(info.shape), shape=info.shape, wanted=shown)
        if info.shape != wanted:
            axis = next(i for i, (mine, right) in enumerate(zip(info.shape, wanted)) if mine != right)
            own = axis - (len(wanted) - len(spec.dims) + spec.leading) + spec.leading
            dim = str(spec.dims[own]) if own >= spec.leading and isinstance(spec.dims[own], str) else f"dim {axis}"
            values = {"argument": argument, "dim": dim, "found": info.shape[axis], "shape": info.shape}
            why = f"as the result has (shape {wanted})"
            raise error("E4005", op=self.op, wanted=wanted[axis], why=why, fix="Pass memory of that shape.", **values)
        self._check_written(argument, info)

    def _check_written(self, argument: str, info: ArrayInfo) -> None:
        if not info.writeable:
            found, wanted = "a read-only array", f"one that can be written to, such as {argument}.copy()"
        elif info.grad:
            found = "a tensor that requires grad, and writing to it would go unnoticed by autograd"
            wanted = f"{argument}.detach()"
        elif info.strides is not None and shares_elements(info.shape, info.strides):
            found, wanted = "an expanded view, whose elements share memory", "memory of its own for every element"
        else:
            return
        raise error("E4017", op=self.op, argument=argument, found=found, wanted=wanted)

    def _number(self, name: str, value: Any) -> float:
        """A scalar argument as a float.

        Raises:
            CallError: E4002 it is missing, E4017 it is not a real number.
        """
        if value is binding.MISSING:
            raise binding.missing(self.op, self.signature, name)
        found = f"of type {type(value).__qualname__}"
        if isinstance(value, _NUMBERS) and not isinstance(value, (bool, np.bool_)):
            try:
                return float(value)
            except OverflowError:
                found = f"the number {str(value)[:20]}..., which is too large"
        raise error("E4017", op=self.op, argument=name, found=found, wanted=f"a real number, such as float({name})")

    def _scalar_tensor(self, name: str, value: Any, others: Sequence[Any]) -> Any:
        """An integer for a tensor without dims, as one of the framework of the call's arrays and on their device.

        Raises:
            CallError: E4017, no kernel's type for it holds the number.
        """
        known = {s.dtype for c in self.candidates for s in c.kernel.inputs if s.name == name}
        dtypes = [n for n in ("int64", "int32", "int16", "int8", "uint8") if n in known]
        arrays = [x for x in others if x is not None and type(x) not in _INTEGERS]
        torch = sys.modules.get("torch")
        of_torch = [x for x in arrays if torch is not None and isinstance(x, torch.Tensor)]
        if not dtypes or not (of_torch or all(isinstance(x, np.ndarray) for x in arrays)):
            return value
        limits = np.iinfo(dtypes[0])
        if not limits.min <= int(value) <= limits.max:
            wanted = f"one from {limits.min} to {limits.max}"
            raise error("E4017", op=self.op, argument=name, found=f"the number {value}", wanted=wanted)
        if torch is not None and of_torch:
            return torch.tensor(int(value), dtype=getattr(torch, dtypes[0]), device=of_torch[0].device)
        return np.asarray(value, dtypes[0])

    @staticmethod
    def _register_torch() -> None:
        """Let torch's own tensor types take the fast path, once torch is there."""
        torch = sys.modules.get("torch")
        if torch is not None and not TORCH_TYPES and hasattr(torch, "nn"):
            TORCH_TYPES.update({torch.Tensor, torch.nn.Parameter})


def packer(op: str, candidate: Candidate, parameter: str, info: ArrayInfo, dims: dict[str, int]) -> Packer:
    """What packs an input like ``info`` for a kernel."""
    form = candidate.packed[parameter]
    nbytes = expression(form.bytes).over(dims)
    return Packer(candidate.packs[parameter], op, parameter, form.layout, info.shape, info.dtype, nbytes)
