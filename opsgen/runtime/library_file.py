"""The container of a library: ``ELF shared object | manifest | footer``. See docs/library-format.md."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import struct
from pathlib import Path
from typing import BinaryIO, Final

from opsgen.errors import CallError, CompileError, InternalError, error
from opsgen.runtime.manifest import FORMAT, Manifest

_MAGIC: Final = b"OPSGENLB"
_ELF: Final = b"\x7fELF"
_FOOTER: Final = struct.Struct("<8sIIQQ32s")  # magic, format, reserved, manifest length, file length, SHA-256
_BLOCK: Final = 1 << 20


def write(path: str | os.PathLike[str], elf: bytes, manifest: Manifest) -> None:
    """Write a library file: to a temporary name in the same folder, flushed to disk, then renamed.

    Args:
        path: where; an existing file is replaced, and libraries loaded from it go on working. A symbolic link stays,
            and the file that it names is written.
        elf: the shared object.
        manifest: what it holds; checked against the schema first.

    Raises:
        CompileError: E3006, it cannot be written, or is there and no regular file. Nothing is left behind.
        ResourceError: E6003, the disk is full.
        InternalError: the manifest breaks the schema: a bug of the compiler.
    """
    data = manifest.to_json()
    try:
        Manifest.from_json(data, os.fspath(path))
    except CallError as problem:
        raise InternalError(f"the compiler made a wrong manifest, which is a bug: {problem}") from None
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    digest = hashlib.sha256(elf)
    digest.update(text)
    length = len(elf) + len(text) + _FOOTER.size
    footer = _FOOTER.pack(_MAGIC, manifest.format, 0, len(text), length, digest.digest())
    write_bytes(path, elf, text, footer)


def write_bytes(path: str | os.PathLike[str], *parts: bytes | memoryview) -> None:
    """Write ``parts`` one after another to ``path``, or to the file that it links to, atomically. E3006 or E6003."""
    target = Path(path)
    try:
        _refuse_special(target)
        target = Path(os.path.realpath(target))
        temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
            with open(handle, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except CompileError:  # a ValueError too
        raise
    except OSError as problem:
        wanted = sum(map(len, parts))
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise error("E6003", path=target, found="too few", wanted=wanted) from None
        raise error("E3006", path=target, found=problem.strerror or problem) from None
    except ValueError as problem:  # a null byte in the path
        raise error("E3006", path=repr(os.fspath(path)), found=problem) from None


def path_text(path: str | os.PathLike[str]) -> str:
    """``path``, of a file to be read, as a str; bytes are decoded. Raises E4021 for what is no path."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise error("E4021", path=repr(path), found=f"it is of type {type(path).__qualname__}, not a path") from None


def _refuse_special(path: Path) -> None:
    """E3006 for what is there, or what it links to, and is no regular file: renaming would put a file in its place."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        found = f"it is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a regular file"
        raise error("E3006", path=path, found=found)


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Check a library file and read its manifest, without opening it as code.

    Checked in this order: that it opens, the magic, the lengths, the hash, the format, the schema.

    Raises:
        CallError: E4021 cannot be opened, E4011 not a library file, E4012 truncated or changed, E4013 a newer format,
            E4016 the manifest breaks the schema.
    """
    try:
        with open(path, "rb") as file:
            number, text = _checked(file, os.fspath(path))
    except CallError:  # a ValueError too
        raise
    except OSError as problem:
        raise error("E4021", path=os.fspath(path), found=problem.strerror or problem) from None
    except ValueError as problem:  # a null byte in the path
        raise error("E4021", path=repr(os.fspath(path)), found=problem) from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error("E4016", path=os.fspath(path), found=f"the top level: it is not JSON ({problem})") from None
    manifest = Manifest.from_json(data, os.fspath(path))
    if manifest.format != number:
        raise error("E4016", path=os.fspath(path), found=f"format: {manifest.format}, but {number} in the footer")
    return manifest


def _checked(file: BinaryIO, path: str) -> tuple[int, bytes]:
    """The format number and the manifest's bytes of a file whose magic, lengths, hash and format are right."""
    length = os.fstat(file.fileno()).st_size
    start = file.read(len(_ELF))
    if start != _ELF:
        what = "it is empty" if length == 0 else f"it starts with {start!r}, not with an ELF header"
        raise error("E4011", path=path, found=what)
    file.seek(max(length - _FOOTER.size, 0))
    footer = file.read(_FOOTER.size)
    if len(footer) < _FOOTER.size or footer[: len(_MAGIC)] != _MAGIC:
        found = "an ELF object without opsgen's footer: the file is cut short, or is an ordinary shared object"
        raise error("E4012", path=path, found=found)
    _, number, reserved, manifest_length, file_length, wanted = _FOOTER.unpack(footer)
    if file_length != length or manifest_length + _FOOTER.size + len(_ELF) > length or reserved != 0 or number == 0:
        found = f"it has {length} bytes, and its footer describes {file_length} with a manifest of {manifest_length}"
        raise error("E4012", path=path, found=found)
    digest = hashlib.sha256()
    file.seek(0)
    left = length - _FOOTER.size
    while left > 0:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise error("E4012", path=path, found=f"it ended {left} bytes early while being read")
        digest.update(block)
        left -= len(block)
    if digest.digest() != wanted:
        raise error("E4012", path=path, found="its SHA-256 is not the one in its footer: some bytes have changed")
    if number > FORMAT:
        raise error("E4013", path=path, found=number, limit=FORMAT)
    file.seek(length - _FOOTER.size - manifest_length)
    return number, file.read(manifest_length)
