"""Record the launches of this process. Whatever goes wrong here, the recorded program goes on."""

from __future__ import annotations

import atexit
import errno
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda_ext.errors import escape_controls
from cuda_ext.facts.codec import decode, encode
from cuda_ext.recording.records import Launch, write_line

VARIABLE = "CUDA_EXT_RECORD"
# Of launches that differ only in shapes, strides, numbers and grids, a process keeps the first.
MOST_LAUNCHES = 200


class Recording(NamedTuple):
    """The contents of the variable: the directory of records, and that of the project.

    If it ``replaces`` launches of front-ends, these are recorded and not executed: there is no GPU.
    """

    directory: str
    root: str
    replaces: bool = False

    def added_to(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that is recorded."""
        startup = str(Path(__file__).with_name("startup"))
        path = os.pathsep.join(filter(None, [startup, environ.get("PYTHONPATH")]))
        return {**environ, "PYTHONPATH": path, VARIABLE: encode(self).decode()}

    def relative(self, file: str) -> str:
        """Return the path of `file` relative to the project, or its own path if it lies elsewhere."""
        path = Path(os.path.realpath(file))
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


@cache
def recording() -> Recording:
    """Return what the environment says."""
    return decode(Recording, os.environ[VARIABLE].encode())


class _Recorder:
    """The launches of one process, each once, and the file to which they are appended."""

    def begin(self) -> None:
        """Begin a new file, also in a fork."""
        self._lock = threading.Lock()
        self._times: Counter[Launch] = Counter()
        self._alike: Counter[object] = Counter()
        self._file = -1
        self._has_failed = False

    def add(self, launch: Launch) -> None:
        """Append `launch` if it is new, unless there are many alike."""
        alike = launch.kind, launch.module, launch.source, launch.instantiation
        with self._lock:
            if launch not in self._times:
                if self._alike[alike] == MOST_LAUNCHES:
                    _say(f"records the first {MOST_LAUNCHES} different launches of {launch.instantiation}")
                    return
                self._alike[alike] += 1
                self._append(launch)
            self._times[launch] += 1

    def end(self) -> None:
        """Append the launches that were seen more than once, with their numbers."""
        for launch, times in self._times.items():
            if times > 1:
                self._append(launch._replace(times=times))

    def _append(self, launch: Launch) -> None:
        if self._has_failed:
            return
        place = recording().directory
        try:
            if self._file < 0:
                Path(place).mkdir(parents=True, exist_ok=True)
                place = f"{place}/{os.getpid()}-{os.urandom(4).hex()}.jsonl"
                self._file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            line = write_line(launch)
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._has_failed = True  # a line that is not complete stays the last one
            _say(f"{place}: {error.strerror}; this process records no further launches")


_recorder = _Recorder()
_recorder.begin()
atexit.register(_recorder.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_recorder.begin)


def record(kernel: str, describe: Callable[[], Launch]) -> None:
    """Record the launch of `kernel` that `describe` returns."""
    try:
        _recorder.add(describe())
    except Exception as error:
        _say(f"a launch of {kernel} is not recorded: {type(error).__name__}: {error}")


@cache
def _say(text: str) -> None:
    """Show `text`, once."""
    print(f"cuda-ext record: {escape_controls(text)}", file=sys.stderr, flush=True)
