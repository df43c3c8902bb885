"""opsgen.runtime.library_file: the container, and what it says of damaged and foreign files."""

import json
import os
import random
import re
import struct
import subprocess
import sys
from hashlib import sha256

import pytest

from opsgen.errors import CallError, CompileError, InternalError
from opsgen.runtime import library_file, load
from opsgen.runtime.ffi import tvm_ffi
from tests.runtime import handmade

MANIFEST = handmade.manifest()
FOOTER = 64


def raises(code, *words):
    """A context that wants the error of that code, with these words in its message."""
    pattern = f"^{code}: " + "".join(f"(?=.*{re.escape(word)})" for word in words)
    return pytest.raises((CallError, CompileError), match=re.compile(pattern, re.DOTALL))


def sealed(elf: bytes, manifest: bytes, format_number: int = 1) -> bytes:
    """A file with a right footer, made from the description in docs/library-format.md."""
    body = elf + manifest
    footer = struct.pack("<8sIIQQ", b"OPSGENLB", format_number, 0, len(manifest), len(body) + FOOTER)
    return body + footer + sha256(body).digest()


def test_round_trip_and_layout(tmp_path):
    path = tmp_path / "a.so"
    library_file.write(path, handmade.elf(), MANIFEST)
    assert library_file.read_manifest(path) == MANIFEST
    data = path.read_bytes()
    text = data[len(handmade.elf()) : -FOOTER]
    assert json.loads(text) == MANIFEST.to_json()
    assert data == sealed(handmade.elf(), text)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.so"]


def test_missing_file_and_folder(tmp_path):
    with raises("E4021", "nowhere.so", "No such file"):
        library_file.read_manifest(tmp_path / "nowhere.so")
    with raises("E4021", "directory"):
        library_file.read_manifest(tmp_path)
    with raises("E4021", "null"):
        library_file.read_manifest("a\0b.so")
    with raises("E4021", "no file was named"):
        load()


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"MZ" * 100, b"\x7fEL"])
def test_not_a_library_file(tmp_path, content):
    path = tmp_path / "a.so"
    path.write_bytes(content)
    with raises("E4011", str(path), "opsgen compile"):
        load(path)


def test_ordinary_shared_object_is_not_loaded(tmp_path):
    with raises("E4012", "ordinary shared object"):
        load(tvm_ffi.core.__file__)


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 1000, 0.5, 0.99])
def test_truncated(tmp_path, library_path, cut):
    data = library_path.read_bytes()
    left = len(data) - cut if isinstance(cut, int) else int(len(data) * cut)
    path = tmp_path / "a.so"
    path.write_bytes(data[:left])
    with raises("E4012", "cut short"):
        load(path)


def test_something_appended(tmp_path, library_path):
    path = tmp_path / "a.so"
    path.write_bytes(library_path.read_bytes() + b"\n")
    with raises("E4012"):
        load(path)


def test_flipped_bit(tmp_path, library_path):
    data = bytearray(library_path.read_bytes())
    data[len(data) // 3] ^= 4
    path = tmp_path / "a.so"
    path.write_bytes(data)
    with raises("E4012", "SHA-256"):
        load(path)


@pytest.mark.parametrize("offset", [16, 24])
def test_lying_lengths(tmp_path, library_path, offset):
    data = bytearray(library_path.read_bytes())
    data[-FOOTER + offset : -FOOTER + offset + 8] = (2**63 + 5).to_bytes(8, "little")
    path = tmp_path / "a.so"
    path.write_bytes(data)
    with raises("E4012", str(2**63 + 5)):
        load(path)


def test_reserved_field_of_the_footer(tmp_path, library_path):
    data = bytearray(library_path.read_bytes())
    data[-FOOTER + 12] = 1
    path = tmp_path / "a.so"
    path.write_bytes(data)
    with raises("E4012", "footer"):
        load(path)


def test_newer_format_is_told_apart_from_damage(tmp_path):
    path = tmp_path / "a.so"
    path.write_bytes(sealed(handmade.elf(), b'{"format": 7, "surprise": 1}', 7))
    with raises("E4013", "format 7", "up to 1", "Upgrade"):
        load(path)
    path.write_bytes(sealed(handmade.elf(), json.dumps(MANIFEST.to_json() | {"format": 2}).encode()))
    with raises("E4013", "format 2"):
        load(path)


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"\xff\xfe", b'"text"', b"[" * 100_000])
def test_manifest_that_is_no_object(tmp_path, manifest):
    path = tmp_path / "a.so"
    path.write_bytes(sealed(handmade.elf(), manifest))
    with raises("E4016", "the top level"):
        load(path)


def test_fuzz_never_crashes(tmp_path):
    """Flips and cuts anywhere; a crash would end the child, and a wrong exception its loop."""
    path = handmade.write(tmp_path / "a.so")
    script = """
import random, sys
from opsgen.errors import CallError
from opsgen.runtime import load
path, seed = sys.argv[1], int(sys.argv[2])
data = open(path, "rb").read()
draw = random.Random(seed)
for turn in range(200):
    changed = bytearray(data)
    near_end = draw.random() < 0.5
    for _ in range(draw.choice([1, 1, 2, 50])):
        at = draw.randrange(len(data) - 3000, len(data)) if near_end else draw.randrange(len(data))
        changed[at] ^= 1 << draw.randrange(8)
    if draw.random() < 0.3:
        changed = changed[: draw.randrange(len(data))]
    open(path, "wb").write(changed)
    try:
        load(path)
    except CallError as problem:
        assert problem.code in {"E4011", "E4012", "E4013", "E4016"}, problem
    else:
        raise SystemExit(f"turn {turn} was accepted")
print("done")
"""
    seed = str(random.randrange(10**6))
    ran = subprocess.run([sys.executable, "-c", script, path, seed], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == "done\n", f"seed {seed}: {ran}"


def test_fuzz_of_sealed_manifests(tmp_path):
    """A manifest with one value replaced, under a right hash, is read as a manifest or refused by its field."""
    draw = random.Random(5)
    text = json.dumps(MANIFEST.to_json())
    values = [None, True, -1, 2**70, 1.5, "", "...", "rows", "a b", [], [0], {}, {"a": 1}]
    path = tmp_path / "a.so"
    refused = 0
    for _ in range(200):
        data = json.loads(text)
        place = data
        while True:
            key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
            if not (isinstance(place[key], (dict, list)) and place[key] and draw.random() < 0.9):
                break
            place = place[key]
        place[key] = draw.choice(values)
        path.write_bytes(sealed(handmade.elf(), json.dumps(data).encode()))
        try:
            library_file.read_manifest(path)
        except CallError as problem:
            assert problem.code in ("E4016", "E4013")
            refused += 1
    assert refused > 100


def test_unwritable_folder_and_nothing_left_behind(tmp_path, monkeypatch):
    with raises("E3006", "No such file"):
        library_file.write(tmp_path / "none" / "a.so", b"\x7fELF", MANIFEST)
    (tmp_path / "folder.so").mkdir()
    with raises("E3006", "folder.so"):
        library_file.write(tmp_path / "folder.so", b"\x7fELF", MANIFEST)
    target = tmp_path / "a.so"
    target.write_bytes(b"before")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(Exception, match="E6003"):
        library_file.write(target, b"\x7fELF", MANIFEST)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.so", "folder.so"]
    assert target.read_bytes() == b"before"


@pytest.mark.parametrize("kind, make", [("FIFO", os.mkfifo), ("directory", os.mkdir)])
def test_what_is_no_regular_file_is_never_replaced(tmp_path, kind, make):
    path, link = tmp_path / "a.so", tmp_path / "link.so"
    make(path)
    link.symlink_to(path)
    before = path.lstat()
    for name in (path, link):
        with raises("E3006", str(name), f"it is a {kind}, not a regular file"):
            library_file.write(name, b"\x7fELF", MANIFEST)
    assert os.path.samestat(before, path.lstat()) and link.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.so", "link.so"]


def test_devices_are_never_replaced(monkeypatch):
    monkeypatch.setattr("os.replace", lambda *_: pytest.fail("a device would have been replaced"))
    with raises("E3006", "/dev/null", "it is a device, not a regular file"):
        library_file.write_bytes("/dev/null", b"data")


def test_links_are_followed(tmp_path):
    (tmp_path / "far").mkdir()
    target, link, chain = tmp_path / "far" / "real.so", tmp_path / "link.so", tmp_path / "chain.so"
    link.symlink_to("far/real.so")
    chain.symlink_to(link)
    for name, data in ((link, b"first"), (chain, b"second")):  # the first time, the link leads nowhere
        library_file.write_bytes(name, data)
        assert target.read_bytes() == data and link.is_symlink() and chain.is_symlink()
    assert [entry.name for entry in target.parent.iterdir()] == ["real.so"]
    loop = tmp_path / "loop.so"
    loop.symlink_to(loop)
    with raises("E3006", "loop.so"):
        library_file.write_bytes(loop, b"data")
    assert loop.is_symlink()


def test_permissions_follow_the_umask(tmp_path):
    library_file.write(tmp_path / "a.so", b"\x7fELF", MANIFEST)
    (tmp_path / "b.so").write_bytes(b"")
    assert (tmp_path / "a.so").stat().st_mode == (tmp_path / "b.so").stat().st_mode


@pytest.mark.internal_error
def test_wrong_manifest_is_never_written(tmp_path):
    kernel = handmade.scale_add(op="other")
    broken = handmade.Manifest("0", "x86", ("baseline",), {}, (kernel,))
    with pytest.raises(InternalError, match=r"kernels\[0\]\.op"):
        library_file.write(tmp_path / "a.so", b"\x7fELF", broken)
    assert not list(tmp_path.iterdir())
