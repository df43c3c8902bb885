"""Arguments, exit codes and the printing of errors. Commands are imported when they run: --help loads nothing."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .._version import __version__
from ..errors import InternalError, OpsgenError
from .output import BROKEN_PIPE, BUG, FAILED, INTERRUPTED, OK, USAGE, UsageError

_OP = "a name such as rms_norm, path/to/file.py:op_name or package.module:op_name"


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)  # an abbreviation would change its meaning with a new option

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = _Parser(prog="opsgen", description="Describe an operator once, compile it for a device, call it from Python.")
    top.add_argument("--version", action="version", version=f"opsgen {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    c = commands.add_parser(
        "compile", help="ops to one library file", description="Compiles ops into one library file."
    )
    c.add_argument("ops", nargs="*", metavar="OP", help=_OP)
    c.add_argument("-o", "--output", required=True, metavar="FILE", help="the library file to write")
    _choices(c, "targets of one kind, with commas between them (default: x86, this host)")
    c.add_argument(
        "--float32-products",
        default="float32",
        metavar="TYPE",
        help="float32, or tf32: tensor cores may multiply float32 operands with 10 bits of mantissa",
    )
    c.add_argument(
        "--float8-sums",
        default="float32",
        metavar="HOW",
        help="float32, or fast: tensor cores may sum products of float8 with fewer bits",
    )

    i = commands.add_parser(
        "inspect",
        help="what an op becomes, stage by stage",
        description="Shows one stage of an op on its way to a kernel.",
    )
    i.add_argument("ops", nargs="*", metavar="OP", help=_OP)
    i.add_argument("--stage", default="graph", help="graph, proof, te, ir, source or asm (default: graph)")
    _choices(i, "for ir, source and asm (default: x86, this host)")

    ls = commands.add_parser(
        "list", help="ops, targets and schedules, or what a library file holds",
        description="Lists ops, targets and schedules; with FILE, what that library file holds, without loading it.",
    )  # fmt: skip
    ls.add_argument("file", nargs="?", metavar="FILE", help="a library file")

    d = commands.add_parser(
        "doctor", help="what this machine has and lacks", description="Checks what compiling and running need."
    )
    c.add_argument("--no-cache", action="store_true", help="compile everything anew, and keep nothing for next time")

    k = commands.add_parser(
        "cache", help="what the compile cache holds", description="Shows or empties the compile cache."
    )
    k.add_argument("action", choices=("list", "info", "clear"))
    n = commands.add_parser(
        "new-op",
        help="the skeleton of an op of one's own",
        description="Writes NAME.py and test_NAME.py, with comments.",
    )
    n.add_argument("name", metavar="NAME")
    n.add_argument("--folder", default=".", help="where (default: here)")
    for command in (c, i, ls, d, k, n):
        command.add_argument("--json", action="store_true", help="one JSON document on standard output")
    _bench(commands)
    return top


def _bench(commands: Any) -> None:
    b = commands.add_parser(
        "bench",
        help="a library file's kernels, checked and timed",
        description="Checks the kernels of a library file against float64, and times them beside torch. Needs no TVM.",
    )
    b.add_argument("file", metavar="FILE", help="a library file")
    b.add_argument("ops", nargs="*", metavar="OP", help="names of ops in it (default: all)")
    words: dict[str, Any] = {"nargs": "+", "action": "extend"}
    sizes = "sets of sizes: all dims of an op, or some that change its workloads (default: its workloads)"
    b.add_argument("--dims", **words, default=[], metavar="NAME=N[,NAME=N]", help=sizes)
    b.add_argument("--workload", default="", metavar="NAME", help="only workloads whose label holds this")
    b.add_argument("--dtype", action="append", metavar="D[,D]", help="only kernels with inputs of such a type")
    b.add_argument("--attribute", **words, default=[], metavar="NAME=VALUE", help="only kernels with these values")
    b.add_argument("--absent", **words, metavar="NAME", help="only kernels without exactly these optional tensors")
    b.add_argument("--scalar", **words, default=[], metavar="NAME=X", help="values of run-time scalars")
    b.add_argument("--module", action="append", default=[], metavar="M", help="defines ops: a module or a .py file")
    b.add_argument("--device", metavar="D", help="cpu or cuda:N (default: the library's kind, cuda:0)")
    b.add_argument("--rounds", type=int, metavar="N", help="samples of each contender (default: 50 on GPUs, else 11)")
    b.add_argument("--compile", action="store_true", help="beside torch.compile too: seconds for each size")
    where = "a JSON document on standard output, or in FILE beside the table"
    b.add_argument("--json", nargs="?", const="-", metavar="FILE", help=where)


def _choices(command: argparse.ArgumentParser, target: str) -> None:
    command.add_argument("--target", default="x86", metavar="T[,T]", help=target)
    command.add_argument(
        "--dtype", action="append", metavar="D[,D]",
        help="floating types, or parameter=type for one parameter (default: float32)",
    )  # fmt: skip
    pairs: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    command.add_argument("--dim", **pairs, metavar="NAME=N", help="dims with a fixed extent")
    command.add_argument("--attribute", **pairs, metavar="NAME=VALUE", help="values of attributes")
    command.add_argument("--absent", **pairs, metavar="NAME", help="optional tensors that calls leave out")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # formulas in docstrings are not ASCII; what reads us may be
            stream.reconfigure(errors="replace")
    as_json = "--json" in words
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help and --version
        return _flush(stop.code if isinstance(stop.code, int) else OK)
    except UsageError as bad:
        _report("usage", str(bad), as_json, prefix=bad.usage)
        return USAGE
    except BrokenPipeError:
        # What reads us has closed. The interpreter flushes standard output once more when it ends: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _report("interrupted", "interrupted", as_json)
        return INTERRUPTED
    except OpsgenError as failure:
        code_, _, message = str(failure).partition(": ")
        _report(failure.code or code_, message, as_json)
        return FAILED
    except Exception as bug:
        if os.environ.get("OPSGEN_TRACEBACK"):
            raise
        what = str(bug) if isinstance(bug, InternalError) else f"{type(bug).__name__}: {bug}"
        message = (
            f"{what}\nThis is a bug in opsgen {__version__}. Please report it to the project's issue tracker, with the "
            "command line and what it prints with OPSGEN_TRACEBACK=1 set."
        )
        _report("internal", message, as_json)
        return BUG


def _run(words: list[str]) -> int:
    arguments = parser().parse_args(words)
    if arguments.command == "compile":
        from .compile import run
    elif arguments.command == "inspect":
        from .inspect import run
    elif arguments.command == "list":
        from .listing import run
    elif arguments.command == "cache":
        from .cache import run
    elif arguments.command == "new-op":
        from .new_op import run
    elif arguments.command == "bench":
        from .bench import run
    else:
        from .doctor import run
    return run(arguments)


def _flush(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _report(code: str, message: str, as_json: bool, prefix: str = "") -> None:
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message}}), file=sys.stderr)
    elif code in ("usage", "interrupted"):
        print(f"{prefix}error: {message}" if code == "usage" else message, file=sys.stderr)
    else:
        print(f"error {code}: {message}" if code != "internal" else f"internal error: {message}", file=sys.stderr)
