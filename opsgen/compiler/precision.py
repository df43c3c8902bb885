"""What kernels may give up of the default precision: products and sums of floats in float32."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import error


@dataclass(frozen=True)
class Precision:
    """What tensor cores may do where that is faster; a target without them ignores it.

    Attributes:
        float32_products: "float32"; or "tf32": float32 operands of a contraction are rounded to 10 bits of mantissa.
        float8_sums: "float32": sums of 128 products of float8, as the hardware has them, are added up in float32. Or
            "fast": the hardware sums them all. Hopper's tensor cores keep fewer bits than float32. Sums of 8192 terms
            on an H200 are off by 1.3e-4 (fast: 2.0e-3) of their root mean square for N(0, 1) operands, and by 6.2e-4
            (fast: 0.13) of their value for positive ones; torch._scaled_mm has the same errors with use_fast_accum
            False and True.

    Raises:
        CompileError: E3014, another value.
    """

    float32_products: str = "float32"
    float8_sums: str = "float32"

    def __post_init__(self) -> None:
        for option, known in CHOICES.items():
            found = getattr(self, option)
            if found not in known:
                raise error("E3014", option=option, found=found, known=list(known))


CHOICES = {"float32_products": ("float32", "tf32"), "float8_sums": ("float32", "fast")}
"""The options, and the values of each: the default first."""
