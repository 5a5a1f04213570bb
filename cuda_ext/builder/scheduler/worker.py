"""A worker process of :mod:`~cuda_ext.builder.scheduler.local_pool`: do tasks until the input ends.

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


def serve(scratch: str) -> None:
    """Call the functions that arrive on standard input, and write what they return or raise.

    Temporary files go below `scratch`.
    """
    # Each worker has a directory of its own, in which nothing can appear after the worker has ended.
    tempfile.tempdir = os.path.join(scratch, str(os.getpid()))
    with suppress(FileExistsError):
        os.mkdir(scratch, mode=0o700)
    os.makedirs(tempfile.tempdir, mode=0o700, exist_ok=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The output of a library is no answer.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    own = os.getpid()
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    input_ended = threading.Event()
    reader = threading.Thread(target=_read, args=(requests, arrived, input_ended), daemon=True)
    reader.start()
    try:
        while True:
            function = pickle.loads(arrived.get())  # noqa: S301 - from the process that started this one
            answer: tuple[Any, BuildError | None]
            try:
                answer = function(), None
            except BuildError as error:
                answer = None, error
            if os.getpid() != own:  # a source has forked this process, which alone answers
                os._exit(0)
            with suppress(BrokenPipeError):  # the input ends too, which the reader handles
                send(answers, answer)
    finally:
        if input_ended.is_set():  # the reader removes the files, and ends the process
            reader.join()


def _read(requests: IO[bytes], arrived: queue.SimpleQueue[bytes], input_ended: threading.Event) -> None:
    """Pass requests on. At their end, end the process at once, with its programs and files."""
    while (message := receive(requests)) is not None:
        arrived.put(message)
    input_ended.set()
    process.end_all()
    # A compiler may still be writing, and must not complain about files that are removed now.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    own = tempfile.gettempdir()
    for _ in range(100):
        shutil.rmtree(own, ignore_errors=True)
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
    """Return the next message; ``None`` at the end."""
    size = int.from_bytes(stream.read(8), "little")
    data = stream.read(size) if size else b""
    return data if size and len(data) == size else None
