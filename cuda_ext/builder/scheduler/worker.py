"""A worker process of :mod:`~cuda_ext.builder.scheduler.local_pool`: compile until the input ends.

Messages are pickles, each after its length in 8 bytes, between a process and the one that started it.
"""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import signal
import tempfile
import threading
from contextlib import suppress
from typing import IO, Any

from cuda_ext.errors import BuildError
from cuda_ext.toolchain import process

__all__ = ["receive", "send", "serve"]


def serve(scratch: str) -> None:
    """Call what arrives, and answer with what it returns or raises. Temporary files go below `scratch`."""
    # One's own, so that nothing can appear in it once it is gone.
    tempfile.tempdir = os.path.join(scratch, str(os.getpid()))
    with suppress(FileExistsError):
        os.mkdir(scratch, mode=0o700)
    os.makedirs(tempfile.tempdir, mode=0o700, exist_ok=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Whatever a library prints is no answer.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    over = threading.Event()
    reader = threading.Thread(target=_read, args=(requests, arrived, over), daemon=True)
    reader.start()
    try:
        while True:
            function = pickle.loads(arrived.get())  # noqa: S301 - from the process that started this one
            answer: tuple[Any, BuildError | None]
            try:
                answer = function(), None
            except BuildError as error:
                answer = None, error
            with suppress(BrokenPipeError):  # at the end of the input, which the reader sees too
                send(answers, answer)
    finally:
        if over.is_set():  # what failed did so because its files were removed, which is to be completed
            reader.join()


def _read(requests: IO[bytes], arrived: queue.SimpleQueue[bytes], over: threading.Event) -> None:
    """Pass requests on. At their end nobody waits for an answer: leave at once, and leave nothing behind."""
    while (message := receive(requests)) is not None:
        arrived.put(message)
    over.set()
    process.end_all()
    own = tempfile.gettempdir()
    for _ in range(100):
        shutil.rmtree(own, ignore_errors=True)  # a compiler may be writing
        if not os.path.exists(own):
            break
    with suppress(OSError):
        os.rmdir(os.path.dirname(own))
    os._exit(0)


def send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message; ``None`` at the end."""
    size = int.from_bytes(stream.read(8), "little")
    data = stream.read(size) if size else b""
    return data if size and len(data) == size else None
