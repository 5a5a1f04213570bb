"""How commands speak: sizes and times as people read them, JSON for programs, and a bar while one waits."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["ago", "counted", "echo_json", "progress", "quoted", "shown", "size"]

# Whoever waits for less is not in need of a bar.
_SLOW = 1.0


def size(count: float) -> str:
    """A number of bytes, in the units of ``CUDA_EXT_CACHE_SIZE``.

    >>> size(1023), size(5 << 30), size(1_300_000)
    ('1023 B', '5 GiB', '1.2 MiB')
    """
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(count, 1) < 1024:
            break
        count, unit = count / 1024, larger
    return f"{count:.1f}".removesuffix(".0") + f" {unit}"


def ago(seconds: float) -> str:
    """How long ago something was, which is known to the hour.

    >>> ago(100), ago(3600), ago(200_000)
    ('within the hour', '1 hour ago', '2 days ago')
    """
    hours = int(seconds // 3600)
    if hours < 1:
        return "within the hour"
    return f"{counted(hours, 'hour') if hours < 48 else counted(hours // 24, 'day')} ago"


def counted(count: int, noun: str, plural: str = "") -> str:
    """So many of something.

    >>> counted(1, "entry", "entries"), counted(1200, "file")
    ('1 entry', '1,200 files')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def shown(path: Path) -> str:
    """`path`, relative to the current directory if it lies within that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def quoted(path: str) -> str:
    """`path`, as one types it in this system's shell."""
    if sys.platform == "win32":  # where no path has a quote
        return f'"{path}"' if " " in path else path
    return shlex.quote(path)


def echo_json(value: object) -> None:
    """Print `value` for programs."""
    click.echo(json.dumps(value, indent=2))


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None]]:
    """Takes how much is done, from 0 to 1, and shows it on a terminal if all of it takes long."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=1.0)
    slow = time.monotonic() + _SLOW

    def show(done: float) -> None:
        if bar.live.is_started:
            bar.update(task, completed=done)
        elif bar.console.is_terminal and time.monotonic() > slow:
            bar.start()

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
