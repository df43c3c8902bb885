"""The page of the standard operators, made from their files: docs/_generated/operators.md, for Sphinx."""

from __future__ import annotations

import sys
from pathlib import Path

HEAD = """# Operators

Made from `opsgen/ops/`: one operator a file, with its formula, definition, reference and workloads. `from opsgen.ops
import rms_norm` gives the op.
"""


def page() -> str:
    """The whole page."""
    from opsgen.ops import all_ops

    parts = [HEAD]
    for name, op in sorted(all_ops().items()):
        text = (sys.modules[op.function.__module__].__doc__ or "").strip()
        title, _, rest = text.partition("\n")
        shown = str(op).removeprefix("<op ").removesuffix(">")
        parts.append(f"\n## {name}\n\n{title}\n\n```python\n{shown}\n```\n\n{_verbatim(rest.strip())}\n")
        if op.workloads:
            parts.append("\n| workload | dims |\n|---|---|\n")
            for w in op.workloads:
                dims = ", ".join(f"{d} {n}" for d, n in w.dims.items())
                parts.append(f"| {w.label} | {dims} |\n")
    return "".join(parts)


def _verbatim(text: str) -> str:
    """Text of a docstring as Markdown: what is indented there is set as it stands."""
    found, inside = [], False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if indented != inside and line.strip():
            found += ["", "```text"] if indented else ["```", ""]
            inside = indented
        found.append(line[4:] if inside else line.replace("|", "\\|").replace("[", "\\["))
    return "\n".join([*found, "```"] if inside else found)


def write(folder: Path) -> None:
    """Writes the page, if it is another than before."""
    folder.mkdir(exist_ok=True)
    path, text = folder / "operators.md", page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
