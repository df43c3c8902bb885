"""Writes docs/errors.md from the table in opsgen/errors.py: ``python scripts/make_error_docs.py [--check]``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"

HEAD = """# Errors

Made from `opsgen/errors.py` by `scripts/make_error_docs.py`; change it there.

Every error that a user can cause is an `opsgen.errors.OpsgenError` with a stable code: `error.code`, and the start of
its message. A message says what was found, what the limit is, and what to do. In the templates below, `{found}` and the
like stand for the values of the case at hand; messages of E1xxx start with the line of the definition. The command line
prints `error E2001: ...` and ends with exit code 1 (see [cli.md](cli.md)).

`InternalError` is none of these: it is a bug in opsgen. Please report it with its message.
"""


def page() -> str:
    """The whole page."""
    sys.path.insert(0, str(ROOT))
    from opsgen.errors import ERRORS, WARNINGS

    families: dict[str, list[str]] = {}
    for code in sorted(ERRORS):
        families.setdefault(code[:2], []).append(code)
    parts = [HEAD]
    for codes in families.values():
        family = ERRORS[codes[0]].family
        title, _, meaning = (inspect.getdoc(family) or "").partition(": ")
        bases = ", ".join(f"`{b.__name__}`" for b in family.__bases__)
        parts.append(f"\n## {title}\n\n`{family.__name__}` ({bases}): {meaning}\n\n| code | message |\n|---|---|\n")
        for code in codes:
            entry = ERRORS[code]
            own = "" if entry.family is family else f" (`{entry.family.__name__}`)"
            message = _cell(entry.template.removeprefix("{where}"))
            parts.append(f"| {code}{own} | {message} |\n")
    parts.append("\n## Warnings\n\n`OpsgenWarning` (`UserWarning`). The message starts with the code.\n")
    parts.append("\n| code | message |\n|---|---|\n")
    parts.extend(f"| {code} | {_cell(text)} |\n" for code, text in sorted(WARNINGS.items()))
    return "".join(parts)


def _cell(text: str) -> str:
    """Text in a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("](", "\\](")


def main() -> int:
    """Writes the page; with --check, only says whether it is current."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not current: run python scripts/make_error_docs.py", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
