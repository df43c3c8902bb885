"""A block of TIR statements under construction, and what kernels of every target are made of: loops, binds, buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PointerType, PrimType

Expr = Any
"""A TIR expression; TVM's own classes are not typed."""

KINDS = {
    "serial": tirx.ForKind.SERIAL,
    "parallel": tirx.ForKind.PARALLEL,
    "vectorized": tirx.ForKind.VECTORIZED,
    "unrolled": tirx.ForKind.UNROLLED,
}


def i64(value: int) -> Expr:
    """An int64 constant: positions are 64 bits wide everywhere, so that no tensor is too large."""
    return tirx.IntImm("int64", value)


def constant(value: float | int | bool, dtype: str) -> Expr:
    """A constant of a TIR type."""
    if dtype == "bool":
        return tirx.IntImm("bool", int(value))
    return tirx.FloatImm(dtype, float(value)) if dtype.startswith("float") else tirx.IntImm(dtype, int(value))


def is_constant(x: Expr) -> bool:
    """Whether an expression is a literal, which needs no variable."""
    return isinstance(x, (tirx.IntImm, tirx.FloatImm))


def known(x: Expr) -> int | None:
    """The value of a constant int expression."""
    return int(x.value) if isinstance(x, tirx.IntImm) else None


def add(a: Expr, b: Expr) -> Expr:
    return b if known(a) == 0 else a if known(b) == 0 else a + b


def mul(a: Expr, b: Expr) -> Expr:
    x, y = known(a), known(b)
    if x is not None and y is not None:
        return i64(x * y)
    return b if known(a) == 1 else a if known(b) == 1 else a * b


def sub(a: Expr, b: Expr) -> Expr:
    x, y = known(a), known(b)
    return i64(x - y) if x is not None and y is not None else a if y == 0 else a - b


def ceildiv(a: Expr, b: int) -> Expr:
    """a / b rounded up, for a ≥ 0."""
    n = known(a)
    return i64(-(-n // b)) if n is not None else tirx.truncdiv(a + i64(b - 1), i64(b))


def truncdiv(a: Expr, b: int) -> Expr:
    """a / b rounded down, for a ≥ 0."""
    n = known(a)
    if n is not None:
        return i64(n // b)
    return a if b == 1 else tirx.truncdiv(a, i64(b))


_TAKEN = frozenset({
    "alignas", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr", "continue",
    "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float", "for",
    "friend", "goto", "half", "if", "inline", "int", "long", "mutable", "namespace", "new", "operator", "private",
    "protected", "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "template", "this", "throw", "true", "try", "typedef", "typename", "uchar", "uint", "union", "unsigned", "ushort",
    "using", "virtual", "void", "volatile", "while", "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log",
    "log1p", "max", "memcpy", "min", "nearbyint", "pow", "round", "sin", "sqrt", "tanh",
})  # fmt: skip


def variable_name(name: str) -> str:
    """A name of a dim or a parameter as that of a variable: C has words and functions of its own."""
    return f"{name}_" if name in _TAKEN else name


class Code:
    """Statements in order. Loops and conditions are `with` blocks that give a nested `Code`.

    ``scope`` is where a thread's own buffers lie: "global" on CPUs (see `local`), "local" on GPUs.
    """

    def __init__(
        self, lane: Expr | None = None, width: int = 1, around: list[Any] | None = None, *, scope: str = "global"
    ) -> None:
        self.statements: list[Any] = []
        self.scope = scope
        self._lane = i64(0) if lane is None else lane  # of the vector loop that this lies in
        self._width = width
        self._around = self.statements if around is None else around  # what comes before that loop

    def emit(self, statement: Any) -> None:
        self.statements.append(statement)

    def bind(self, value: Expr, name: str = "t") -> Expr:
        """A variable with the value; literals and variables stay as they are, and so do bools.

        A vector of bools cannot be bound: TVM 0.27's LLVM code generator fails on it ("IntImm can only take scalar").
        """
        if is_constant(value) or isinstance(value, tirx.Var) or value.ty.dtype == "bool":
            return value
        var = tirx.Var(variable_name(name), value.ty.dtype)
        self.emit(tirx.Bind(var, value))
        return var

    def bind_apart(self, value: Expr, name: str = "t") -> Expr:
        """Like `bind`, through memory on the stack that LLVM turns into a register.

        TVM 0.27 puts what a variable is bound to in its place while it analyses the conditions of `Select`: long
        chains of them, max(max(max(…))), take exponential time. What comes out of memory ends that.
        """
        if is_constant(value) or isinstance(value, tirx.Var) or value.ty.dtype == "bool":
            return value
        if self.scope == "local":  # a GPU's kernels meet no such analysis
            return self.bind(value, name)
        buffer = tirx.decl_buffer((self._width,), value.ty.dtype, name, scope=self.scope, data_alignment=64)
        self._around.append(tirx.AllocBuffer(buffer))
        self.store(buffer, value, self._lane)
        return self.bind(tirx.BufferLoad(buffer, [self._lane]), name)

    def local(self, dtype: str, size: int, name: str) -> Any:
        """A buffer of one thread. On CPUs: below 1 KB it is on the stack, and in registers where its indices are
        constant; a larger one comes from the thread's pool, which is not for inner loops.

        Scope "global" on purpose: TVM 0.27 puts constant-size buffers of up to 1 KB on the stack only in that scope,
        and asks its workspace allocator for others. Remove this note when "local" does the same.
        """
        alignment = 64 if self.scope == "global" else 16
        buffer = tirx.decl_buffer((size,), dtype, name, scope=self.scope, data_alignment=alignment)
        self.emit(tirx.AllocBuffer(buffer))
        return buffer

    def store(self, buffer: Any, value: Expr, index: Expr) -> None:
        self.emit(tirx.BufferStore(buffer, value, [index]))

    def call(self, function: str, *args: Expr) -> None:
        self.emit(tirx.Evaluate(tirx.call_extern("int32", function, *args)))

    @contextmanager
    def loop(self, extent: Expr, name: str, kind: str = "serial") -> Iterator[tuple[Expr, Code]]:
        """``for name in range(extent)``; gives the variable and the body. A serial loop of one turn is no loop."""
        if isinstance(extent, int):
            extent = i64(extent)
        if known(extent) == 1 and kind in ("serial", "unrolled"):
            body = self._nested()
            yield i64(0), body
            self.statements.extend(body.statements)
            return
        var = tirx.Var(variable_name(name), "int64")
        width = known(extent)
        if kind == "vectorized" and width is not None:
            body = Code(var, width, self.statements, scope=self.scope)
        else:
            body = Code(scope=self.scope)
        yield var, body
        if body.statements and known(extent) != 0:
            self.emit(tirx.For(var, i64(0), extent, KINDS[kind], body.block()))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[Code]:
        """``if condition``."""
        body = self._nested()
        yield body
        if body.statements:
            self.emit(tirx.IfThenElse(condition, body.block(), None))

    @contextmanager
    def either(self, condition: Expr) -> Iterator[tuple[Code, Code]]:
        """``if condition … else …``."""
        then, otherwise = self._nested(), self._nested()
        yield then, otherwise
        self.emit(tirx.IfThenElse(condition, then.block(), otherwise.block()))

    def _nested(self) -> Code:
        return Code(self._lane, self._width, None if self._width == 1 else self._around, scope=self.scope)

    def block(self) -> Any:
        if not self.statements:
            return tirx.Evaluate(tirx.IntImm("int32", 0))
        return self.statements[0] if len(self.statements) == 1 else tirx.SeqStmt(self.statements)


def pointer(name: str, dtype: str) -> Any:
    """A pointer parameter of a kernel."""
    return tirx.Var(name, PointerType(PrimType(dtype)))


def view(var: Any, dtype: str, name: str, align: int) -> Any:
    """The memory behind a pointer as one long buffer; ``align`` in bytes is all that generated code may assume."""
    return tirx.decl_buffer((i64(1 << 48),), dtype, name, data=var, data_alignment=align)


def function(name: str, params: list[Any], body: Any) -> Any:
    """A kernel. Pointers do not alias: one that is read and written is passed once."""
    for key, value in (("device_id", 0), ("device_type", 1)):  # asked for where scratch memory is allocated
        body = tirx.AttrStmt(tvm.ir.StringImm("default"), key, tirx.IntImm("int32", value), body)
    return tirx.PrimFunc(params, body).with_attr("global_symbol", name).with_attr("tirx.noalias", True)
