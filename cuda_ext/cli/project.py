"""The project that a command is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.cli.failure import Failure

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project

__all__ = ["project_in"]


def project_in(directory: Path) -> Project:
    """The project whose pyproject.toml is in `directory`, and has our table."""
    from cuda_ext.builder.project import Project

    if directory.is_file():
        raise Failure(f"{directory}: is a file; name its directory")
    file = directory / "pyproject.toml"
    if not file.is_file():
        raise Failure(f"{file}: there is no such file; name the directory of a project")
    return Project.required(directory)
