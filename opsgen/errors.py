"""Every error and warning of opsgen: one table of codes, one class a family.

A message states what was found, what the limit is, and what to do. Codes are stable: a released code never changes its
meaning. ``raise error("E4003", argument="x", found="int8", wanted="float32")`` is the only way the package raises.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass


class OpsgenError(Exception):
    """Base of every error a user can cause. ``code`` is its stable code, such as ``"E4003"``."""

    code: str = ""


class DefinitionError(OpsgenError, TypeError):
    """E1xxx: an operator's definition is wrong."""


class TargetError(OpsgenError, ValueError):
    """E2xxx: a target is unknown, or its toolchain is missing."""


class CompileError(OpsgenError, ValueError):
    """E3xxx: an operator cannot be compiled as asked."""


class CallError(OpsgenError, ValueError):
    """E4xxx: a library file or a call to it is wrong. Raised before anything is launched."""


class UnknownOpError(CallError, AttributeError):
    """E4001: a library has no such op. An AttributeError too, so that hasattr and getattr's default work."""


class ResourceError(OpsgenError, RuntimeError):
    """E6xxx: memory, disk or another resource ran out."""


class InternalError(RuntimeError):
    """A bug in opsgen itself. Never a user's fault; please report it with the message."""


class OpsgenWarning(UserWarning):
    """Base of every warning; the message starts with its code."""


@dataclass(frozen=True)
class ErrorEntry:
    """One row of the table: the class raised, and the template of the message, which ends in the fix."""

    family: type[OpsgenError]
    template: str


_D, _T, _C, _L, _R = DefinitionError, TargetError, CompileError, CallError, ResourceError

ERRORS: dict[str, ErrorEntry] = {
    # --- E1xxx: definition ------------------------------------------------------------------------------------------
    "E1001": ErrorEntry(_D, "{where}unknown dim {found!r}; the dims here are {known}. Use one of them."),
    "E1002": ErrorEntry(
        _D, "{where}{function} over {found!r}, but the operand has dims {known}. Reduce over one of its dims."
    ),
    "E1003": ErrorEntry(
        _D, "{where}{function} cannot take {found}; it takes {wanted}. Cast with og.cast(x, dtype) first."
    ),
    "E1004": ErrorEntry(
        _D,
        "{where}a Python {construct} needs the value of a tensor, which is not known while the op is being described. "
        "Use og.where(condition, a, b), or make it a bool/int attribute of the op.",
    ),
    "E1005": ErrorEntry(_D, "{where}parameter {parameter!r}: {found}. {fix}"),
    "E1006": ErrorEntry(
        _D, '{where}dims {found} of {what}: "..." stands for leading dims and may come once, first. Write it first.'
    ),
    "E1007": ErrorEntry(_D, "{where}dim {found!r} is there twice in {what}. Rename one: x.rename(old='new')."),
    "E1008": ErrorEntry(_D, "{where}calling op {op!r}: {found}. {fix}"),
    "E1009": ErrorEntry(
        _D, "{where}op {op!r} returned {found}; return a tensor expression, or og.results(name=tensor, ...)."
    ),
    "E1010": ErrorEntry(_D, "{where}{function}: {found}. {fix}"),
    "E1011": ErrorEntry(
        _D, "{where}the constant {found} does not fit {dtype}, whose largest value is {limit}. Use a smaller constant."
    ),
    "E1013": ErrorEntry(
        _D,
        "{where}{dims} of a result cannot be put in an order: {found}. Name the order: og.transpose(x, 'a', 'b', ...).",
    ),
    # --- E2xxx: target and toolchain --------------------------------------------------------------------------------
    "E2001": ErrorEntry(_T, "unknown target {found!r}; known targets: {known}. {fix}"),
    "E2002": ErrorEntry(_T, "{tool} was not found; compiling for {target} needs it. Install it: {fix}"),
    "E2003": ErrorEntry(_T, 'compiling needs {package}, which cannot be imported ({found}). pip install "{fix}"'),
    "E2004": ErrorEntry(_T, "this machine's {what} is {found}; {target} needs {wanted}. {fix}"),
    "E2005": ErrorEntry(_T, "targets {found} are of different kinds; one library file holds one kind. Compile twice."),
    "E2006": ErrorEntry(
        _T, "the environment variable {variable} is {found!r}; it can be {known}. Unset it, or set it to one of them."
    ),
    "E2007": ErrorEntry(_T, "{what} need {package}, which cannot be imported ({found}). Install it with pip."),
    # --- E3xxx: compiling -------------------------------------------------------------------------------------------
    "E3001": ErrorEntry(_C, "op {op!r} has no dim {found!r} to bind; its dims are {known}."),
    "E3002": ErrorEntry(_C, "op {op!r}, parameter {parameter!r}: dtype {found} is not supported; use one of {known}."),
    "E3003": ErrorEntry(_C, "op {op!r}: attribute {attribute!r} is {found}; {wanted}."),
    "E3004": ErrorEntry(_C, "op {op!r} on {target}: no schedule serves the {pattern} group {group} ({found}). {fix}"),
    "E3005": ErrorEntry(_C, "{tool} failed with exit status {status}: {found}"),
    "E3006": ErrorEntry(
        _C, "{path} cannot be written: {found}. Choose a file in a folder that exists and is writable."
    ),
    "E3007": ErrorEntry(_C, "unknown op {found!r}; known ops: {known}. {fix}"),
    "E3008": ErrorEntry(_C, "dim {dim!r} bound to {found}; {wanted}."),
    "E3009": ErrorEntry(_C, "nothing to compile: {found}. {fix}"),
    "E3010": ErrorEntry(_C, "op {found!r} cannot be loaded: {reason}. {fix}"),
    "E3011": ErrorEntry(_C, "unknown stage {found!r}; the stages are {known}. {fix}"),
    "E3012": ErrorEntry(_C, "op {op!r}: TVM TE has no form of {found}. {fix}"),
    "E3013": ErrorEntry(_C, "schedule {schedule} has no knob {found!r}; its knobs are {known}."),
    "E3014": ErrorEntry(_C, "{option} is {found!r}; it can be {known}."),
    # --- E4xxx: library and call ------------------------------------------------------------------------------------
    "E4001": ErrorEntry(
        UnknownOpError,
        "this library has no op {found!r}; it has {known}. Compile it in, or load another file.",
    ),
    "E4002": ErrorEntry(_L, "{op}: {found}. The call is {wanted}."),
    "E4003": ErrorEntry(_L, "{op}: argument {argument!r} has dtype {found}; this library takes {wanted}. {fix}"),
    "E4004": ErrorEntry(_L, "{op}: argument {argument!r} has {found} dims (shape {shape}); wanted {wanted}."),
    "E4005": ErrorEntry(
        _L, "{op}: argument {argument!r} has {dim}={found} (shape {shape}); wanted {wanted}, {why}. {fix}"
    ),
    "E4006": ErrorEntry(_L, "{op}: argument {argument!r} is on {found}; this library runs on {wanted}. Move it there."),
    "E4007": ErrorEntry(
        _L,
        "{op}: {argument!r} is written to and overlaps the memory of {other!r}. Pass memory of its own (only "
        "parameters declared og.Mut are updated in place).",
    ),
    "E4008": ErrorEntry(_L, "{op}: no kernel serves this call ({found}). This library has: {known}. Compile for it."),
    "E4009": ErrorEntry(
        _L, "{op}: argument {argument!r} holds index {found} at position {position}; it must lie in [0, {limit})."
    ),
    "E4010": ErrorEntry(_L, "{op}: {found}; wanted {wanted}. {fix}"),
    "E4011": ErrorEntry(_L, "{path} is not an opsgen library file: {found}. Make one with `opsgen compile`."),
    "E4012": ErrorEntry(_L, "{path} is damaged: {found}. Compile or copy it again."),
    "E4013": ErrorEntry(
        _L, "{path} has manifest format {found}; this opsgen reads up to {limit}. Upgrade opsgen, or compile it again."
    ),
    "E4014": ErrorEntry(_L, "{path} holds kernels for {found}; this CPU {wanted}. {fix}"),
    "E4015": ErrorEntry(
        _L, "{path}: kernels {first} and {second} of op {op!r} claim the same calls. Compile it again."
    ),
    "E4016": ErrorEntry(_L, "{path}: the manifest breaks the schema at {found}. Compile it again."),
    "E4017": ErrorEntry(_L, "{op}: argument {argument!r} is {found}; wanted {wanted}."),
    "E4018": ErrorEntry(_L, "{op}: attribute {attribute!r} is {found}; this library was compiled for {known}."),
    "E4019": ErrorEntry(_L, "{op}: packed weight {argument!r}: {found}; wanted {wanted}. Pack it with this library."),
    "E4020": ErrorEntry(_L, "{op}: arguments come from {found}; pass arrays of one framework."),
    "E4021": ErrorEntry(_L, "{path} cannot be opened: {found}. Check the path and its permissions."),
    "E4022": ErrorEntry(
        _L, "{path}: op {op!r} takes other arguments than in {other}. Compile both files from one definition."
    ),
    "E4023": ErrorEntry(_L, "this library was loaded from {found} files; {what} is of one. Load that file alone."),
    "E4024": ErrorEntry(
        _L,
        "{op}: argument {argument!r} holds offset {found} at position {position}; wanted {wanted}. Offsets start at 0, "
        "never fall, and end at the number of tokens: pass the running sum of the lengths, with a 0 before it.",
    ),
    "E4025": ErrorEntry(
        _L,
        "{op}: argument {argument!r} holds length {found} at position {position}; it must lie in [0, {limit}]. "
        "Pass no more than there is memory for.",
    ),
    "E4026": ErrorEntry(
        _L,
        "{op}: argument {argument!r} is on {device}, which has compute capability {found}; this library holds kernels "
        "for {known}. Compile it for that GPU too.",
    ),
    "E4027": ErrorEntry(
        _L,
        "{op}: argument {argument!r} holds {found} at position {position}, after {before}; its elements must never "
        "fall. Sort them first, and the rows that belong to them with them.",
    ),
    "E4030": ErrorEntry(_L, "{path} holds kernels for {wanted}, which do not run on {found}. {fix}"),
    "E4031": ErrorEntry(
        _L,
        "{case} at {dims} gives a wrong {result}: {found}. Nothing was timed. Compile the library again, from the "
        "definition that it is checked with; if the error stays, please report it.",
    ),
    "E4032": ErrorEntry(_L, "nothing to measure in {path}: {found}. {fix}"),
    # --- E6xxx: resources -------------------------------------------------------------------------------------------
    "E6001": ErrorEntry(_R, "{op}: {found} bytes of memory could not be allocated. Use a smaller problem."),
    "E6002": ErrorEntry(
        _R,
        "{op}: {wanted} bytes of device memory are needed, {found} are free. Use a smaller problem, or free memory "
        "(torch.cuda.empty_cache() gives back what torch keeps).",
    ),
    "E6004": ErrorEntry(
        _R,
        "{op}: the CUDA driver refused {what} ({found}). The cause may be a kernel launched before: run with "
        "CUDA_LAUNCH_BLOCKING=1 to find it.",
    ),
    "E6003": ErrorEntry(_R, "{path}: {found} bytes free; {wanted} needed. Free some disk."),
}

WARNINGS: dict[str, str] = {
    "W1001": "op {op!r}: lib.{op} is Library's own; call it as lib[{op!r}](...), or rename it: og.op(name=...).",
    "W3001": "the compile cache in {path} cannot be used ({found}); everything is compiled anew. Set {variable} to a "
    "folder that is writable, or to 0 for no cache.",
}


def error(code: str, **values: object) -> OpsgenError:
    """The error of ``code`` with its message filled in; the caller raises it.

    Args:
        code: a key of `ERRORS`.
        values: the template's fields. ``where`` (E1xxx) may be left out.

    Raises:
        InternalError: the code is unknown or a field is missing, which is a bug in opsgen.
    """
    entry = ERRORS.get(code)
    if entry is None:
        raise InternalError(f"unknown error code {code}")
    where = values.pop("where", "")
    if where:
        where = f"{where}: "
    try:
        text = entry.template.format(where=where, **values)
    except KeyError as missing:
        raise InternalError(f"error {code} needs the field {missing}") from None
    raised = entry.family(f"{code}: {text}")
    raised.code = code
    return raised


def warn(code: str, **values: object) -> None:
    """Warns with the message of ``code``, at the innermost line outside opsgen.

    Args:
        code: a key of `WARNINGS`.
        values: the template's fields.

    Raises:
        InternalError: the code is unknown or a field is missing, which is a bug in opsgen.
    """
    template = WARNINGS.get(code)
    if template is None:
        raise InternalError(f"unknown warning code {code}")
    try:
        text = template.format(**values)
    except KeyError as missing:
        raise InternalError(f"warning {code} needs the field {missing}") from None
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("opsgen."):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{code}: {text}", OpsgenWarning, stacklevel=level)
