"""What stands in ``og.Tensor[...]``: the dims and element types of a tensor parameter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import error
from . import dtypes, names
from .dtypes import DType, DTypeClass
from .location import user_line


@dataclass(frozen=True)
class TensorSpec:
    """The dims and element types of a tensor parameter. ``dtype`` None: the floating type compiled for."""

    dims: tuple[str, ...]
    dtype: DType | DTypeClass | None = None
    mutable: bool = False
    optional: bool = False

    @staticmethod
    def from_items(items: tuple[Any, ...], mutable: bool = False) -> TensorSpec:
        """From what stands in ``og.Tensor[...]``.

        Raises:
            DefinitionError: E1005 an entry is neither a dim name nor a dtype; E1006 a misplaced ``"..."``; E1007 a
                name twice.
        """
        dtype: DType | DTypeClass | None = None
        if items and not isinstance(items[-1], str):
            last = items[-1]
            dtype = last if isinstance(last, DTypeClass) else dtypes.as_dtype(last)
            items = items if dtype is None else items[:-1]
        dims: list[str] = []
        for item in items:
            name = "..." if item is Ellipsis else item
            if name != "..." and not names.dim(name):
                raise error(
                    "E1005",
                    where=user_line(),
                    parameter=f"Tensor[{', '.join(map(repr, items))}]",
                    found=f"{item!r} is no dim name",
                    fix=f'Dims are identifiers or "..." ({names.RULE}, min or max); '
                    "an element type comes last, such as og.int64.",
                )
            dims.append(name)
        if "..." in dims[1:]:
            raise error("E1006", where=user_line(), found=dims, what="a tensor parameter")
        if len(set(dims)) != len(dims):
            twice = next(d for d in dims if dims.count(d) > 1)
            raise error("E1007", where=user_line(), found=twice, what=f"Tensor{dims}")
        return TensorSpec(tuple(dims), dtype, mutable)

    @property
    def leading(self) -> bool:
        """Whether the tensor has any number of leading dims."""
        return self.dims[:1] == ("...",)

    @property
    def named(self) -> tuple[str, ...]:
        """The dims without ``"..."``."""
        return self.dims[1:] if self.leading else self.dims

    def __or__(self, other: Any) -> TensorSpec:
        if other is None or other is type(None):
            return replace(self, optional=True)
        return NotImplemented

    __ror__ = __or__


def dtype_choices(spec: TensorSpec) -> tuple[DType, ...]:
    """The element types that a parameter may be compiled for, the preferred one first."""
    if isinstance(spec.dtype, DType):
        return (spec.dtype,)
    return (spec.dtype or dtypes.floating).members
