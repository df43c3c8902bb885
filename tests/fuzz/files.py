"""Library files and packed weights that are damaged, cut, put together wrongly, or sealed over nonsense.

Whatever was changed, loading gives an error with a code, or a library; a file whose seal does not fit is never loaded.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from opsgen.errors import CallError
from opsgen.runtime import Packed, load
from opsgen.runtime.library_file import read_manifest
from tests.runtime import handmade

FOOTER = 64
DAMAGE = {"E4011", "E4012", "E4013", "E4016"}
SENSE = {"E4013", "E4014", "E4015", "E4016"}
VALUES = [
    None, True, False, -1, 0, 1, 2**63, -(2**70), 1.5, float("nan"), float("inf"), "", "...", "rows", "a b",
    "x" * 5000, "é", "\ud800", "\0", "rows // 0", "rows * (" * 30, "max(rows, 9, 9)", "9" * 4000, "__import__('os')",
    "lambda: 0", [], [0], [[]], ["rows"], {}, {"a": 1}, {"dims": []}, [None] * 50,
]  # fmt: skip


@dataclass
class State:
    folder: Path
    data: bytes
    elf: bytes
    manifest: bytes
    other: bytes
    packed: bytes
    numbers: Iterator[int] = field(default_factory=itertools.count)


def prepare(folder: Path) -> State:
    """Two libraries and a packed weight."""
    import numpy as np

    path = handmade.write(folder / "first.so")
    other = handmade.write(folder / "second.so", handmade.scale_add())
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data, len(data) - FOOTER + 16)[0]
    elf, manifest = data[: -FOOTER - length], data[-FOOTER - length : -FOOTER]
    weight = load(path).pack("idle.weight", np.arange(7, dtype=np.float32))
    return State(folder, data, elf, manifest, other.read_bytes(), weight.tobytes())


def seal(elf: bytes, manifest: bytes, number: int = 1) -> bytes:
    """A file whose footer fits, by docs/library-format.md."""
    body = elf + manifest
    return (
        body + struct.pack("<8sIIQQ", b"OPSGENLB", number, 0, len(manifest), len(body) + FOOTER) + sha256(body).digest()
    )


def case(draw: random.Random, state: State) -> str:
    kind = draw.choice([damaged, damaged, damaged, put_together, nonsense, nonsense, nonsense, no_json, packed])
    return f"{kind.__name__}: {kind(draw, state)}"


def damaged(draw: random.Random, state: State) -> str:
    """Bits, bytes, blocks, lengths."""
    data = bytearray(state.data)
    start = draw.choice([0, 0, len(state.elf), len(data) - FOOTER])
    end = draw.choice([64, len(state.elf), len(data)]) if start == 0 else len(data)
    for _ in range(draw.choice([1, 1, 1, 3, 40])):
        at = draw.randrange(start, end)
        change = draw.randrange(6)
        if change <= 2:
            data[at] ^= 1 << draw.randrange(8)
        elif change == 3:
            data[at : at + 8] = draw.choice([b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7])
        elif change == 4:
            size = draw.randrange(1, 5000)
            data[at : at + size] = draw.randbytes(size) if draw.random() < 0.5 else b"\0" * size
        else:
            other = draw.randrange(len(data))
            size = draw.randrange(1, 300)
            data[at : at + size], data[other : other + size] = data[other : other + size], data[at : at + size]
        end = min(end, len(data)) if end <= len(data) and start < min(end, len(data)) else len(data)
        start = min(start, len(data) - 1)
    if draw.random() < 0.25:
        data = data[
            : draw.choice([draw.randrange(len(data)), draw.randrange(100), max(0, len(data) - draw.randrange(200))])
        ]
    if draw.random() < 0.1:
        data += draw.randbytes(draw.randrange(1, 200))
    if bytes(data) == state.data:
        return "nothing changed"
    return _refused(state, bytes(data), DAMAGE)


def put_together(draw: random.Random, state: State) -> str:
    """Sections of two files, in any order and number."""
    theirs = state.other
    parts = [
        state.elf, state.manifest, state.data[-FOOTER:], theirs[-FOOTER:], theirs[:-FOOTER], theirs, state.data, b"",
        b"\x7fELF",
    ]  # fmt: skip
    data = b"".join(draw.choice(parts) for _ in range(draw.randrange(5)))
    if data in (state.data, theirs):
        return "nothing changed"
    return _refused(state, data, DAMAGE)


def _refused(state: State, data: bytes, codes: set[str]) -> str:
    path = state.folder / "changed.so"
    path.write_bytes(data)
    try:
        load(path)
    except CallError as problem:
        assert problem.code in codes, problem
        return str(problem.code)
    raise AssertionError(f"{len(data)} bytes were accepted")


def nonsense(draw: random.Random, state: State) -> str:
    """A manifest with values of other kinds, fields gone or doubled, long and deep, under a seal that fits."""
    data = json.loads(state.manifest)
    for _ in range(draw.choice([1, 1, 2, 5])):
        _change(draw, data)
    text = json.dumps(data).encode()
    return _sealed(state, text, draw.choice([1, 1, 1, 1, 0, 2, 2**32 - 1]))


def _change(draw: random.Random, data: Any) -> None:
    place = data
    while True:
        if not place:
            return
        key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
        if not (isinstance(place[key], (dict, list)) and place[key] and draw.random() < 0.85):
            break
        place = place[key]
    kind = draw.randrange(8)
    if kind <= 3:
        place[key] = copy.deepcopy(draw.choice(VALUES))
    elif kind == 4:
        del place[key]
    elif kind == 5 and isinstance(place, list):
        place *= draw.choice([2, 3, 500 if len(place) < 20 else 5])
    elif kind == 6 and isinstance(place, dict):
        place[draw.choice(["more", "name", "", "\ud800", "dims"])] = copy.deepcopy(draw.choice(VALUES))
    else:
        deep: Any = "rows"
        for _ in range(draw.choice([3, 50, 400])):
            deep = [deep] if draw.random() < 0.5 else {"a": deep}
        place[key] = deep


def no_json(draw: random.Random, state: State) -> str:
    """Bytes that are no JSON, or JSON that no parser likes."""
    text = bytearray(state.manifest)
    kind = draw.randrange(7)
    if kind == 0:
        text = bytearray(draw.randbytes(draw.randrange(400)))
    elif kind == 1:
        for _ in range(draw.choice([1, 5])):
            text[draw.randrange(len(text))] = draw.choice([0xFF, 0xC0, 0x80, 0, 0x22, 0x7B, 0x5D])
    elif kind == 2:
        text = bytearray(draw.choice([b"[", b'{"a":', b"[{"]) * draw.choice([10, 1000, 100_000]))
    elif kind == 3:
        text = bytearray(b'{"format": ' + b"9" * draw.choice([20, 4000, 10_000]) + b"}")
    elif kind == 4:
        text = text[: draw.randrange(len(text))]
    elif kind == 5:
        text = bytearray(draw.choice([b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"1 "])) + text
    else:
        at = text.index(b'"kernels"')
        text[at:at] = draw.choice([b'"format": 1e999,', b'"kernels": [],', b'"ops": {},', b"// a comment\n", b"NaN,"])
    return _sealed(state, bytes(text), 1)


def _sealed(state: State, manifest: bytes, number: int) -> str:
    path = state.folder / f"sealed-{next(state.numbers)}.so"  # one that was loaded must not be written again
    path.write_bytes(seal(state.elf, manifest, number))
    try:
        read_manifest(path)
        load(path)
    except CallError as problem:
        allowed = SENSE | ({"E4012"} if number == 0 else set())
        assert problem.code in allowed, problem
        str(problem).encode("utf-8", errors="backslashreplace")
        return str(problem.code)
    finally:
        path.unlink()
    return "accepted"


def packed(draw: random.Random, state: State) -> str:
    """A packed weight whose header or length was changed. (Its elements have no checksum.)"""
    data = bytearray(state.packed)
    elements = range(128, 128 + 28)
    for _ in range(draw.choice([1, 1, 4])):
        at = draw.choice([i for i in range(len(data)) if i not in elements])
        data[at] ^= 1 << draw.randrange(8)
    if draw.random() < 0.4:
        data = (
            data[: draw.randrange(len(data))] if draw.random() < 0.5 else data + draw.randbytes(draw.randrange(1, 99))
        )
    if bytes(data) == state.packed:
        return "nothing changed"
    try:
        Packed.from_bytes(bytes(data))
    except CallError as problem:
        assert problem.code == "E4019", problem
        return "E4019"
    raise AssertionError("a changed header was accepted")
