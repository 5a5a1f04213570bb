"""A worker process of :mod:`~cuda_ext.builder.scheduler.local_pool`: do tasks until the input ends.

Tasks and answers are pickles. What the worker started and wrote ends with it.
"""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from typing import IO, Any, NoReturn

from cuda_ext.errors import BuildError
from cuda_ext.toolchain import process

# The exit code of a worker whose task took too long.
TOO_SLOW = 75

# Held from the moment when the process is to end.
_ending = threading.Lock()


def serve(scratch: str, limit: float, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Call the functions that arrive from `requests`, and write what they return or raise.

    One that takes longer than `limit` seconds ends the process. Temporary files go below `scratch`.
    """
    # Each worker has a directory of its own, in which nothing can appear after the worker has ended.
    tempfile.tempdir = os.path.join(scratch, str(os.getpid()))
    with suppress(FileExistsError):
        os.mkdir(scratch, mode=0o700)
    os.makedirs(tempfile.tempdir, mode=0o700, exist_ok=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":  # the mask of the process that started this one
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # The output of a library is no answer.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    own = os.getpid()
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, arrived), daemon=True).start()
    try:
        while True:
            function = arrived.get()
            timer = threading.Timer(limit, _end, [TOO_SLOW])
            timer.daemon = True
            timer.start()
            answer: tuple[Any, BuildError | None]
            try:
                answer = function(), None
            except BuildError as error:
                answer = None, error
            timer.cancel()
            if os.getpid() != own:  # a source has forked this process, which alone answers
                os._exit(0)
            with suppress(BrokenPipeError):  # the input ends too, which the reader handles
                answers.write(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
                answers.flush()
    except BaseException:
        _fail()


def _read(requests: IO[bytes], arrived: queue.SimpleQueue[Any]) -> None:
    """Pass requests on. At their end, end the process at once."""
    try:
        while True:
            arrived.put(pickle.load(requests))  # noqa: S301 - from the process that started this one
    except EOFError:
        _end(0)
    except BaseException:
        _fail()


def _fail() -> NoReturn:
    """End the process with a traceback of the exception, unless it ends already."""
    with _ending:
        sys.excepthook(*sys.exc_info())
    _end(1)


def _end(code: int) -> NoReturn:
    """End the process with its programs and files."""
    _ending.acquire()
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
    os._exit(code)
