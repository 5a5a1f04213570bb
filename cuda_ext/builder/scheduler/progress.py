"""What a running build shows: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import atexit
import importlib.util
import os
import time
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Outcome", "Progress", "Quiet", "progress_for"]

Outcome = Literal["compiled", "cached", "failed"]

# Names of running jobs that the live display has room for.
_NAMES = 4
# An estimate from less than this, in seconds and compilations, would be a guess.
_SEEN = (2.0, 3)


class Progress(Protocol):
    """What a build tells while it runs, from any thread. :meth:`close` must always be called."""

    def plan(self, jobs: int, expected: float | None = None) -> None:
        """More jobs are known; `expected` are their seconds together, if earlier builds tell."""

    def started(self, job: str) -> None:
        """`job` is being compiled."""

    def finished(self, job: str, outcome: Outcome, seconds: float, expected: float | None) -> None:
        """`job` took `seconds`, where `expected` were planned, if any."""

    def note(self, text: str) -> None:
        """A line that tells how things go."""

    def message(self, text: str) -> None:
        """A line to keep, such as a warning."""

    def close(self) -> None:
        """Say how it went and leave the terminal as it was. Closing twice does nothing."""


def progress_for(stream: TextIO, report: Callable[[str], None]) -> Progress:
    """A live display if `stream` is a terminal that can show one; otherwise lines through `report`."""
    if (
        stream.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
        and not os.environ.get("CI")
        and (stream.encoding or "").lower().replace("-", "").startswith("utf")
        and importlib.util.find_spec("rich") is not None
    ):
        return _Live(stream)
    return _Lines(report)


class Quiet:
    """Messages alone, for builds in which somebody else shows the progress."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.message = report

    def plan(self, jobs: int, expected: float | None = None) -> None:
        pass

    def started(self, job: str) -> None:
        pass

    def finished(self, job: str, outcome: Outcome, seconds: float, expected: float | None) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Tally:
    """Counts, and what they say of the rest. Its owner holds the lock."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.total = 0
        self.running: dict[str, int] = {}
        self.counts: dict[Outcome, int] = {"compiled": 0, "cached": 0, "failed": 0}
        self.planned: float | None = 0.0
        self._first: float | None = None
        self._real = self._expected = self._spent = 0.0

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def plan(self, jobs: int, expected: float | None) -> None:
        self.total += jobs
        self.planned = None if expected is None or self.planned is None else self.planned + expected

    def start(self, job: str) -> None:
        self._first = time.monotonic() if self._first is None else self._first
        self.running[job] = self.running.get(job, 0) + 1

    def finish(self, job: str, outcome: Outcome, seconds: float, expected: float | None) -> None:
        self.counts[outcome] += 1
        # A job may be more than was planned, and must not make the display say 57 of 56.
        self.total = max(self.total, self.done)
        if self.running.get(job, 0) > 1:
            self.running[job] -= 1
        else:
            self.running.pop(job, None)
        if self.planned is not None:
            self.planned -= expected or 0.0
        if outcome != "cached":
            self._spent += seconds
            if expected:
                self._real, self._expected = self._real + seconds, self._expected + expected

    def rest(self) -> float | None:
        """The seconds that are left, or ``None`` as long as nobody can know."""
        compiled = self.counts["compiled"] + self.counts["failed"]
        since = time.monotonic() - self._first if self._first is not None else 0.0
        left = self.total - self.done
        if since < _SEEN[0] or compiled < _SEEN[1] or not left:
            return None
        if self.planned is not None and self.planned > 0 and self._expected > 0:
            at_once = max(self._spent / since, 1.0)
            return self.planned * (self._real / self._expected) / at_once
        return left * since / compiled

    def summary(self) -> str:
        """One line for the end."""
        left = self.total - self.done
        words = {"compiled": "compiled", "cached": "from the cache", "failed": "failed"}
        parts = [f"{count:,} {words[outcome]}" for outcome, count in self.counts.items() if count]
        parts += [f"{left:,} not done"] if left else []
        noun = "compilation" if self.total == 1 else "compilations"
        return f"{self.total:,} {noun}: {', '.join(parts)}, in {_spoken(self.elapsed)}"


class _Lines:
    """Plain lines: each message, each compilation that was done, and a summary."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._lock = RLock()
        self._tally = _Tally()
        self._closed = False

    def plan(self, jobs: int, expected: float | None = None) -> None:
        with self._lock:
            self._tally.plan(jobs, expected)

    def started(self, job: str) -> None:
        with self._lock:
            self._tally.start(job)

    def finished(self, job: str, outcome: Outcome, seconds: float, expected: float | None) -> None:
        with self._lock:
            tally = self._tally
            tally.finish(job, outcome, seconds, expected)
            if outcome != "cached":
                count = f"[{tally.done:{len(str(tally.total))}}/{tally.total}]"
                ended = "failed" if outcome == "failed" else f"{seconds:.2f} s"
                self._report(f"{count} {job} {ended}")

    def message(self, text: str) -> None:
        with self._lock:
            self._report(text)

    note = message

    def close(self) -> None:
        with self._lock:
            if not self._closed and self._tally.total:
                self._report(self._tally.summary())
            self._closed = True


class _Live:
    """A bar, what is running, and how long it may take, drawn in place; what is to be kept goes above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._lock = RLock()
        self._tally = _Tally()
        self._closed = False
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        # Worker processes may be forks of this one: redirected streams would take locks along that no thread
        # there releases.
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

    def plan(self, jobs: int, expected: float | None = None) -> None:
        with self._lock:
            self._tally.plan(jobs, expected)
            if not self._closed and not self._live.is_started:
                self._live.start()

    def started(self, job: str) -> None:
        with self._lock:
            self._tally.start(job)

    def finished(self, job: str, outcome: Outcome, seconds: float, expected: float | None) -> None:
        with self._lock:
            self._tally.finish(job, outcome, seconds, expected)
        if outcome == "failed":
            self._print(f"failed: {job} after {seconds:.2f} s", "red")

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
        if self._tally.total:
            self._print(self._tally.summary())

    def _at_exit(self) -> None:
        if os.getpid() == self._process:
            self.close()

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style), soft_wrap=True)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            tally = self._tally
            counts, done, total = dict(tally.counts), tally.done, tally.total
            running, rest, elapsed = list(tally.running), tally.rest(), tally.elapsed
        figures = Text.assemble((f"{done:,}/{total:,}", "bold"))
        if counts["cached"]:
            figures.append(f"  {counts['cached']:,} cached", "cyan")
        if counts["failed"]:
            figures.append(f"  {counts['failed']:,} failed", "bold red")
        figures.append(f"  {_clock(elapsed)}", "dim")
        if rest is not None:
            figures.append(f"  about {_rough(rest)} left", "dim")
        line = Table.grid(padding=(0, 2, 0, 0), expand=False)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis")
        width = max(8, min(36, self._console.width - len(figures.plain) - 4))
        bar = ProgressBar(
            total=max(total, 1), completed=done, width=width, complete_style="cyan", finished_style="green"
        )
        line.add_row(bar, figures)
        shown = running if len(running) <= _NAMES else running[: _NAMES - 1]
        names = [Text(f"  {job}", "dim", no_wrap=True, overflow="ellipsis") for job in shown]
        if len(running) > len(shown):
            names.append(Text(f"  and {len(running) - len(shown):,} more", "dim"))
        return Group(line, *names)


def _spoken(seconds: float) -> str:
    if seconds >= 59.95:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    return f"{seconds:.1f} s" if seconds >= 0.95 else f"{seconds:.2f} s"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _rough(seconds: float) -> str:
    """An estimate without more digits than it is worth."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 90:
        return f"{round(seconds / 60)} min"
    return f"{max(5, 5 * round(seconds / 5))} s" if seconds >= 10 else f"{max(1, round(seconds))} s"
