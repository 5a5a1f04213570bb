"""Show the progress of a build: lines, and on a terminal a status line below them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Literal, TextIO

from cuda_ext.errors import escape_controls
from cuda_ext.formats.quantities import format_clock, format_count, format_duration, format_seconds

Ending = Literal["compiled", "cached", "failed"]

# The remaining time is estimated after so many seconds and compilations.
_ENOUGH_SECONDS, _ENOUGH_JOBS = 2.0, 3


class Progress:
    """Counts the jobs of a build and passes lines to `report`. Any thread may call it.

    On a `terminal`, the last line shows the state of the build, and successful compilations have no line. If
    `verbose`, it shows the commands of each compilation. A `heading` is the first line; it and later notes
    are held back until the first compilation or message. Callers must call :meth:`close`.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        terminal: TextIO | None = None,
        verbose: bool = False,
        heading: str = "",
    ) -> None:
        self._report = report
        self._terminal = terminal
        self._is_verbose = verbose
        # The notes that are held back; ``None`` once lines are shown.
        self._held = [heading] if heading else None
        self._lock = RLock()
        self._began = time.monotonic()
        self._first: float | None = None
        self._total = 0
        self._running: Counter[str] = Counter()
        self._endings: Counter[Ending] = Counter()
        self._is_closed = False

    def plan(self, jobs: int) -> None:
        """Add `jobs` to the number of planned jobs."""
        with self._lock:
            self._total += jobs
            self._draw()

    def started(self, job: str) -> None:
        """Note that `job` began to compile."""
        with self._lock:
            self._first = time.monotonic() if self._first is None else self._first
            self._running[job] += 1
            self._reveal()
            self._draw()

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        """Note that `job`, which ran `commands`, ended after `seconds`."""
        with self._lock:
            self._endings[ending] += 1
            done = self._endings.total()
            # More jobs than planned may end; the display must not read 57/56.
            self._total = max(self._total, done)
            self._running[job] -= 1
            self._running = +self._running
            for command in commands if self._is_verbose else ():
                self._show(command)
            if ending == "failed" or (ending == "compiled" and not self._terminal):
                ended = "failed" if ending == "failed" else format_seconds(seconds)
                self._show(f"[{done:{len(str(self._total))}}/{self._total}] {job} {ended}")
            self._draw()

    def note(self, text: str) -> None:
        """Show a line that matters only if something is compiled."""
        with self._lock:
            if self._held is None:
                self._show(text)
            else:
                self._held.append(text)

    def message(self, text: str) -> None:
        """Show a line that matters even if nothing is compiled, such as a warning."""
        with self._lock:
            self._reveal()
            self._show(text)

    def close(self) -> None:
        """Show a summary in place of the status line. Closing twice has no effect."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._total and self._held is None:
                self._show(self._summary())

    def remaining(self) -> float | None:
        """Estimate the remaining seconds; ``None`` while too few jobs have ended."""
        compiled = self._endings["compiled"] + self._endings["failed"]
        since = time.monotonic() - self._first if self._first is not None else 0.0
        left = self._total - self._endings.total()
        if since < _ENOUGH_SECONDS or compiled < _ENOUGH_JOBS or not left:
            return None
        return left * since / compiled

    def _reveal(self) -> None:
        """Show the notes that were held back."""
        held, self._held = self._held or (), None
        for text in held:
            self._show(text)

    def _show(self, text: str) -> None:
        """Show a line above the status line."""
        self._write("")
        self._report(escape_controls(text))
        self._draw()

    def _draw(self) -> None:
        """Redraw the status line, if there is one."""
        if self._total and self._held is None and not self._is_closed:
            self._write(self._status())

    def _write(self, line: str) -> None:
        """Replace the status line. Padding clears it, as some terminals do not know control sequences."""
        if not self._terminal:
            return
        try:
            most = os.get_terminal_size(self._terminal.fileno()).columns - 1
        except OSError:
            most = 79
        self._terminal.write(f"\r{escape_controls(line)[:most]:{most}}\r")
        self._terminal.flush()

    def _status(self) -> str:
        parts = [f"[{self._endings.total():,}/{self._total:,}]"]
        parts += [
            f"{self._endings[ending]:,} {ending}" for ending in ("cached", "failed") if self._endings[ending]
        ]
        if (remaining := self.remaining()) is not None:
            parts.append(f"about {format_clock(remaining)} left")
        if self._running:
            parts.append(next(iter(self._running)))
            parts += [f"and {len(self._running) - 1:,} more"] if len(self._running) > 1 else []
        return "  ".join(parts)

    def _summary(self) -> str:
        left = self._total - self._endings.total()
        words: dict[Ending, str] = {"compiled": "compiled", "cached": "from the cache", "failed": "failed"}
        parts = [
            f"{self._endings[ending]:,} {word}" for ending, word in words.items() if self._endings[ending]
        ]
        parts += [f"{left:,} not done"] if left else []
        took = format_duration(time.monotonic() - self._began)
        return f"{format_count(self._total, 'compilation')}: {', '.join(parts)}, in {took}"


def progress_for(
    stream: TextIO, report: Callable[[str], None], verbose: bool = False, heading: str = ""
) -> Progress:
    """Create a progress: with a status line if `stream` is a terminal, otherwise with lines to `report`."""
    is_terminal = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    if is_terminal and not os.environ.get("CI"):
        return Progress(partial(print, file=stream, flush=True), stream, verbose, heading)
    return Progress(report, None, verbose, heading)
