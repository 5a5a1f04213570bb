"""What was compiled once is kept under its key, and found again.

A store gives back what was put under a key, or nothing. A damaged entry is one that is not there, and the
next put mends it. Everything may vanish at any time: a store saves time and holds nothing that matters.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cuda_ext.errors import ConfigError, StoreError, ToolchainError

__all__ = [
    "LocalStore",
    "NullStore",
    "Store",
    "StoredFile",
    "distrust",
    "exposure",
    "local_directory",
    "local_store",
    "open_local_store",
    "open_store",
    "pack",
    "unpack",
    "why_not_used",
]

_MAGIC = b"cudaext\x01"  # the last byte is the version of the format
_KEY = slice(40, 72)  # between the digest and the content
_VALID_KEY = re.compile("[0-9a-f]{64}")
_SHARD = re.compile("[0-9a-f]{2}")
_PIECE = 1 << 20  # bytes that are read at once of what may be large
_HOUR = 3600
_PATIENCE = 600  # seconds to wait for somebody who makes the same
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ESTALE}
# No link is followed, and a pipe in an entry's place does not block.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))


class Store(Protocol):
    """Bytes by key; a key is 64 lower-case hexadecimal digits. For any number of threads of one process."""

    def get(self, key: str) -> bytes | None:
        """What was put under `key`; None if it is not there, or damaged in any way. It is no error."""

    def put(self, key: str, content: bytes) -> None:
        """Keep `content` under `key`. Raises :class:`StoreError` if the disk is full."""

    def prune(self) -> None:
        """Keep within the bound: what was not used for longest goes first. Cheap enough after every build."""

    def close(self) -> None:
        """Finish what is still being written in the background."""


def open_store(
    environ: Mapping[str, str], warn: Callable[[str], None], otherwise: Path | None = None
) -> Store:
    """The store that ``CUDA_EXT_CACHE`` and ``CUDA_EXT_CACHE_SIZE`` ask for.

    A cache that cannot be used, or that others could have written, costs one warning and is left alone. Where
    there is none, a store in the directory `otherwise` takes its place.
    """
    local = open_local_store(environ, warn)
    if otherwise is not None and isinstance(local, NullStore):
        local = _open_local({"CUDA_EXT_CACHE": str(otherwise)}, _bound(""), warn)
    location = environ.get("CUDA_EXT_CACHE", "")
    if "://" not in location or _bound(environ.get("CUDA_EXT_CACHE_SIZE", "")) == 0:
        return local
    from cuda_ext.cache.remote_store import LayeredStore, RemoteStore

    return LayeredStore(local, RemoteStore(location, warn))


def open_local_store(environ: Mapping[str, str], warn: Callable[[str], None]) -> LocalStore | NullStore:
    """The same without what machines share behind a URL."""
    bound = _bound(environ.get("CUDA_EXT_CACHE_SIZE", ""))
    return _open_local(environ, bound, warn) if bound else NullStore()


def local_store(environ: Mapping[str, str]) -> LocalStore:
    """The same whether it is used or not, for those who look after it. Nothing is made."""
    bound = _bound(environ.get("CUDA_EXT_CACHE_SIZE", ""))
    return LocalStore(local_directory(environ), bound, lambda _: None)


def why_not_used(environ: Mapping[str, str]) -> str:
    """Why nothing can be kept in the local store, as users are warned; empty if it can. Nothing is made."""
    store = local_store(environ)
    if not store.bound:
        return "the cache is turned off by CUDA_EXT_CACHE_SIZE=0; unset it to have one"
    nearest = next(p for p in (store.objects, *store.objects.parents) if os.path.lexists(p))
    if nearest != store.objects and nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return ""  # whoever uses it first makes it
    warnings: list[str] = []
    open_local_store(environ, warnings.append)
    if not warnings and not os.access(store.objects, os.W_OK):
        remedy = "set CUDA_EXT_CACHE to a directory that can be written"
        return _without_cache(store.objects, "it is read-only", remedy)
    return "".join(warnings)


def local_directory(environ: Mapping[str, str]) -> Path:
    """Where this machine keeps its cache: ``CUDA_EXT_CACHE`` unless that is a URL, else the user's cache.

    Raises :class:`StoreError` for a user who has no home directory.
    """
    configured = environ.get("CUDA_EXT_CACHE", "")
    if configured and "://" not in configured:
        return Path(os.path.abspath(configured))  # noqa: PTH100 - links stay
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise ToolchainError(
            f'compiling needs platformdirs ({error}); install "cuda-ext[cu13]" (or "cuda-ext[cu12]")'
        ) from None
    try:
        directory = user_cache_path("cuda_ext")
    except RuntimeError:
        directory = Path()
    if not directory.is_absolute():  # as some versions of platformdirs say it
        raise StoreError("there is no home directory; set CUDA_EXT_CACHE to a directory that can be written")
    return directory


def pack(key: str, content: bytes) -> bytes:
    """An entry: format, digest of all that follows, key (so that a renamed file is a miss), content."""
    body = bytes.fromhex(key) + content
    return b"".join((_MAGIC, hashlib.sha256(body).digest(), body))


def unpack(key: str, entry: bytes) -> bytes | None:
    """The content of an entry, if all of it is right."""
    digest = hashlib.sha256(memoryview(entry)[_KEY.start :]).digest()
    right = entry[: _KEY.stop] == _MAGIC + digest + bytes.fromhex(key)
    return entry[_KEY.stop :] if right else None


class NullStore:
    """No cache at all."""

    def get(self, key: str) -> None:  # noqa: ARG002
        return None

    def put(self, key: str, content: bytes) -> None:
        pass

    def alone(self, key: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()

    def prune(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What lies in a store's directory: an entry with its ``key``, a file that a writer began, or a stray.

    Strays are nobody's: no store makes them, uses them or removes them.
    """

    kind: Literal["entry", "unfinished", "stray"]
    path: str
    size: int
    modified: float  # an entry's last use, to the hour
    key: str = ""

    @property
    def share(self) -> float:
        """How much of all entries comes before this one, from 0 to 1: keys are digests, and spread evenly."""
        return int(self.key[:4], 16) / 0x10000


class LocalStore:
    """Entries as files of one directory, for any number of processes, on any number of machines.

    Nobody waits for anybody: entries appear by rename, and their digest is checked at every get, so that a
    killed writer, a full disk, a power failure or a prune at the same time are misses at worst. The digest
    guards against damage, not against who may write to the directory; `open_store` looks at that.
    The order of use is known to the hour.
    """

    def __init__(self, directory: Path, bound: int, warn: Callable[[str], None]) -> None:
        self._directory = directory
        self._objects = directory / "objects"
        self._temporary = self._objects / "tmp"
        # When the last scan was, what it found in all, and the size of each entry written since.
        self._total = self._objects / "total"
        self._prefix = os.fspath(self._objects)
        self.bound = bound
        self._warn: Callable[[str], None] | None = warn
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            entry, modified = _read(path)
        except (OSError, MemoryError):
            return None
        content = unpack(key, entry)
        if content is not None and modified < time.time() - _HOUR:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        if self.get(key) == content:
            return
        entry = pack(key, content)
        try:
            self._write(Path(self._path(key)), entry)
            self._grow(len(entry))
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(
                    f"{self._directory}: the cache cannot be written: {error.strerror}; free some space, "
                    "lower CUDA_EXT_CACHE_SIZE, or set CUDA_EXT_CACHE to another directory"
                ) from None
            self._warn_once(f"{error.strerror or error}")

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Wait until nobody else makes what belongs under `key`.

        It saves work and guards nothing: where the system has no locks, or after a long while, one goes on.
        """
        # One file for many keys: nobody has to remove any. A killed process lets go.
        path = self._objects / "locks" / key[:2]
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                path.parent.mkdir(mode=0o700, exist_ok=True)
                # To lock a file, NFS wants it opened for writing.
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
                stack.callback(os.close, descriptor)
                _lock(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB))
                # Closing does not let go where a child was forked meanwhile.
                stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)
            yield

    def prune(self) -> None:
        """Bring the entries to 80 % of the bound if they exceed it. Never raises.

        The directory is scanned once an hour, or when the last scan's total and what was written since
        exceed the bound.
        """
        if self._estimate() <= self.bound:
            return
        self._remove_remains()
        shards = (f"{self._prefix}/{number:02x}" for number in range(256))
        entries = sorted(entry for shard in shards for entry in _files(shard))
        total = sum(size for _, size, _ in entries)
        if total > self.bound:
            for _, size, path in entries:
                if total <= self.bound * 0.8:
                    break
                if _remove(path):
                    total -= size
        with contextlib.suppress(OSError):
            self._write(self._total, b"%d %d " % (time.time(), total))

    def close(self) -> None:
        pass

    @property
    def objects(self) -> Path:
        """The directory that all entries lie in."""
        return self._objects

    def files(self) -> Iterator[StoredFile]:
        """All that lies there, entries in the order of their keys; somebody may be removing it.

        What the store writes for itself (total, locks) is left out.
        """
        for outer in _sorted(self._objects):
            if outer.name in ("locks", "total"):
                continue
            is_ours = outer.name == "tmp" or _SHARD.fullmatch(outer.name)
            if is_ours and outer.is_dir(follow_symlinks=False):
                for inner in _sorted(outer):
                    yield from _stored(inner, outer.name)
            else:
                yield from _stored(outer, "")

    def flaw(self, entry: StoredFile) -> str:
        """Why nobody gets the content of `entry`; empty if all of it is right, or if it is gone.

        However large it is, little of it is in memory at once. It does not count as a use.
        """
        try:
            with open(entry.path, "rb", opener=_open_to_read) as file:
                head = file.read(_KEY.stop)
                if len(head) < _KEY.stop or not head.startswith(_MAGIC):
                    return "it does not begin as an entry does"
                digest = hashlib.sha256(head[_KEY])
                while piece := file.read(_PIECE):
                    digest.update(piece)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"it cannot be read: {error.strerror or error}"
        if head[len(_MAGIC) : _KEY.start] != digest.digest():
            return "its digest is that of another content"
        if head[_KEY] != bytes.fromhex(entry.key):
            return f"it is the entry of another key, {head[_KEY].hex()}"
        return ""

    def peek(self, entry: StoredFile, size: int = -1) -> bytes:
        """The first `size` bytes of the content of `entry`, or all; unchecked, and none if it cannot be read.

        It does not count as a use.
        """
        with contextlib.suppress(OSError), open(entry.path, "rb", opener=_open_to_read) as file:
            file.seek(_KEY.stop)
            return file.read(size)
        return b""

    def remove(self, file: StoredFile) -> bool:
        """Remove an entry or what a writer began; whether it is gone. Whoever uses it has a miss at worst."""
        _remove(self._total)  # the next prune counts anew
        return _remove(file.path)

    def _path(self, key: str) -> str:
        if not _VALID_KEY.fullmatch(key):
            raise ValueError(f"not a key: {key!r}")
        return f"{self._prefix}/{key[:2]}/{key[2:]}"

    def _estimate(self) -> float:
        try:
            scanned, *sizes = map(int, self._total.read_bytes().split())
        except (OSError, ValueError):
            return math.inf
        # A clock that was set back must not put off the next scan.
        return sum(sizes) if abs(time.time() - scanned) < _HOUR else math.inf

    def _grow(self, size: int) -> None:
        with contextlib.suppress(OSError), open(self._total, "ab", 0, opener=_open_to_write) as file:
            file.write(b"%d " % size)

    def _remove_remains(self) -> None:
        """Remove what killed writers have left; a living one is done within the hour."""
        for modified, _, path in _files(self._temporary):
            if modified < time.time() - _HOUR:
                _remove(path)

    def _write(self, path: Path, content: bytes) -> None:
        """Make `path` appear at once; its directories too, which somebody may be removing."""
        for attempt in range(3):
            try:
                return self._rename_into_place(path, content)
            except OSError as error:
                if error.errno not in _GONE or attempt == 2:
                    raise
            for directory in (self._objects, self._temporary, path.parent):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return None

    def _rename_into_place(self, path: Path, content: bytes) -> None:
        # Nothing is synced to the disk: after a power failure, the digest tells.
        temporary = self._temporary / f"{os.urandom(8).hex()}.{os.getpid()}.{_host()}"
        try:
            with open(temporary, "xb", opener=_open_to_write) as file:
                file.write(content)
            temporary.replace(path)
        except BaseException as error:
            _remove(temporary)
            # Windows replaces no file that somebody reads: either it is right, or the next put mends it.
            if not (os.name == "nt" and isinstance(error, PermissionError) and path.exists()):
                raise

    def _warn_once(self, reason: str) -> None:
        with self._lock:
            warn, self._warn = self._warn, None
        if warn:
            warn(_without_cache(self._directory, reason, "set CUDA_EXT_CACHE to another directory"))


def _lock(attempt: Callable[[], None]) -> None:
    """Make `attempt` until nobody blocks it, or for so long that whoever does must be stuck."""
    pause, end = 0.001, time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            return attempt()
        except BlockingIOError:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
    return None


def _open_local(
    environ: Mapping[str, str], bound: int, warn: Callable[[str], None]
) -> LocalStore | NullStore:
    try:
        directory = local_directory(environ)
    except StoreError as error:
        warn(f"compiling goes on without a cache: {error}")
        return NullStore()
    objects = directory / "objects"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        objects.mkdir(mode=0o700, exist_ok=True)
        why = exposure(directory) or distrust(objects)
        # One that is read-only serves those who read; the first who writes is told.
        if not why and not os.access(objects, os.R_OK | os.X_OK):
            raise OSError(errno.EACCES, "it cannot be read")
    except (FileExistsError, NotADirectoryError):
        warn(_without_cache(objects, "a file is where a directory should be", "move it"))
    except OSError as error:
        remedy = "set CUDA_EXT_CACHE to a directory that can be written"
        warn(_without_cache(objects, error.strerror or str(error), remedy))
    else:
        if not why:
            return LocalStore(directory, bound, warn)
        remedy = "remove it, or set CUDA_EXT_CACHE to a directory that only you can write"
        warn(_without_cache(objects, why, remedy))
    return NullStore()


def distrust(directory: Path) -> str | None:
    """Why others than this user and root could have written what lies in `directory`."""
    if sys.platform == "win32":
        return None
    status = directory.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write there (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def exposure(directory: Path) -> str | None:
    """Why others could put something else in the place of what lies in `directory`."""
    mode = directory.stat().st_mode
    if sys.platform == "win32" or not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return None
    return f"all users may write to {directory} (mode {stat.S_IMODE(mode):o})"


def _without_cache(directory: Path, reason: str, remedy: str) -> str:
    return f"{directory}: compiling goes on without a cache: {reason}; {remedy}"


def _bound(value: str) -> int:
    if not value.strip():
        return 5 << 30
    matched = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:([KMGT])(?:i?B)?|B)?\s*", value, re.IGNORECASE)
    if not matched:
        raise ConfigError(
            f"CUDA_EXT_CACHE_SIZE: {value!r} is not a size; write bytes, or a number with K, M, G or T, "
            "as in 5G; 0 means no cache"
        )
    return int(matched[1]) << 10 * " KMGT".index((matched[2] or " ").upper())


def _read(path: str) -> tuple[bytes, float]:
    """A file's content, and when it was modified. Without a file object, it takes half the time."""
    descriptor = os.open(path, _READ_FLAGS)
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, status.st_size), status.st_mtime
    finally:
        os.close(descriptor)


def _open_to_write(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _open_to_read(path: str, _: int) -> int:
    return os.open(path, _READ_FLAGS)


def _sorted(directory: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """What lies in `directory`, by name; nothing if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _stored(found: os.DirEntry[str], directory: str) -> Iterator[StoredFile]:
    """`found`, unless it is gone; `directory` is the one of the store that it lies in, if any."""
    with contextlib.suppress(OSError):
        status = found.stat(follow_symlinks=False)
        key = directory + found.name
        kind: Literal["entry", "unfinished", "stray"] = "stray"
        if directory and stat.S_ISREG(status.st_mode):
            if directory == "tmp":
                kind = "unfinished"
            elif _VALID_KEY.fullmatch(key):
                kind = "entry"
        yield StoredFile(kind, found.path, status.st_size, status.st_mtime, key if kind == "entry" else "")


def _files(directory: str | Path) -> Iterator[tuple[float, int, str]]:
    """When modified, size, and path of what lies in `directory`; somebody may be removing it."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                yield status.st_mtime, status.st_size, entry.path


def _remove(path: str | Path) -> bool:
    """Whether it is gone, by us or by somebody else."""
    with contextlib.suppress(OSError):
        Path(path).unlink(missing_ok=True)
        return True
    return False


def _host() -> str:
    """Processes of different machines may have one number."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9-]", "_", name)[:64]
