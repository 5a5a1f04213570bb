"""The project that a command is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.cli.failure import Failure

if TYPE_CHECKING:
    from cuda_ext.build.project import Project

__all__ = ["project_in"]


def project_in(directory: Path) -> Project:
    """The project whose pyproject.toml is in `directory`, and has our table."""
    from cuda_ext.build.project import Project

    file = directory / "pyproject.toml"
    if not file.is_file():
        raise Failure(f"{file}: there is no such file; name the directory of a project")
    project = Project.load(directory)
    if project is None:
        raise Failure(f"{file}: has no [tool.cuda_ext] table; add it: an empty one compiles device/*.cu")
    return project
