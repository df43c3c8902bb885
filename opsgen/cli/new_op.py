"""`opsgen new-op`: the skeleton of an operator of one's own, and its test."""

from __future__ import annotations

import argparse
import keyword
import os
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from ..errors import error
from ..runtime.library_file import write_bytes
from .output import OK, UsageError, print_json, put


def run(arguments: argparse.Namespace) -> int:
    """The command. Writes NAME.py and test_NAME.py, or nothing."""
    name = arguments.name
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or name != name.lower():
        raise UsageError(f"{name!r} is no name for an op: wanted a Python name in lower case, such as rms_norm")
    folder = Path(arguments.folder)
    files = {folder / f"{name}.py": "op.py.j2", folder / f"test_{name}.py": "test_op.py.j2"}
    if not os.path.isdir(folder):
        raise error("E3006", path=folder, found="the folder does not exist")
    for path in files:
        if os.path.exists(path):
            raise error("E3006", path=path, found="it is there already, and is not replaced")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    made = {path: environment.from_string(_template(source)).render(name=name) for path, source in files.items()}
    for path, text in made.items():
        write_bytes(path, text.encode())
    if arguments.json:
        print_json({"files": list(map(str, files))})
        return OK
    op, test = files
    put(f"{op}\n{test}\nNext: change the definition, then\n  python -m pytest {test}\n  opsgen inspect {op}:{name}\n")
    return OK


def _template(name: str) -> str:
    return (resources.files("opsgen") / "templates" / "new_op" / name).read_text(encoding="utf-8")
