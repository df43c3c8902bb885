"""What a command line chooses: ops, and values for their dims, attributes, optional tensors and types."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from .. import ops as standard
from ..dsl.op import Op
from ..errors import InternalError, OpsgenError, error
from .output import UsageError

Types = list[str] | list[dict[str, str]]


@dataclass(frozen=True)
class Choices:
    """The ops, and what was chosen for all of them."""

    ops: list[Op]
    dims: dict[str, int]
    attributes: dict[str, str]
    absent: list[str]
    dtypes: Any

    def attributes_of(self, op: Op) -> dict[str, Any]:
        """Those that the op has, as values of their type."""
        return {p.name: _value(p, self.attributes[p.name]) for p in op.parameters if p.name in self.attributes}

    def absent_of(self, op: Op) -> list[str]:
        return [p.name for p in op.parameters if p.optional and p.name in self.absent]

    def dims_of(self, op: Op) -> dict[str, int]:
        return {d: n for d, n in self.dims.items() if d in op.dims}


def read(arguments: argparse.Namespace) -> Choices:
    """The choices of a command line; names that no op has are refused.

    Raises:
        UsageError: no op, or something that is not NAME=VALUE.
        OpsgenError: E3001, E3003, E3007, E3010, and E1xxx of an op's own file.
    """
    if not arguments.ops:
        raise UsageError(
            "no OP was given. Write it first: --dim, --attribute and --absent take all words up to the next option."
        )
    ops = [find_op(name) for name in arguments.ops]
    dims = {n: extent(n, v) for n, v in (pair("--dim", w) for w in arguments.dim)}
    attributes = dict(pair("--attribute", w) for w in arguments.attribute)
    absent = [n for word in arguments.absent for n in word.split(",") if n]
    names = ", ".join(op.name for op in ops)
    for d in dims:
        if not any(d in op.dims for op in ops):
            raise error("E3001", op=names, found=d, known=sorted({d for op in ops for d in op.dims}))
    for a in attributes:
        known = sorted({p.name for op in ops for p in op.parameters if p.role == "attribute"})
        if a not in known:
            raise error("E3003", op=names, attribute=a, found="not known", wanted=f"the attributes are {known}")
    for n in absent:
        known = sorted({p.name for op in ops for p in op.parameters if p.optional})
        if n not in known:
            raise error("E3003", op=names, attribute=n, found="absent", wanted=f"the optional tensors are {known}")
    return Choices(ops, dims, attributes, absent, _types(arguments.dtype, ops))


def pair(option: str, word: str) -> tuple[str, str]:
    """NAME=VALUE of an option. UsageError for another word."""
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {word!r}: wanted NAME=VALUE")
    return name, value


def extent(name: str, value: str) -> int:
    """A dim's extent. E3008 where it is no int."""
    try:
        return int(value)
    except ValueError:
        raise error("E3008", dim=name, found=repr(value), wanted="a dim is bound to an int of 0 or more") from None


def _value(parameter: Any, text: str) -> Any:
    """An attribute's value from its text. What is no value of its type stays text: checking it gives E3003."""
    kind = type(parameter.choices[0]) if parameter.choices else {"int": int, "bool": bool}.get(parameter.type, str)
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if kind is int:
        with contextlib.suppress(ValueError):
            return int(text)
    return text


def _types(words: Sequence[str] | None, ops: Sequence[Op]) -> Any:
    """Floating types, and types of single parameters."""
    names = [w for word in words or () for w in word.split(",") if w]
    single = dict(pair("--dtype", n) for n in names if "=" in n)
    for name in single:
        if not any(p.name == name and p.spec for op in ops for p in op.parameters):
            known = sorted({p.name for op in ops for p in op.parameters if p.spec})
            raise UsageError(f"--dtype {name}=...: the tensors are {', '.join(known)}")
    floating = [n for n in names if "=" not in n] or ["float32"]
    return [{"*": f, **single} for f in floating] if single else floating


# -- ops ---------------------------------------------------------------------------------------------------------------
def find_op(text: str) -> Op:
    """The op that a word of the command line names.

    Raises:
        OpsgenError: E3007 unknown standard op; E3010 the file or module cannot be loaded or has no such op; E1xxx its
            definition is wrong.
    """
    place, colon, name = text.rpartition(":")
    if not colon:
        if text.endswith(".py"):
            module = _load(text, lambda: _file(text))
            found = ", ".join(names_of(module)) or "none"
            raise error(
                "E3010", found=text, reason=f"the file holds these ops: {found}", fix=f"Name one: {text}:op_name."
            )
        if text in standard._BUILDERS:
            fix = f"Call opsgen.ops.{text} in a file, and name what it gives: FILE.py:NAME."
            raise error("E3010", found=text, reason="it is no op, but makes ops of functions", fix=fix)
        if text not in standard._NAMES:
            near = get_close_matches(text, standard._NAMES, n=1)
            fix = f"Did you mean {near[0]}? " if near else ""
            fix += f"One of your own is path/to/file.py:{text}."
            raise error(
                "E3007", found=text, known=", ".join(n for n in standard._NAMES if n not in standard._BUILDERS), fix=fix
            )
        return getattr(standard, text)
    module = _load(text, lambda: _file(place) if place.endswith(".py") else _module(place))
    op = getattr(module, name, None)
    if not isinstance(op, Op):
        what = f"{place} has no {name!r}" if op is None else f"{name!r} of {place} is a {type(op).__name__}, not an op"
        found = ", ".join(names_of(module)) or "none"
        raise error("E3010", found=text, reason=f"{what}; its ops are: {found}", fix="Name one of them.")
    return op


def ops_of(text: str) -> list[Op]:
    """The ops of a file, ``path/to/file.py``, or of a module.

    Raises:
        OpsgenError: E3010 it cannot be loaded, or has none; E1xxx the definition of one is wrong.
    """
    module = _load(text, lambda: _file(text) if text.endswith(".py") else _module(text))
    found = [v for v in vars(module).values() if isinstance(v, Op)]
    if not found:
        raise error("E3010", found=text, reason="it holds no op", fix="Name the file or module that defines them.")
    return found


def names_of(module: ModuleType) -> list[str]:
    """What a module calls its ops."""
    return [n for n, v in vars(module).items() if isinstance(v, Op)]


def _load(text: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the module prints is not our output
            return load()
    except (OpsgenError, InternalError):
        raise
    except FileNotFoundError as missing:
        raise error("E3010", found=text, reason=f"{missing.filename} does not exist", fix="Check the path.") from None
    except (Exception, SystemExit) as bad:
        last = traceback.extract_tb(bad.__traceback__)[-1]
        where = f" ({os.path.basename(last.filename)}, line {last.lineno})" if not isinstance(bad, ImportError) else ""
        raise error(
            "E3010", found=text, reason=f"importing it raised {type(bad).__name__}: {bad}{where}", fix="Correct it."
        ) from bad


def _file(path: str) -> ModuleType:
    """A Python file as a module, once. Its folder is where it imports from, as when Python runs it."""
    full = os.path.realpath(path)
    if not os.path.isfile(full):
        raise FileNotFoundError(2, "no such file", path)
    name = f"opsgen_file_{hashlib.sha256(full.encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    folder = os.path.dirname(full)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module(name: str) -> ModuleType:
    """A module, found from the current folder too: the command's own path does not hold it."""
    if not name:
        raise ImportError("no module was named")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)
