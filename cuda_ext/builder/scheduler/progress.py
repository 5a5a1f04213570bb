"""The progress of a running build: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import atexit
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from cuda_ext.errors import escape_controls
from cuda_ext.formats.quantities import (
    format_clock,
    format_count,
    format_duration,
    format_estimate,
    format_seconds,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Ending", "Progress", "Quiet", "progress_for"]

Ending = Literal["compiled", "cached", "failed"]

# Running jobs that the live display names.
_MOST_NAMES = 4
# The seconds and compilations from which the remaining time can be estimated.
_ENOUGH_SECONDS, _ENOUGH_JOBS = 2.0, 3


class Progress(Protocol):
    """Receives what a build does, from any thread. :meth:`close` must always be called."""

    def plan(self, jobs: int) -> None:
        """Add a number of jobs."""

    def started(self, job: str) -> None:
        """Note that `job` began to compile."""

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        """Note that `job` ended after `seconds`; a verbose display shows the `commands` that did it."""

    def note(self, text: str) -> None:
        """Show a line about the course of the build."""

    def message(self, text: str) -> None:
        """Show a line to keep, such as a warning."""

    def close(self) -> None:
        """Show a summary and restore the terminal. Closing twice has no effect."""


def progress_for(stream: TextIO, report: Callable[[str], None], verbose: bool = False) -> Progress:
    """Open a live display if `stream` is a terminal that can show one; otherwise report lines to `report`.

    A `verbose` one shows the commands of each compilation.
    """
    if (
        stream.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
        and not os.environ.get("CI")
        and (stream.encoding or "").lower().replace("-", "").startswith("utf")
        and importlib.util.find_spec("rich") is not None
    ):
        return _Live(stream, verbose)
    return _Lines(report, verbose)


class Quiet:
    """Reports messages only, for builds whose progress another tool shows."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.message = report

    def plan(self, jobs: int) -> None:
        pass

    def started(self, job: str) -> None:
        pass

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Counts:
    """The jobs so far, and an estimate of the remaining time. The owner holds the lock."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.total = 0
        self.running: dict[str, int] = {}
        self.by_ending: dict[Ending, int] = {"compiled": 0, "cached": 0, "failed": 0}
        self._first: float | None = None

    @property
    def done(self) -> int:
        return sum(self.by_ending.values())

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def plan(self, jobs: int) -> None:
        self.total += jobs

    def start(self, job: str) -> None:
        self._first = time.monotonic() if self._first is None else self._first
        self.running[job] = self.running.get(job, 0) + 1

    def finish(self, job: str, ending: Ending) -> None:
        self.by_ending[ending] += 1
        # There may be more jobs than planned, and the display must not show 57/56.
        self.total = max(self.total, self.done)
        if self.running.get(job, 0) > 1:
            self.running[job] -= 1
        else:
            self.running.pop(job, None)

    def remaining(self) -> float | None:
        """Estimate the remaining seconds; ``None`` while too few jobs have ended."""
        compiled = self.by_ending["compiled"] + self.by_ending["failed"]
        since = time.monotonic() - self._first if self._first is not None else 0.0
        left = self.total - self.done
        if since < _ENOUGH_SECONDS or compiled < _ENOUGH_JOBS or not left:
            return None
        return left * since / compiled

    def summary(self) -> str:
        """Return the line for the end of the build."""
        left = self.total - self.done
        words = {"compiled": "compiled", "cached": "from the cache", "failed": "failed"}
        parts = [f"{count:,} {words[ending]}" for ending, count in self.by_ending.items() if count]
        parts += [f"{left:,} not done"] if left else []
        total, took = format_count(self.total, "compilation"), format_duration(self.elapsed)
        return f"{total}: {', '.join(parts)}, in {took}"


class _Lines:
    """Plain lines: each message, each finished compilation, and a summary."""

    def __init__(self, report: Callable[[str], None], verbose: bool) -> None:
        self._receive = report
        self._verbose = verbose
        self._lock = RLock()
        self._counts = _Counts()
        self._closed = False

    def _report(self, text: str) -> None:
        self._receive(escape_controls(text))

    def plan(self, jobs: int) -> None:
        with self._lock:
            self._counts.plan(jobs)

    def started(self, job: str) -> None:
        with self._lock:
            self._counts.start(job)

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        with self._lock:
            jobs = self._counts
            jobs.finish(job, ending)
            for command in commands if self._verbose else ():
                self._report(command)
            if ending != "cached":
                count = f"[{jobs.done:{len(str(jobs.total))}}/{jobs.total}]"
                ended = "failed" if ending == "failed" else format_seconds(seconds)
                self._report(f"{count} {job} {ended}")

    def message(self, text: str) -> None:
        with self._lock:
            self._report(text)

    note = message

    def close(self) -> None:
        with self._lock:
            if not self._closed and self._counts.total:
                self._report(self._counts.summary())
            self._closed = True


class _Live:
    """A bar, the running jobs and the remaining time, drawn in place; messages are printed above it."""

    def __init__(self, stream: TextIO, verbose: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._lock = RLock()
        self._verbose = verbose
        self._counts = _Counts()
        self._closed = False
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
        with self._lock:
            self._counts.plan(jobs)
            if not self._closed and not self._live.is_started:
                self._live.start()

    def started(self, job: str) -> None:
        with self._lock:
            self._counts.start(job)

    def finished(self, job: str, ending: Ending, seconds: float, commands: Sequence[str] = ()) -> None:
        with self._lock:
            self._counts.finish(job, ending)
        for command in commands if self._verbose else ():
            self._print(command, "dim")
        if ending == "failed":
            self._print(f"failed: {job} after {format_seconds(seconds)}", "red")

    def message(self, text: str) -> None:
        self._print(text)

    note = message

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._at_exit)
        self._live.stop()
        if self._counts.total:
            self._print(self._counts.summary())

    def _at_exit(self) -> None:
        if os.getpid() == self._process:
            self.close()

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(escape_controls(text), style), soft_wrap=True)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            jobs = self._counts
            counts, done, total = dict(jobs.by_ending), jobs.done, jobs.total
            running, remaining, elapsed = list(jobs.running), jobs.remaining(), jobs.elapsed
        figures = Text.assemble((f"{done:,}/{total:,}", "bold"))
        if counts["cached"]:
            figures.append(f"  {counts['cached']:,} cached", "cyan")
        if counts["failed"]:
            figures.append(f"  {counts['failed']:,} failed", "bold red")
        figures.append(f"  {format_clock(elapsed)}", "dim")
        if remaining is not None:
            figures.append(f"  about {format_estimate(remaining)} left", "dim")
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
