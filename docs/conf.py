"""Sphinx: ``make docs`` builds docs/ to build/docs, and fails at any warning, a broken link among them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import op_docs  # noqa: E402

from opsgen._version import __version__  # noqa: E402

project = "opsgen"
author = "The opsgen authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"opsgen {release}"
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures are not all documented; links in pages are checked
suppress_warnings = ["myst.header"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "none"  # signatures have them
autodoc_member_order = "bysource"
exclude_patterns = ["_generated/README.md"]


def setup(app: Any) -> None:
    """Writes the pages that are made from the code."""
    app.connect("builder-inited", lambda app: op_docs.write(Path(app.srcdir) / "_generated"))
