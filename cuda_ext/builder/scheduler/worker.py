"""A worker process of :mod:`~cuda_ext.builder.scheduler.local_pool`: do tasks until the input ends.

Tasks and answers are pickles. When the worker ends, it ends its programs and removes its temporary files.
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

from cuda_ext.errors import BuildError, describe_error, starts_nothing
from cuda_ext.toolchain import process

# The exit code of a worker whose task took too long.
TOO_SLOW = 75

# The thread that ends the process acquires it and keeps it.
_ending = threading.Lock()


def serve(scratch: str, limit: float, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Call the functions that arrive from `requests`, and write what they return or raise.

    A call that takes longer than `limit` seconds ends the process. Temporary files go below `scratch`.
    """
    # Each worker has its own directory, so that nothing is written there after the worker has ended.
    tempfile.tempdir = os.path.join(scratch, str(os.getpid()))
    with suppress(FileExistsError):
        os.mkdir(scratch, mode=0o700)
    os.makedirs(tempfile.tempdir, mode=0o700, exist_ok=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":  # replace the signal mask inherited from the parent
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Libraries may print to stdout, which must not mix with the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    own = os.getpid()
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        threading.Thread(target=_read, args=(requests, arrived), daemon=True).start()
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
            if os.getpid() != own:  # a fork, made by a Python source: only its parent answers
                os._exit(0)
            with suppress(BrokenPipeError):  # the reader thread then finds the end of the input
                answers.write(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
                answers.flush()
    except BaseException as error:
        _fail(error)


def _read(requests: IO[bytes], arrived: queue.SimpleQueue[Any]) -> None:
    """Put each request into `arrived`, and end the process when the input ends."""
    try:
        while True:
            arrived.put(pickle.load(requests))  # noqa: S301 - from the process that started this one
    except EOFError:
        _end(0)
    except BaseException as error:
        _fail(error)


def _fail(error: BaseException) -> NoReturn:
    """Print the error and end the process, unless another thread is ending it."""
    with _ending:
        if starts_nothing(error):
            print(describe_error(error), file=sys.stderr)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    _end(1)


def _end(code: int) -> NoReturn:
    """End the process and its programs, and remove its files."""
    _ending.acquire()
    process.end_all()
    # A compiler that is still writing must not report that its files disappear.
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
