"""What arguments and options of several commands take. Nothing takes an empty string.

It comes from a variable of a shell that was not set, and would be the current directory as a path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["DIRECTORY", "FILE", "NEW_DIRECTORY", "TEXT"]


class _NotEmpty(click.ParamType):  # type: ignore[type-arg] # it takes none before click 8.4
    """What ``kind`` takes, but for the empty string."""

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
# What is there may be a file, which the command tells of in its own words.
DIRECTORY = _NotEmpty(click.Path(path_type=Path))
NEW_DIRECTORY = _NotEmpty(click.Path(file_okay=False, path_type=Path))
