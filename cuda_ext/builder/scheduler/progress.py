"""The progress of a running build: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import atexit
import importlib.util
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Literal, TextIO

from cuda_ext.errors import escape_controls
from cuda_ext.formats.quantities import (
    format_clock,
    format_count,
    format_duration,
    format_seconds,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

Ending = Literal["compiled", "cached", "failed"]

# The number of running jobs that the live display names.
_MOST_NAMES = 4
# The seconds and compilations after which the remaining time can be estimated.
_ENOUGH_SECONDS, _ENOUGH_JOBS = 2.0, 3


class Progress:
    """Counts a build's steps, from any thread, and shows only messages: for builds within another tool.

    :meth:`close` must always be called.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._lock = RLock()
        self._began = time.monotonic()
        self._first: float | None = None
        self._total = 0
        self._running: Counter[str] = Counter()
        self._by_ending: dict[Ending, int] = {"compiled": 0, "cached": 0, "failed": 0}
        self._is_closed = False

    def plan(self, jobs: int) -> None:
        """Add a number of jobs."""
        with self._lock:
            self._total += jobs

    def started(self, job: str) -> None:
        """Note that `job` began to compile."""
        with self._lock:
            self._first = time.monotonic() if self._first is None else self._first
            self._running[job] += 1

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:  # noqa: ARG002
        """Note that `job` ended after `seconds`; a verbose display shows its `commands`."""
        with self._lock:
            self._by_ending[ending] += 1
            # There may be more jobs than planned, and the display must not show 57/56.
            self._total = max(self._total, self._done)
            self._running[job] -= 1
            self._running = +self._running

    def note(self, text: str) -> None:
        """Show a line about the course of the build."""

    def message(self, text: str) -> None:
        """Show a line to keep, such as a warning."""
        self._show(text)

    def close(self) -> None:
        """Show a summary and restore the terminal. Closing twice has no effect."""

    def remaining(self) -> float | None:
        """Estimate the remaining seconds; ``None`` while too few jobs have ended."""
        compiled = self._by_ending["compiled"] + self._by_ending["failed"]
        since = time.monotonic() - self._first if self._first is not None else 0.0
        left = self._total - self._done
        if since < _ENOUGH_SECONDS or compiled < _ENOUGH_JOBS or not left:
            return None
        return left * since / compiled

    @property
    def _done(self) -> int:
        return sum(self._by_ending.values())

    def _show(self, text: str, style: str = "") -> None:  # noqa: ARG002
        with self._lock:
            self._report(escape_controls(text))


def progress_for(
    stream: TextIO, report: Callable[[str], None], verbose: bool = False, heading: str = ""
) -> Progress:
    """Open a live display if `stream` is a terminal that can show one; otherwise report lines to `report`.

    A `verbose` one shows the commands of each compilation. With a `heading`, which comes first, nothing is
    shown before a compilation or a message.
    """
    if (
        stream.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
        and not os.environ.get("CI")
        and (stream.encoding or "").lower().replace("-", "").startswith("utf")
        and importlib.util.find_spec("rich") is not None
    ):
        return _Live(stream, verbose, heading)
    return _Lines(report, verbose, heading)


class _Lines(Progress):
    """Plain lines: each message, each finished compilation, and a summary."""

    def __init__(self, report: Callable[[str], None], verbose: bool, heading: str) -> None:
        super().__init__(report)
        self._verbose = verbose
        # Notes, while nothing is shown.
        self._held = [heading] if heading else None

    def started(self, job: str) -> None:
        super().started(job)
        self._reveal()

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        with self._lock:
            super().finished(job, ending, seconds, commands)
            for command in commands if self._verbose else ():
                self._show(command)
            if ending != "cached":
                count = f"[{self._done:{len(str(self._total))}}/{self._total}]"
                ended = "failed" if ending == "failed" else format_seconds(seconds)
                self._show(f"{count} {job} {ended}")

    def note(self, text: str) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append(text)
                return
        self._show(text)

    def message(self, text: str) -> None:
        self._reveal()
        self._show(text)

    def close(self) -> None:
        if self._end() and self._total and self._held is None:
            self._show(self._summary())

    def _end(self) -> bool:
        """Note that the build has ended; return False if this was known."""
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        return not is_closed

    def _reveal(self) -> None:
        """Show the notes that were held back."""
        with self._lock:
            held, self._held = self._held or (), None
        for text in held:
            self._show(text)

    def _summary(self) -> str:
        left = self._total - self._done
        words = {"compiled": "compiled", "cached": "from the cache", "failed": "failed"}
        parts = [f"{count:,} {words[ending]}" for ending, count in self._by_ending.items() if count]
        parts += [f"{left:,} not done"] if left else []
        took = format_duration(time.monotonic() - self._began)
        return f"{format_count(self._total, 'compilation')}: {', '.join(parts)}, in {took}"


class _Live(_Lines):
    """A bar, the running jobs and the remaining time, drawn in place; messages are printed above it.

    Nothing is printed with the lock held, which drawing takes.
    """

    def __init__(self, stream: TextIO, verbose: bool, heading: str) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(lambda _: None, verbose, heading)
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        # Worker processes may be forks of this one: redirected streams would copy locks that no thread there
        # releases.
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._process = os.getpid()
        atexit.register(self._at_exit)

    def plan(self, jobs: int) -> None:
        super().plan(jobs)
        self._draw()

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        Progress.finished(self, job, ending, seconds)
        for command in commands if self._verbose else ():
            self._show(command, "dim")
        if ending == "failed":
            self._show(f"failed: {job} after {format_seconds(seconds)}", "red")

    def _end(self) -> bool:
        is_new = super()._end()  # do this first: jobs that still begin must not draw again
        atexit.unregister(self._at_exit)
        self._live.stop()
        return is_new

    def _reveal(self) -> None:
        super()._reveal()
        self._draw()

    def _draw(self) -> None:
        """Begin to draw, if there is anything to show."""
        with self._lock:
            is_shown = self._total and self._held is None
            if is_shown and not self._is_closed and not self._live.is_started:
                self._live.start()

    def _at_exit(self) -> None:
        if os.getpid() == self._process:
            self.close()

    def _show(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(escape_controls(text), style), soft_wrap=True)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            counts, done, total = dict(self._by_ending), self._done, self._total
            running, remaining = list(self._running), self.remaining()
        figures = Text.assemble((f"{done:,}/{total:,}", "bold"))
        if counts["cached"]:
            figures.append(f"  {counts['cached']:,} cached", "cyan")
        if counts["failed"]:
            figures.append(f"  {counts['failed']:,} failed", "bold red")
        figures.append(f"  {format_clock(time.monotonic() - self._began)}", "dim")
        if remaining is not None:
            figures.append(f"  about {format_clock(remaining)} left", "dim")
        line = Table.grid(padding=(0, 2, 0, 0), expand=False)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis")
        width = max(8, min(36, self._console.width - len(figures.plain) - 4))
        bar = ProgressBar(
            total=max(total, 1), completed=done, width=width, complete_style="cyan", finished_style="green"
        )
        line.add_row(bar, figures)
        shown = running if len(running) <= _MOST_NAMES else running[: _MOST_NAMES - 1]
        names = [Text(f"  {job}", "dim", no_wrap=True, overflow="ellipsis") for job in shown]
        if len(running) > len(shown):
            names.append(Text(f"  and {len(running) - len(shown):,} more", "dim"))
        return Group(line, *names)
