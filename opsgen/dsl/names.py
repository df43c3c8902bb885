"""Which names dims, parameters, results and ops may have: those that the manifest of a library takes."""

from __future__ import annotations

import keyword

RULE = "ASCII, and no Python keyword"
LIBRARY_MEMBERS = frozenset({"manifest", "manifests", "ops", "pack", "path", "paths", "save", "stats"})
"""What `opsgen.runtime.Library` has as attributes of its own: an op of such a name is reached by ``lib["save"]``."""

_FUNCTIONS = ("max", "min")  # of the manifest's expressions over dims


def identifier(name: object) -> bool:
    """Whether it is an ASCII identifier and no keyword."""
    return isinstance(name, str) and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def dim(name: object) -> bool:
    """Whether a dim may have this name."""
    return identifier(name) and name not in _FUNCTIONS


def public(name: object) -> bool:
    """Whether an op or a result may have this name: it is an attribute of a library or of a named tuple."""
    return identifier(name) and not str(name).startswith("_")
