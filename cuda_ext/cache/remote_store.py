"""A cache that machines share, behind the local one: any URL that fsspec knows.

It can only help. What fails there, or takes too long, costs one warning, and is not tried again.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from cuda_ext.cache.store import Store, pack, unpack
from cuda_ext.errors import StoreError

__all__ = ["LayeredStore", "RemoteStore"]

_T = TypeVar("_T")


class RemoteStore:
    """Entries as objects below a URL, the same bytes as in the local store.

    An entry that is damaged, or lies under another key's name, is not there. Whoever may write to the URL
    decides what goes into your packages: the digest does not guard against them. Nothing bounds its size.
    After a fork, the child may have to go on without it: not every file system of fsspec can be forked.
    """

    def __init__(self, url: str, warn: Callable[[str], None], timeout: float = 10) -> None:
        self._url = url
        self._warn = warn
        self._timeout = timeout
        self._usable = True
        self._untold = ""
        self._opened: tuple[Any, str] | None = None
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._uploader: threading.Thread | None = None
        # Short, so that a slow remote holds up the build rather than fills the memory.
        self._waiting: queue.Queue[tuple[str, bytes] | None] = queue.Queue(maxsize=64)

    def get(self, key: str) -> bytes | None:
        entry = self._attempt(self._timeout, self._read, key)
        self._tell()
        return None if entry is None else unpack(key, entry)

    def put(self, key: str, content: bytes) -> None:
        """Upload in the background; what is not yet there when the process ends without `close` is lost."""
        self._tell()
        if not self._usable:
            return
        with self._lock:
            if self._uploader is None or not self._uploader.is_alive():  # as after a fork
                self._uploader = threading.Thread(target=self._upload, daemon=True)
                self._uploader.start()
        self._waiting.put((key, pack(key, content)))

    def close(self) -> None:
        """Wait for the uploads, each of which has its time limit."""
        with self._lock:
            uploader, self._uploader = self._uploader, None
        if uploader and uploader.is_alive():
            self._waiting.put(None)
            uploader.join()
        self._tell()

    def _upload(self) -> None:
        while item := self._waiting.get():
            # A megabyte a second is slow, and no failure.
            self._attempt(self._timeout + len(item[1]) / 1e6, self._write, *item)

    def _read(self, key: str) -> bytes | None:
        file_system, root = self._file_system()
        try:
            return bytes(file_system.cat_file(f"{root}/{key[:2]}/{key[2:]}"))
        except FileNotFoundError:
            return None

    def _write(self, key: str, entry: bytes) -> None:
        file_system, root = self._file_system()
        path = f"{root}/{key[:2]}/{key[2:]}"
        try:
            file_system.pipe_file(path, entry)
        except FileNotFoundError:
            # Some have directories. Only the last one is made: a misspelt bucket is not ours to create.
            with contextlib.suppress(FileExistsError):
                file_system.mkdir(f"{root}/{key[:2]}", create_parents=False)
            file_system.pipe_file(path, entry)

    def _file_system(self) -> tuple[Any, str]:
        with self._opening:
            if self._opened is None:
                from fsspec.core import url_to_fs

                file_system, root = url_to_fs(self._url)
                if self._url.startswith("file:"):
                    file_system.makedirs(root, exist_ok=True)
                self._opened = file_system, root.rstrip("/")
            return self._opened

    def _attempt(self, seconds: float, work: Callable[..., _T], *arguments: Any) -> _T | None:
        if not self._usable:
            return None
        try:
            return _within(seconds, work, *arguments)
        except ModuleNotFoundError as error:
            self._give_up(f"{error}; install fsspec and its package for this protocol, such as s3fs")
        except TimeoutError as error:
            self._give_up(str(error) or f"no answer within {seconds:.0f} seconds")
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)
        return None

    def _give_up(self, reason: str) -> None:
        with self._lock:
            if self._usable:
                self._usable, self._untold = False, reason

    def _tell(self) -> None:
        """Warn, in a thread of the caller's."""
        with self._lock:
            reason, self._untold = self._untold, ""
        if reason:
            message = f"{self._url}: compiling goes on without the shared cache: {reason}"
            self._warn(re.sub(r"(?<=://)[^/@\s]*@", "", message))  # no passwords


class LayeredStore:
    """The local store, and behind it the one that machines share."""

    def __init__(self, local: Store, remote: RemoteStore) -> None:
        self._local = local
        self._remote = remote

    def get(self, key: str) -> bytes | None:
        content = self._local.get(key)
        if content is None and (content := self._remote.get(key)) is not None:
            # It is here now, whether or not it can be kept.
            with contextlib.suppress(StoreError):
                self._local.put(key, content)
        return content

    def put(self, key: str, content: bytes) -> None:
        self._remote.put(key, content)
        self._local.put(key, content)

    def prune(self) -> None:
        self._local.prune()

    def close(self) -> None:
        self._remote.close()


def _within(seconds: float, work: Callable[..., _T], *arguments: Any) -> _T:
    """Do that work, but do not wait longer; the thread that hangs does not keep the process from ending."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:  # as asyncio's CancelledError is
            future.set_exception(RuntimeError(repr(error)))

    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)
