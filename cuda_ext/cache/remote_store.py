"""A store that machines share, behind the local one: any URL that fsspec supports.

It never makes a build fail. The first failure or timeout costs one warning; the store is not used afterwards.
Nor does a build wait long for a slow store: half a second for each request and a second for each megabyte
are free; delays beyond that may sum up to 30 seconds.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

from cuda_ext.cache.location import hide_password
from cuda_ext.cache.store import Store, pack, unpack
from cuda_ext.time_limit import call_within

# The free seconds of each request, and the bytes for which one more second is free.
_FREE, _BYTES = 0.5, 1e6

_T = TypeVar("_T")


class RemoteStore:
    """A :class:`~cuda_ext.cache.store.Store` below a URL, with the same entries as the local store.

    Users who may write to the URL decide what goes into packages: the digest does not guard against them.
    The size is not bounded. A forked child may have to go on without the store: not every file system of
    fsspec supports a fork.
    """

    def __init__(
        self, url: str, warn: Callable[[str], None], timeout: float = 10, budget: float = 30
    ) -> None:
        self._url = url
        self._warn = warn
        self._timeout = timeout
        self._budget = self._left = budget
        self._usable = True
        self._warning = ""
        self._lock = threading.Lock()
        self._uploader: threading.Thread | None = None
        # Short, so that a slow remote delays the build instead of filling the memory.
        self._pending: queue.Queue[tuple[str, bytes] | None] = queue.Queue(maxsize=64)

    def get(self, key: str) -> bytes | None:
        with self._waiting() as left:
            entry = self._attempt(min(self._timeout, left), self._read, key)
        self._warn_pending()
        if entry is None:
            return None
        self._left = min(self._budget, self._left + len(entry) / _BYTES)
        return unpack(key, entry)

    def put(self, key: str, content: bytes) -> None:
        """Upload in the background. Pending uploads are lost if the process ends without `close`."""
        self._warn_pending()
        if not self._usable:
            return
        with self._lock:
            if self._uploader is None or not self._uploader.is_alive():  # a forked child has none
                self._uploader = threading.Thread(target=self._upload, daemon=True)
                self._uploader.start()
        self._queue((key, pack(key, content)))

    def close(self, *, now: bool = False) -> None:
        """Wait for the uploads, while the budget lasts; with `now`, drop them and use the store no more."""
        self._usable = self._usable and not now
        with self._lock:
            uploader, self._uploader = self._uploader, None
        if uploader and uploader.is_alive() and not now:
            self._queue(None)
            with self._waiting() as left:
                uploader.join(left)
            if uploader.is_alive():
                self._give_up(self._spent)
        self._warn_pending()

    def _queue(self, item: tuple[str, bytes] | None) -> None:
        """Queue an upload, or the end of them, as soon as there is room."""
        with self._waiting() as left:
            try:
                self._pending.put(item, timeout=left)
            except queue.Full:
                self._give_up(self._spent)

    def _upload(self) -> None:
        while item := self._pending.get():
            # One megabyte per second is slow but not a failure.
            self._attempt(self._timeout + len(item[1]) / _BYTES, self._write, *item)

    @property
    def _spent(self) -> str:
        return f"this build has waited {self._budget:.0f} seconds for it"

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[float]:
        """Yield the seconds that the build may wait for the store, and count those of the block."""
        queued = sum(len(item[1]) for item in list(self._pending.queue) if item)
        free = _FREE + queued / _BYTES
        began = time.monotonic()
        yield max(self._left, 0) + free
        self._left -= max(time.monotonic() - began - free, 0)
        if self._left <= 0:
            self._give_up(self._spent)

    def _read(self, key: str) -> bytes | None:
        file_system, root = self._file_system
        try:
            return bytes(file_system.cat_file(f"{root}/{key[:2]}/{key[2:]}"))
        except FileNotFoundError:
            return None

    def _write(self, key: str, entry: bytes) -> None:
        file_system, root = self._file_system
        path = f"{root}/{key[:2]}/{key[2:]}"
        try:
            file_system.pipe_file(path, entry)
        except FileNotFoundError:
            # Some file systems have directories. Create the last one only: a misspelt bucket is an error.
            with contextlib.suppress(FileExistsError):
                file_system.mkdir(f"{root}/{key[:2]}", create_parents=False)
            file_system.pipe_file(path, entry)

    @cached_property
    def _file_system(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        file_system, root = url_to_fs(self._url)
        if self._url.startswith("file:"):
            file_system.makedirs(root, exist_ok=True)
        return file_system, root.rstrip("/")

    def _attempt(self, seconds: float, work: Callable[..., _T], *arguments: Any) -> _T | None:
        if not self._usable:
            return None
        try:
            return call_within(seconds, work, *arguments)
        except ModuleNotFoundError as error:
            self._give_up(f"{error}; install fsspec and its package for this protocol, such as s3fs")
        except TimeoutError as error:
            no_answer = str(error) or f"no answer within {seconds:.0f} seconds"
            self._give_up(self._spent if seconds < self._timeout else no_answer)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # such as asyncio's CancelledError
            self._give_up(str(error) or type(error).__name__)
        return None

    def _give_up(self, reason: str) -> None:
        with self._lock:
            if self._usable:
                self._usable, self._warning = False, reason

    def _warn_pending(self) -> None:
        """Issue the pending warning, in the caller's thread."""
        with self._lock:
            reason, self._warning = self._warning, ""
        if reason:
            message = f"{self._url}: compiling goes on without the shared cache: {reason}"
            self._warn(hide_password(message))


class LayeredStore:
    """The local store, and behind it the remote one."""

    def __init__(self, local: Store, remote: RemoteStore) -> None:
        self._local = local
        self._remote = remote

    def get(self, key: str) -> bytes | None:
        content = self._local.get(key)
        if content is None and (content := self._remote.get(key)) is not None:
            self._local.put(key, content)
        return content

    def put(self, key: str, content: bytes) -> None:
        self._remote.put(key, content)
        self._local.put(key, content)

    def prune(self) -> None:
        self._local.prune()

    def close(self, *, now: bool = False) -> None:
        self._remote.close(now=now)
