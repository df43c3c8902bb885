"""The compile cache: what was built before, by a key of everything that went into it.

An entry is one file: ``magic | header length | header (JSON, with the key) | payload | SHA-256 of all that``. It is
written under another name and renamed, so that it is there whole or not at all; a damaged one counts as absent, and so
does one of another key. Who builds an entry holds a lock for it, so that several processes that want the same thing
build it once. A lock ends with its process.
Where the folder cannot be used, things are built without it, and a warning says so once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import OpsgenError, error, warn
from ..runtime.library_file import write_bytes

FOLDER, SIZE = "OPSGEN_CACHE", "OPSGEN_CACHE_MIB"
"""The environment variables: the cache's folder, or 0 for none; and its bound in MiB."""

DEFAULT_MIB = 2048

_MAGIC = b"OPSGENCE"
_START = struct.Struct("<8sI")
_DIGEST = 32
_VERSION = "v1"


@dataclass(frozen=True)
class Entry:
    """One file of the cache. ``kind``: "library" or "unit" (of machine code); ``title``: what it is, for people;
    ``bytes`` of the file; ``used``: when last, in seconds since 1970."""

    path: Path
    kind: str
    title: str
    bytes: int
    used: float


class Cache:
    """Entries below ``folder``, which together have at most ``most`` bytes: the least recently used leave first."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most

    def fetch(self, kind: str, title: str, key: str, make: Callable[[], bytes]) -> bytes:
        """What was stored for the key, or else what ``make`` gives, which is then stored.

        Raises:
            Whatever ``make`` raises; then nothing is stored.
        """
        path = self.folder / _VERSION / kind / key[:2] / key
        found = _read(path, key)
        if found is not None:
            return found
        with self._lock(kind, key) as usable:
            found = _read(path, key) if usable else None  # somebody else has built it meanwhile
            if found is None:
                found = make()
                if usable:
                    self._store(path, kind, title, key, found)
        return found

    @contextlib.contextmanager
    def _lock(self, kind: str, key: str) -> Iterator[bool]:
        """Held by one process (thread) at a time; gives whether the folder can be used. Keys share a few lock files."""
        path = self.folder / _VERSION / "locks" / f"{kind}-{key[:2]}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as problem:
            _refused(self.folder, problem.strerror or problem)
            yield False
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield True
        finally:
            os.close(handle)

    def _store(self, path: Path, kind: str, title: str, key: str, payload: bytes) -> None:
        header = json.dumps({"kind": kind, "title": title, "key": key, "created": time.time()}).encode()
        start = _START.pack(_MAGIC, len(header)) + header
        digest = hashlib.sha256(start)
        digest.update(payload)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, start, payload, digest.digest())
        except (OSError, OpsgenError) as problem:
            _refused(self.folder, problem)
            return
        self._evict()

    def _evict(self) -> None:
        entries = sorted(self.entries(), key=lambda e: e.used, reverse=True)
        total = 0
        for i, entry in enumerate(entries):
            total += entry.bytes
            if total > self.most and i > 0:  # the newest stays, whatever its size
                with contextlib.suppress(OSError):
                    entry.path.unlink()

    def entries(self) -> list[Entry]:
        """All entries, in no order; files that are none are passed over."""
        found = []
        for path in (self.folder / _VERSION).glob("*/??/*"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                with open(path, "rb") as file:
                    magic, length = _START.unpack(file.read(_START.size).ljust(_START.size, b"\0"))
                    header = json.loads(file.read(length)) if magic == _MAGIC and length < 1 << 20 else None
                    status = os.fstat(file.fileno())
                if header is not None:
                    found.append(Entry(path, header["kind"], header["title"], status.st_size, status.st_mtime))
        return found

    def clear(self) -> int:
        """Removes all files of entries, damaged ones too; gives how many there were.

        Raises:
            CompileError: E3006, the folder cannot be written.
        """
        count = 0
        for path in (self.folder / _VERSION).glob("*/??/*"):
            try:
                path.unlink()
                count += 1
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise error("E3006", path=self.folder, found=problem.strerror or problem) from None
        return count


class NoCache:
    """Builds everything anew."""

    def fetch(self, kind: str, title: str, key: str, make: Callable[[], bytes]) -> bytes:
        return make()


def folder() -> Path | None:
    """Where the cache is; None if the user wants none, or has no home folder."""
    named = os.environ.get(FOLDER)
    if named == "0":
        return None
    if named:
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsgen"
    except RuntimeError:  # no HOME, and a user that the system does not know
        return None


def why_none() -> str:
    """Why `folder` gives none."""
    if os.environ.get(FOLDER) == "0":
        return f"{FOLDER} is 0"
    return f"this user has no home folder, and neither {FOLDER} nor XDG_CACHE_HOME is set"


def bound() -> int:
    """The most bytes that the cache may have.

    Raises:
        TargetError: E2006, the environment variable is no number of MiB.
    """
    text = os.environ.get(SIZE)
    if text is None:
        return DEFAULT_MIB << 20
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise error("E2006", variable=SIZE, found=text, known="a number of MiB of 1 or more")
    return int(text) << 20


def open_cache(wanted: bool = True) -> Cache | NoCache:
    """The user's cache, or none where it is not wanted.

    Raises:
        TargetError: E2006.
    """
    place = folder() if wanted else None
    if wanted and place is None and os.environ.get(FOLDER) != "0":
        _refused(Path("~/.cache/opsgen"), why_none())
    return NoCache() if place is None else Cache(place, bound())


def _read(path: Path, key: str) -> bytes | None:
    """The payload of an entry, which is then the most recently used; None if there is none, or one that is damaged or
    of another key."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < _START.size + _DIGEST or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        return None
    magic, length = _START.unpack_from(data)
    try:
        header = json.loads(data[_START.size : _START.size + length])
    except ValueError:
        return None
    if magic != _MAGIC or not isinstance(header, dict) or header.get("key") != key:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return data[_START.size + length : -_DIGEST]


_said: set[Path] = set()


def _refused(place: Path, found: Any) -> None:
    if place not in _said:
        _said.add(place)
        warn("W3001", path=place, found=found, variable=FOLDER)
