"""The files of a project by their names: paths within it, with forward slashes, which no machine changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, eq=False)
class FileTree:
    """The files below ``root``, and those of directories elsewhere.

    ``outside`` has these directories by the first part of the names of their files; one of them may lie in
    ``root``. Files of the names ``generated`` are made by the build, and may not exist yet. All paths are
    absolute and real.
    """

    root: str | Path
    outside: Mapping[str, Path] = field(default_factory=dict)
    generated: frozenset[str] = frozenset()

    def path(self, name: str) -> str:
        """Return the path of the file or directory `name`."""
        first, slash, rest = name.partition("/")
        if first in self.outside:
            return f"{self.outside[first]}{os.sep * bool(slash)}{rest}"
        return f"{self.root}{os.sep}{name}"

    def name(self, path: str) -> str | None:
        """Return the name of the file at `path`; ``None`` if it is none of these files."""
        for first, directory in self.outside.items():
            if path.startswith(f"{directory}{os.sep}"):
                return f"{first}{path.removeprefix(str(directory))}".replace(os.sep, "/")
        inside = f"{self.root}{os.sep}"
        return path.removeprefix(inside).replace(os.sep, "/") if path.startswith(inside) else None
