"""The commands that a job runs, as ``cuda-ext build -v`` shows them. Calls of libraries are spelled alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_recorded: ContextVar[list[str] | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded_commands() -> Iterator[list[str]]:
    """Yield a list that receives what this thread runs meanwhile."""
    commands: list[str] = []
    token = _recorded.set(commands)
    try:
        yield commands
    finally:
        _recorded.reset(token)


def record_command(*command: str) -> None:
    """Record that `command` is run, a program or a library with its arguments."""
    commands = _recorded.get()
    if commands is not None:
        import shlex  # jobs of builds alone are recorded

        commands.append(shlex.join(command))
