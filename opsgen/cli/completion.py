"""`opsgen completion`: the script that completes the command line in a shell. shtab makes it of the grammar."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from opsgen.targets.names import ALIASES, known

from .. import ops
from ..dsl.dtypes import DTYPES
from ..errors import error
from .grammar import STAGES, parser
from .output import OK, print_json, put

_BASH = """
_opsgen_words() {{ compgen -W "$2" -- "$1"; }}
_opsgen_files() {{ compgen -d -- "$1"; compgen -f -X "!*.$2" -- "$1"; }}
_opsgen_op() {{ _opsgen_words "$1" "{op}"; _opsgen_files "$1" py; }}
_opsgen_library() {{ _opsgen_files "$1" so; }}
_opsgen_op_or_library() {{ _opsgen_op "$1"; compgen -f -X "!*.so" -- "$1"; }}
_opsgen_target() {{ _opsgen_words "$1" "{target}"; }}
_opsgen_dtype() {{ _opsgen_words "$1" "{dtype}"; }}
_opsgen_stage() {{ _opsgen_words "$1" "{stage}"; }}
_opsgen_file() {{ compgen -f -- "$1"; }}
_opsgen_folder() {{ compgen -d -- "$1"; }}
"""

_ZSH = """
_opsgen_op() {{ _alternative 'ops:op:({op})' 'files:file:_files -g "*.py"' }}
_opsgen_library() {{ _files -g "*.so" }}
_opsgen_op_or_library() {{ _alternative 'ops:op:({op})' 'files:file:_files -g "*.(py|so)"' }}
_opsgen_target() {{ compadd -- {target} }}
_opsgen_dtype() {{ compadd -- {dtype} }}
_opsgen_stage() {{ compadd -- {stage} }}
_opsgen_file() {{ _files }}
_opsgen_folder() {{ _files -/ }}
"""

_FISH = """
function _opsgen_op; string split ' ' -- '{op}'; __fish_complete_suffix .py; end
function _opsgen_library; __fish_complete_suffix .so; end
function _opsgen_op_or_library; _opsgen_op; __fish_complete_suffix .so; end
function _opsgen_target; string split ' ' -- '{target}'; end
function _opsgen_dtype; string split ' ' -- '{dtype}'; end
function _opsgen_stage; string split ' ' -- '{stage}'; end
function _opsgen_file; __fish_complete_path (commandline -ct); end
function _opsgen_folder; __fish_complete_directories (commandline -ct); end
"""

_PREAMBLES = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def run(arguments: argparse.Namespace) -> int:
    """The command."""
    text = script(arguments.shell)
    if arguments.json:
        print_json({"shell": arguments.shell, "script": text})
    else:
        put(text)
    return OK


def script(shell: str) -> str:
    """The script for bash, zsh or fish.

    Raises:
        TargetError: E2007, shtab is missing.
    """
    try:
        import shtab
    except ImportError as missing:
        raise error("E2007", what="shell completions", package="shtab", found=missing) from None
    grammar = parser()
    for action in _actions(grammar):
        takes = getattr(action, "takes", None)
        if takes is not None:
            name = f"_opsgen_{takes.replace(' ', '_')}"
            action.complete = {"bash": name, "zsh": name, "fish": f"({name})"}  # type: ignore[attr-defined]
    words = {
        "op": [n for n in ops._NAMES if n not in ops._BUILDERS],
        "target": _targets(),
        "dtype": list(DTYPES),
        "stage": STAGES,
    }
    preamble = _PREAMBLES[shell].format(**{kind: " ".join(found) for kind, found in words.items()})
    made: str = shtab.complete(grammar, shell, preamble=preamble)
    return made.rstrip("\n") + "\n"


def _targets() -> list[str]:
    listed = [f"{kind}/{arch}" for kind, archs in known().items() for arch in archs]
    return ["x86", *listed, *ALIASES]


def _actions(grammar: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in grammar._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
