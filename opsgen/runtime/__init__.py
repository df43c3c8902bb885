"""Load library files and call their ops. Needs numpy and apache-tvm-ffi, and imports nothing else."""

from opsgen.runtime.library import Library, load
from opsgen.runtime.packed import Packed

__all__ = ["Library", "Packed", "load"]
