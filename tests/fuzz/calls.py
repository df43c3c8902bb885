"""Calls with arguments of every kind: right ones in any layout give the right result, wrong ones an error with a code.

Both ways round: a call that is right must not be refused, and no call may change an argument that is only read.
"""

import decimal
import fractions
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import opsgen as og
from opsgen.errors import OpsgenError
from opsgen.runtime import Library


@og.op
def affine(
    x: og.Tensor["...", "n"],
    w: og.Tensor["n"],
    b: og.Tensor["n"] | None = None,
    *,
    scale: float = 1.0,
    negate: bool = False,
):
    """±(x · w) · scale + b"""
    y = x * w * scale
    if negate:
        y = -y
    return y if b is None else y + b


@og.op
def lookup(table: og.Tensor["v", "n"], ids: og.Tensor["...", og.int64]):
    """table[ids]"""
    return table.at(v=ids)


@og.op
def advance(state: og.Mut["rows", "n"], x: og.Tensor["rows", "n"]):
    """state += x; the sum of each row, and its largest element"""
    new = state + x
    return og.results(total=og.sum(new, over="n"), most=og.max(new, over="n"), state=new)


@og.op
def product(x: og.Tensor["...", "k"], w: og.Tensor["m", "k"]):
    """x wᵀ"""
    return og.dot(x, w, over="k")


@dataclass
class State:
    lib: Library


def prepare(folder: Path) -> State:
    """The library, compiled where the folder does not hold it yet."""
    path = folder / "calls.so"
    if not path.exists():
        og.compile([affine, lookup, advance, product], target="x86", output=path)
    return State(og.load(path))


@dataclass
class Given:
    """An argument: what is passed; its values, or None where no call may take it; its framework."""

    value: Any
    values: np.ndarray[Any, Any] | None
    framework: str = "numpy"


# -- arrays that are right, in any layout ------------------------------------------------------------------------------
def array(draw: random.Random, shape: tuple[int, ...], dtype: str, framework: str, *, written: bool = False) -> Given:
    """Values of ``shape``, laid out somehow. An array to write to has memory of its own for each element."""
    if dtype == "int64":
        values = np.array([draw.randrange(5) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)
    else:
        values = np.array([draw.choice([0.0, 1.0, -2.5, draw.uniform(-9, 9)]) for _ in range(int(np.prod(shape)))])
        values = values.reshape(shape).astype(dtype)
    if draw.random() < 0.04 and dtype != "int64" and values.size:
        values.reshape(-1)[draw.randrange(values.size)] = draw.choice([np.nan, np.inf, -np.inf])
    laid = _layout(draw, values, written)
    if framework == "torch":
        if any(step < 0 for step in laid.strides) or not laid.flags.writeable or not laid.flags.aligned:
            laid = values.copy()
        tensor = torch.from_numpy(laid)
        kind = draw.randrange(5)
        if kind == 0 and tensor.dim() and not written:
            tensor = torch.from_numpy(np.ascontiguousarray(values)).expand(values.shape)
        elif kind == 1 and not written:
            tensor = torch.nn.Parameter(tensor, requires_grad=tensor.dtype.is_floating_point)
        return Given(tensor, values.copy(), "torch")
    if framework == "foreign":
        return Given(Foreign(laid), values.copy(), "tests")
    if draw.random() < 0.1:
        laid = laid.view(Sub)
    return Given(laid, values.copy())


class Sub(np.ndarray[Any, Any]):
    """A subclass of numpy's."""


class Foreign:
    """Another producer of DLPack."""

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory

    def __dlpack__(self, **asked: Any) -> Any:
        return self.memory.__dlpack__(**asked)

    def __dlpack_device__(self) -> Any:
        return self.memory.__dlpack_device__()


def _layout(draw: random.Random, values: np.ndarray[Any, Any], written: bool) -> np.ndarray[Any, Any]:
    kind = draw.randrange(9)
    n = values.ndim
    if kind == 0 and 0 < n < 5:  # gaps
        wide = np.zeros([e * draw.randrange(1, 4) + draw.randrange(3) for e in values.shape], values.dtype)
        steps = tuple(slice(None, None, w // e if e else 1) for w, e in zip(wide.shape, values.shape))
        laid = wide[steps][tuple(slice(e) for e in values.shape)]
    elif kind == 1 and n:  # backwards
        axes = tuple(slice(None, None, draw.choice([1, -1])) for _ in range(n))
        laid = np.empty_like(values)[axes]
    elif kind == 2:  # another order of dims
        order = draw.sample(range(n), n)
        laid = np.empty([values.shape[i] for i in order], values.dtype).transpose(np.argsort(order))
    elif kind == 3:  # an address that is no multiple of the element's size
        memory = np.zeros(values.nbytes + values.itemsize, np.uint8)
        laid = memory[1 : 1 + values.nbytes].view(values.dtype).reshape(values.shape)
    elif kind == 4 and not written:
        laid = values.copy()
        laid.flags.writeable = False
        return laid
    elif kind == 5 and n and not written and values.size:  # one element again and again
        axis = draw.randrange(n)
        first = values.take([0], axis)
        values[...] = first
        return np.broadcast_to(first.copy(), values.shape)
    else:
        return values.copy()
    laid[...] = values
    return laid


# -- what no call takes ------------------------------------------------------------------------------------------------
WRONG: list[Callable[[random.Random, np.ndarray[Any, Any]], Any]] = [
    lambda d, x: d.choice(
        ["x", b"x", 3, 2.5, True, 1j, None.__class__, object(), {"a": 1}, np.float32(2), np.dtype("f4")]
    ),
    lambda d, x: x.tolist(),
    lambda d, x: tuple(x.tolist()) if x.ndim else (1.0,),
    lambda d, x: x.astype(
        d.choice(["float16", "float64", "int8", "complex64", "O", "U5", ">f4", "?", "uint64", "M8[s]"])
    ),
    lambda d, x: np.zeros(x.shape, [("a", "f4"), ("b", "i1")]),
    lambda d, x: np.ma.masked_array(x, mask=True),
    lambda d, x: torch.zeros(x.shape, device="meta"),
    lambda d, x: torch.zeros((2, 3)).to_sparse(),
    lambda d, x: torch.quantize_per_tensor(torch.zeros(x.shape), 0.1, 0, torch.qint8),
    lambda d, x: torch.zeros(x.shape, dtype=torch.complex64).conj(),
    lambda d, x: torch.zeros(x.shape, dtype=torch.bfloat16),
    lambda d, x: torch.zeros((1,) * 70 + (3,)),
    lambda d, x: Foreign(np.zeros(3, object)),
    lambda d, x: Gone(),
    lambda d, x: x.dtype,
    lambda d, x: memoryview(np.ascontiguousarray(x)),
    lambda d, x: [x, x],
]


class Gone:
    """Its memory cannot be had."""

    def __dlpack__(self, **asked: Any) -> Any:
        raise RuntimeError("gone")

    def __dlpack_device__(self) -> Any:
        return (1, 0)


NUMBERS = [
    0, 1, -1, 2.5, float("nan"), float("inf"), -0.0, 1e-320,
    np.float32(0.1), np.float64(3), np.int64(4), np.uint8(200), fractions.Fraction(1, 3),
]  # fmt: skip
NO_NUMBERS = [
    None, "1", True, np.bool_(True), 1j, [1.0], np.ones(1), np.ones(()),
    10**400, decimal.Decimal("1.5"), object(), torch.ones(()), b"2",
]  # fmt: skip


# -- calls -------------------------------------------------------------------------------------------------------------
@dataclass
class Call:
    """A call, and what is right: the results by numpy in the order of the op's, or None where it must be refused."""

    op: str
    tensors: dict[str, Given | None]
    more: dict[str, Any]
    refused: bool
    shapes: list[tuple[int, ...]]
    dtype: str
    framework: str

    def expected(self) -> list[np.ndarray[Any, Any]]:
        v = {n: None if g is None or g.values is None else g.values for n, g in self.tensors.items()}
        with np.errstate(all="ignore"):
            if self.op == "affine":
                scale = np.dtype(self.dtype).type(float(self.more.get("scale", 1.0)))
                y = v["x"] * v["w"] * scale
                y = -y if self.more.get("negate") else y
                return [y if v["b"] is None else y + v["b"]]
            if self.op == "lookup":
                return [v["table"][v["ids"]]]
            if self.op == "advance":
                new = v["state"] + v["x"]
                return [new.sum(-1), new.max(-1, initial=-np.inf), new]
            return [(v["x"].astype(np.float64) @ v["w"].astype(np.float64).T).astype(self.dtype)]


def case(draw: random.Random, state: State) -> str:
    call = _call(draw)
    out, target = _out(draw, call)
    before = {n: _bytes(g.value) for n, g in call.tensors.items() if g is not None}
    words = {n: None if g is None else g.value for n, g in call.tensors.items()}
    words |= call.more | ({} if out is None else {"out": out})
    positional = [words.pop(n) for n in list(call.tensors)[: draw.randrange(len(call.tensors) + 1)]]
    function = state.lib[call.op]
    turns = 2 if draw.random() < 0.3 and call.op != "advance" else 1  # the second finds its plan
    try:
        for _ in range(turns):
            found = function(*positional, **words)
    except OpsgenError as problem:
        assert call.refused, f"{call} was refused: {problem}"
        for n, g in call.tensors.items():
            assert g is None or _bytes(g.value) == before[n], f"{n} was changed by a call that was refused"
        return f"{call.op}: {problem.code}"
    assert not call.refused, f"{call} was not refused"
    results = list(found) if isinstance(found, tuple) else [found]
    wanted = call.expected()
    if call.op == "advance":
        given = call.tensors["state"]
        assert given is not None
        results.append(given.value)
    assert len(results) == len(wanted)
    for got, right in zip(results, wanted):
        np.testing.assert_allclose(_numpy(got), right, rtol=2e-5 if call.dtype == "float32" else 1e-12, atol=1e-4)
    for n, g in call.tensors.items():
        if g is not None and (call.op, n) != ("advance", "state"):
            assert _bytes(g.value) == before[n], f"{n} was changed"
    if target is not None:
        assert all(a is b for a, b in zip(results, target)), "out is not what came back"
    return f"{call.op}: right"


def _bytes(value: Any) -> bytes | None:
    return _numpy(value).tobytes() if isinstance(value, (np.ndarray, torch.Tensor, Foreign)) and _plain(value) else None


def _plain(value: Any) -> bool:
    if (value.numel() if isinstance(value, torch.Tensor) else getattr(value, "size", 0)) > 10**6:
        return False
    return not isinstance(value, torch.Tensor) or (
        value.dim() <= 64
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_quantized
        and value.dtype is not torch.bfloat16
    )


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        return np.array(value.detach().resolve_conj())
    return np.array(value.memory if isinstance(value, Foreign) else value)


def _call(draw: random.Random) -> Call:
    op = draw.choice(["affine", "affine", "lookup", "advance", "product"])
    dtype = "float32"
    framework = draw.choice(["numpy", "numpy", "torch", "torch", "foreign"])
    sizes = [0, 1, 2, 3, 5, 8, 17]
    n, m, k = (draw.choice(sizes) for _ in range(3))
    leading = tuple(draw.choice(sizes) if i < 2 else 1 for i in range(draw.choice([0, 0, 1, 1, 2, 3, 40])))
    if (framework == "torch" and len(leading) == 40) or np.prod(leading) > 100:
        leading = leading[:1]
    make = lambda shape, of=dtype, **more: array(draw, shape, of, framework, **more)  # noqa: E731
    more: dict[str, Any] = {}
    refused = False
    tensors: dict[str, Given | None]
    if op == "affine":
        tensors = {"x": make((*leading, n)), "w": make((n,)), "b": make((n,)) if draw.random() < 0.5 else None}
        shapes = [(*leading, n)]
        if draw.random() < 0.6:
            wrong = draw.random() < 0.2
            more["scale"] = draw.choice(NO_NUMBERS if wrong else NUMBERS)
            refused |= wrong
        if draw.random() < 0.4:
            more["negate"] = draw.choice([True, False, np.bool_(True), 1, 0, "yes", None, [], np.ones(1)])
            refused |= not isinstance(more["negate"], (bool, np.bool_))
    elif op == "lookup":
        ids = make(leading, "int64")
        tensors = {"table": make((5, n)), "ids": ids}
        shapes = [(*leading, n)]
        if n and ids.values is not None and ids.values.size and draw.random() < 0.2:
            bad = ids.values.copy()
            bad.reshape(-1)[draw.randrange(bad.size)] = draw.choice([-1, 5, 2**40, -(2**63), 2**63 - 1])
            tensors["ids"] = Given(_as(framework, bad), bad, ids.framework)
            refused = True
    elif op == "advance":
        tensors = {"state": make((m, n), written=True), "x": make((m, n))}
        shapes = [(m,), (m,)]
        given = tensors["state"]
        assert given is not None
        refused |= isinstance(given.value, torch.Tensor) and given.value.requires_grad
    else:
        tensors = {"x": make((*leading, k)), "w": make((m, k))}
        shapes = [(*leading, m)]
    call = Call(op, tensors, more, refused, shapes, dtype, framework)
    if draw.random() < 0.35:
        _spoil(draw, call)
    return call


def _as(framework: str, values: np.ndarray[Any, Any]) -> Any:
    return (
        torch.from_numpy(values.copy())
        if framework == "torch"
        else Foreign(values.copy())
        if framework == "foreign"
        else values.copy()
    )


def _spoil(draw: random.Random, call: Call) -> None:
    """One thing about the call becomes wrong."""
    name = draw.choice([n for n, g in call.tensors.items() if g is not None])
    given = call.tensors[name]
    assert given is not None and given.values is not None
    values, kind = given.values, draw.randrange(6)
    call.refused = True
    if call.op == "advance" and draw.random() < 0.3 and values.size:
        call.tensors["x"] = call.tensors["state"]  # read where it is written
        return
    if kind <= 2:
        call.tensors[name] = Given(draw.choice(WRONG)(draw, values), None)
    elif kind == 3:  # another rank or extent
        axis = draw.randrange(values.ndim) if values.ndim else 0
        fits_any = (call.op, name) in (("lookup", "ids"),)
        if values.ndim == 0 or fits_any or (call.op, name) == ("lookup", "table"):
            call.tensors[name] = Given(_as(call.framework, np.zeros((), values.dtype)), None)
            if fits_any or values.ndim == 0:
                call.tensors[name] = Given("no array", None)
            return
        grown = np.concatenate(
            [values, np.zeros([1 if i == axis else e for i, e in enumerate(values.shape)], values.dtype)], axis
        )
        leads = name == "x" and call.op in ("affine", "product") and axis < values.ndim - 1
        rows_of_product = (call.op, name) == ("product", "w") and axis == 0
        if leads or rows_of_product:
            call.tensors[name] = Given("no array", None)
        else:
            call.tensors[name] = Given(_as(call.framework, grown), None)
    elif kind == 4:  # more elements than memory, in a shape that fits or not
        rows = (
            call.op in ("affine", "product")
            and name == "x"
            and values.shape[-1]
            and call.shapes[0][-1]
            and call.framework != "foreign"
        )
        shape = (2**41, values.shape[-1]) if rows else (2**29,) * values.ndim
        huge = rows or (values.ndim in (1, 2) and call.framework == "numpy" and call.op != "lookup")
        value: Any = "none"
        if huge and call.framework == "torch":
            value = torch.zeros(1, dtype=getattr(torch, call.dtype)).expand(shape)
        elif huge:
            value = np.lib.stride_tricks.as_strided(np.zeros(1, values.dtype), shape, (0,) * len(shape))
        call.tensors[name] = Given(value, None)
    else:
        call.more[draw.choice(["nothing", "_og_plan", "self", "x1"])] = 1


def _out(draw: random.Random, call: Call) -> tuple[Any, list[Any] | None]:
    """Memory for the results, right or wrong, or none."""
    if draw.random() < 0.5:
        return None, None
    kind = draw.randrange(8)
    memory = [array(draw, s, call.dtype, call.framework, written=True).value for s in call.shapes]
    if call.framework == "torch":
        memory = [m.detach() for m in memory]
    if kind <= 3:
        out = (
            memory[0]
            if len(memory) == 1
            else draw.choice([tuple(memory), dict(zip(("total", "most"), memory)), memory])
        )
        return out, memory
    call.refused = True
    if kind == 4:
        out = draw.choice(["x", 3, [], (), {}, {"out": 1}, (None, None), object()])
        return out, None
    if kind == 5:
        return _as(call.framework, np.zeros((*call.shapes[0], 2), call.dtype)), None
    if kind == 6:
        return _as(call.framework, np.zeros(call.shapes[0], "int16")), None
    overlapping = next(
        (g for g in call.tensors.values() if g is not None and g.values is not None and g.values.size), None
    )
    same = overlapping is not None and overlapping.values is not None and overlapping.values.shape == call.shapes[0]
    if len(call.shapes) == 1 and same and overlapping is not None and overlapping.values.dtype == call.dtype:
        return overlapping.value, None
    return "no memory", None
