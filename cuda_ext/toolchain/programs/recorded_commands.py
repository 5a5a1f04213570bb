"""The commands of a job, as ``cuda-ext build -v`` shows them. Calls of libraries look the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_recorded: ContextVar[list[str] | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded_commands() -> Iterator[list[str]]:
    """Yield a list that receives the commands that this thread runs in the block."""
    commands: list[str] = []
    token = _recorded.set(commands)
    try:
        yield commands
    finally:
        _recorded.reset(token)


def record_command(*command: str) -> None:
    """Record that `command`, a program or a library with its arguments, is run."""
    commands = _recorded.get()
    if commands is not None:
        import shlex  # only jobs of builds are recorded

        commands.append(shlex.join(command))
