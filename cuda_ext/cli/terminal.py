"""Shared parts of the commands: their error, the types of their arguments, and output for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import click

from cuda_ext.errors import CudaExtError, escape_controls

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cuda_ext.builder.project import Project


class Failure(CudaExtError):
    """A command cannot do what it was asked to do."""


class _NotEmpty(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4
    """An argument of type ``kind``, but never the empty string.

    An empty string comes from an unset variable of a shell, and would name the current directory as a path.
    """

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; give it a value or leave it out", param, ctx)
        return self.kind.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return self.kind.shell_complete(ctx, param, incomplete)


TEXT = _NotEmpty(click.STRING)
FILE = _NotEmpty(click.Path(dir_okay=False, path_type=Path))
# Files are accepted here, because the commands have better messages for them.
DIRECTORY = _NotEmpty(click.Path(path_type=Path))
NEW_DIRECTORY = _NotEmpty(click.Path(file_okay=False, path_type=Path))


def find_project(directory: Path) -> Project:
    """Return the project whose pyproject.toml is in `directory` and has a ``[tool.cuda_ext]`` table."""
    from cuda_ext.builder.project import Project

    if directory.is_file():
        raise Failure("is a file", where=directory, remedy="name its directory")
    file = directory / "pyproject.toml"
    if not file.is_file():
        problem = "is not a file" if file.exists() else "there is no such file"
        raise Failure(problem, where=file, remedy="name the directory of a project")
    return Project.required(directory)


def shorten_path(path: Path) -> str:
    """`path` relative to the current directory if it lies within it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def echo_json(value: object) -> None:
    """Print `value` for programs; dataclasses are objects with their fields."""
    click.echo(json.dumps(value, indent=2, default=asdict))


class Output:
    """Standard output: its errors name it, and control characters in what is written are escaped."""

    def __init__(self, stream: TextIO, spell: Callable[[str], str] = escape_controls) -> None:
        self._stream = stream
        self._spell = spell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with naming_errors("standard output"):
            return self._stream.write(self._spell(text))

    def flush(self) -> None:
        with naming_errors("standard output"):
            self._stream.flush()

    def unescaped(self) -> Output:
        """Return the same output for one who writes control sequences of his own."""
        return Output(self._stream, str)


def show_line(*parts: str | tuple[str, str]) -> None:
    """Print a line of texts, some of them with a style such as ``bold red``, which only terminals show."""
    output = sys.stdout.unescaped() if isinstance(sys.stdout, Output) else sys.stdout
    texts = (_style(*((part, "") if isinstance(part, str) else part)) for part in parts)
    click.echo(
        "".join(texts), file=cast("IO[str]", output), color=False if os.environ.get("NO_COLOR") else None
    )


def _style(text: str, style: str) -> str:
    words = style.split()
    colour = next((word for word in words if word not in ("bold", "dim")), None)
    text = escape_controls(text)
    weights = {word: True for word in words if word != colour}
    return click.style(text, colour, **weights) if words else text


@contextmanager
def naming_errors(place: Path | str) -> Iterator[None]:
    """Errors of the system name `place`, as those of files name the file."""
    try:
        yield
    except OSError as error:
        error.filename = str(place)
        raise
