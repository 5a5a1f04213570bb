"""How a command ends that cannot do what it was asked for."""

from __future__ import annotations

from typing import IO, Any

import click

__all__ = ["Failure"]


class Failure(click.ClickException):
    """One message on standard error, and the exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.format_message(), file=file, err=True)
