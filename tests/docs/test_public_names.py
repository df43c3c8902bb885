"""Every public name has its place: in the language's page with an example, and in the reference."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import opsgen as og
from opsgen.dsl.tensor import Tensor

ROOT = Path(__file__).resolve().parents[2]
NOT_OF_THE_LANGUAGE = {
    "Graph", "Library", "Op", "OpsgenWarning", "Packed", "Results", "Variant", "__version__", "load", "variant",
}  # fmt: skip
"""Those that the tutorial and the reference show."""
METHODS = [name for name, value in vars(Tensor).items() if callable(value) and not name.startswith("_")]


def examples(text: str) -> str:
    """The Python of a page."""
    return "".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))


def missing(names: list[str], code: str) -> list[str]:
    """The names that no example uses, as ``og.name`` or as a method."""
    return [name for name in names if not re.search(rf"\bog\.{name}\b|\.{name}\(", code)]


def test_each_construct_of_the_language_has_an_example() -> None:
    code = examples((ROOT / "docs" / "language.md").read_text(encoding="utf-8"))
    assert not missing([name for name in og.__all__ if name not in NOT_OF_THE_LANGUAGE], code)
    assert not missing([name for name in METHODS if name != "children"], code)


def test_a_name_without_an_example_is_found() -> None:
    assert missing(["sum", "prod"], "y = og.sum(x, over='n')  # og.products") == ["prod"]


def shown(reference: str) -> set[str]:
    """What the directives of a page document, and what its prose names. That they can be imported is for Sphinx."""
    found = set(re.findall(r"^\.\. auto(?:function|class):: [\w.]*\.(\w+)$", reference, flags=re.MULTILINE))
    for module in re.findall(r"^\.\. automodule:: ([\w.]+)$", reference, flags=re.MULTILINE):
        for name, value in vars(importlib.import_module(module)).items():
            if getattr(value, "__module__", "") == module and value.__doc__:
                found.add(name)
    return found | set(re.findall(r"`og\.(\w+)`", reference))


def test_each_public_name_is_in_the_reference() -> None:
    assert set(og.__all__) <= shown((ROOT / "docs" / "api.md").read_text(encoding="utf-8"))


def test_what_is_shown() -> None:
    page = ".. autofunction:: opsgen.runtime.load\n.. automodule:: opsgen.dsl.scan\n   :members:\n`og.int8` load_it"
    assert shown(page) == {"load", "cumsum", "cumprod", "cummax", "cummin", "int8"}


def test_each_public_name_says_what_it_is() -> None:
    values = {name: getattr(og, name) for name in og.__all__}
    assert not [name for name, value in values.items() if callable(value) and not (value.__doc__ or "").strip()]


def unknown(text: str) -> set[str]:
    """The names that a page writes as ``og.name`` and that opsgen does not have."""
    return {name for name in re.findall(r"\bog\.([A-Za-z_]\w*)", text) if not hasattr(og, name)}


def test_names_that_pages_mention_are_there() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not unknown(path.read_text(encoding="utf-8")), path


def test_a_name_that_is_not_there_is_found() -> None:
    assert unknown("`og.sum`, `og.summ(x)` and og.errors") == {"summ"}
