"""The grammar of the command line. It imports nothing that takes time: --help uses it, and so does completion."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from .._version import __version__
from .output import UsageError

SHELLS = ("bash", "zsh", "fish")
STAGES = ("graph", "proof", "te", "ir", "source", "asm")

_OP = "a name such as rms_norm, path/to/file.py:op_name or package.module:op_name"


class Parser(argparse.ArgumentParser):
    """argparse's, which raises UsageError for a command line that cannot be understood."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)  # an abbreviation would change its meaning with a new option

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = Parser(prog="opsgen", description="Describe an operator once, compile it for a device, call it from Python.")
    top.add_argument("--version", action="version", version=f"opsgen {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    c = commands.add_parser(
        "compile", help="ops to one library file", description="Compiles ops into one library file."
    )
    _takes("op", c.add_argument("ops", nargs="*", metavar="OP", help=_OP))
    _takes("file", c.add_argument("-o", "--output", required=True, metavar="FILE", help="the library file to write"))
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
    _takes("op", i.add_argument("ops", nargs="*", metavar="OP", help=_OP))
    stages = "graph, proof, te, ir, source or asm (default: graph)"
    _takes("stage", i.add_argument("--stage", default="graph", help=stages))
    _choices(i, "for ir, source and asm (default: x86, this host)")

    ls = commands.add_parser(
        "list", help="ops, targets and schedules, or what a library file holds",
        description="Lists ops, targets and schedules; with FILE, what that library file holds, without loading it.",
    )  # fmt: skip
    _takes("library", ls.add_argument("file", nargs="?", metavar="FILE", help="a library file"))

    d = commands.add_parser(
        "doctor", help="what this machine has and lacks", description="Checks what compiling and running need."
    )
    d.add_argument("--no-measure", action="store_true", help="leave out the bandwidth and the flop/s of this machine")
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
    _takes("folder", n.add_argument("--folder", default=".", help="where (default: here)"))
    s = commands.add_parser(
        "completion",
        help="completion for a shell",
        description="Prints the script that completes this command line in a shell; docs/cli.md says where it goes.",
    )
    s.add_argument("shell", choices=SHELLS)
    for command in (c, i, ls, d, k, n, s):
        command.add_argument("--json", action="store_true", help="one JSON document on standard output")
    _bench(commands)
    return top


def _bench(commands: Any) -> None:
    b = commands.add_parser(
        "bench",
        help="kernels, checked and timed beside torch",
        description="Checks kernels against float64, and times them beside torch: those of a library file, which needs "
        "no TVM, or those of ops that are compiled first.",
    )
    what = "a library file, then names of ops in it (default: all); or ops to compile first"
    _takes("op or library", b.add_argument("what", nargs="+", metavar="FILE|OP", help=what))
    archs = "x86 levels that are measured, with commas between them (default: the best that this CPU has)"
    b.add_argument("--arch", metavar="A[,A]", help=archs)
    _takes("target", b.add_argument("--target", metavar="T[,T]", help="for ops: what they are compiled for (x86)"))
    words: dict[str, Any] = {"nargs": "+", "action": "extend"}
    sizes = "sets of sizes: all dims of an op, or some that change its workloads (default: its workloads)"
    b.add_argument("--dims", **words, default=[], metavar="NAME=N[,NAME=N]", help=sizes)
    b.add_argument("--workload", default="", metavar="NAME", help="only workloads whose label holds this")
    dtype = b.add_argument("--dtype", action="append", metavar="D[,D]", help="only kernels with inputs of such a type")
    _takes("dtype", dtype)
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
    _takes("target", command.add_argument("--target", default="x86", metavar="T[,T]", help=target))
    types = "floating types, or parameter=type for one parameter (default: float32)"
    _takes("dtype", command.add_argument("--dtype", action="append", metavar="D[,D]", help=types))
    pairs: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    command.add_argument("--dim", **pairs, metavar="NAME=N", help="dims with a fixed extent")
    command.add_argument("--attribute", **pairs, metavar="NAME=VALUE", help="values of attributes")
    command.add_argument("--absent", **pairs, metavar="NAME", help="optional tensors that calls leave out")


def _takes(what: str, action: argparse.Action) -> None:
    """Notes what words an argument takes, for `completion`."""
    action.takes = what  # type: ignore[attr-defined]
