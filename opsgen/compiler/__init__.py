"""Compile: problems to plans, plans to objects, objects to one library file."""

from .compile import compile
from .inspect import inspect
from .problem import Variant, variant

__all__ = ["Variant", "compile", "inspect", "variant"]
