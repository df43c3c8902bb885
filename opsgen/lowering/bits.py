"""Operations on the bits of integers as TIR expressions, for all targets."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from .statements import Expr, constant, known

Bind = Callable[[Expr], Expr]

_LOW = 0xFFFFFFFF


def bits(op: str, args: list[Expr], bind: Bind) -> Expr:
    """The value of one of `opsgen.dsl.tensor.BITS`; operands of one type, int64 for a wide product.

    ``bind`` makes a variable that TVM's analysis does not look behind.
    """
    if op == "bit_not":
        return tirx.bitwise_not(args[0])
    a, b = args
    if op == "wide_product":
        return wide_product(a, b)
    if op.startswith("shift"):
        return _shift(op, a, b, bind)
    return {"bit_and": tirx.bitwise_and, "bit_or": tirx.bitwise_or, "bit_xor": tirx.bitwise_xor}[op](a, b)


def wide_product(a: Expr, b: Expr) -> Expr:
    """All bits of the product of the lower halves of two int64, which are unsigned."""
    return tirx.Cast("int64", tirx.Mul(_low_half(a), _low_half(b)))


def _low_half(x: Expr) -> Expr:
    """The lower 32 bits of an int64, unsigned: TVM lets LLVM assume that products of signed numbers do not overflow,
    and those of unsigned numbers neither, which is true of these."""
    if (n := known(x)) is not None:
        return constant(n & _LOW, "uint64")
    return tirx.bitwise_and(tirx.Cast("uint64", x), constant(_LOW, "uint64"))


def _shift(op: str, a: Expr, b: Expr, bind: Bind) -> Expr:
    """Processors take counts modulo some width, and LLVM leaves those outside of the type's width undefined."""
    name = a.ty.dtype
    shift = tirx.shift_left if op == "shift_left" else tirx.shift_right
    if known(b) is not None:
        return shift(a, b)
    last = constant(int(name.lstrip("uint")) - 1, name)
    zero = constant(0, name)
    inside = tirx.And(b >= zero, b <= last)
    if op == "shift_right" and not name.startswith("uint"):
        return shift(a, bind(tirx.Select(inside, b, last)))
    return bind(tirx.Select(inside, shift(a, tirx.bitwise_and(b, last)), zero))
