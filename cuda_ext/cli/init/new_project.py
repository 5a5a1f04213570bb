"""The name and the files of a new project, and writing them without touching existing files."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from cuda_ext.cli.terminal import Failure

__all__ = ["Backend", "ProjectName", "render_files", "write_files"]

Backend: TypeAlias = Literal["setuptools", "scikit-build-core", "hatchling"]

# Files by their paths in the project, and their templates.
_COMMON = {
    ".github/workflows/test.yml": "workflow.yml",
    ".gitignore": "gitignore",
    "README.md": "README.md",
    "device/axpy.cu": "axpy.cu",
    "pyproject.toml": "pyproject.toml",
    "src/{package}/__init__.py": "package.py",
    "src/{package}/py.typed": "py.typed",
    "tests/test_axpy.py": "test_axpy.py",
}
_ALSO: Mapping[Backend, Mapping[str, str]] = {"scikit-build-core": {"CMakeLists.txt": "CMakeLists.txt"}}
# Packages that the project imports or that build it.
_USED = frozenset({"cuda", "cuda_ext", "hatchling", "numpy", "pytest", "scikit_build_core", "setuptools"})


@dataclass(frozen=True)
class ProjectName:
    """``my-project`` as a distribution, and ``my_project`` as a package."""

    distribution: str

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")

    @classmethod
    def from_text(cls, text: str) -> ProjectName:
        """Normalize `text`. Raises :class:`Failure` if that gives no usable name.

        >>> ProjectName.from_text("My Project.2")
        ProjectName(distribution='my-project-2')
        """
        name = cls(re.sub(r"[-_.\s]+", "-", text).strip("-").lower())
        if flaw := name._flaw():
            raise Failure(
                f"{text!r} is not a name for a package: {flaw}", remedy="give another one with --name"
            )
        return name

    def _flaw(self) -> str | None:
        if not self.distribution:
            return "it has no letter"
        if invalid := re.search(r"[^a-z0-9-]", self.distribution):
            return f"{invalid[0]!r} is not one of the letters a to z, digits, '-', '_' and '.'"
        if self.distribution[0].isdigit():
            return "it begins with a digit"
        if keyword.iskeyword(self.package):
            return f"{self.package!r} is a keyword of Python"
        if self.package in sys.stdlib_module_names | {"test"}:
            return f"{self.package!r} is a module of the standard library"
        if self.package in _USED:
            return f"{self.package!r} is a package that the project uses"
        return None


def render_files(name: ProjectName, backend: Backend) -> dict[str, str]:
    """The text of each file, by its path in the project."""
    from cuda_ext.builder.rendering import templates

    files = templates("cuda_ext.cli.init")
    context = {"name": name.distribution, "package": name.package, "backend": backend}
    return {
        path.format(package=name.package): files.get_template(f"{template}.j2").render(context)
        for path, template in sorted({**_COMMON, **_ALSO.get(backend, {})}.items())
    }


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write `files`, by their paths in `directory`, which is created if necessary.

    Raises :class:`Failure` if any of them exists or cannot be written; then nothing is changed.
    """
    if directory.exists() and not directory.is_dir():
        raise Failure("is a file", where=str(directory), remedy="name a directory")
    if existing := [name for name in files if os.path.lexists(directory / name)]:
        listed = "".join(f"\n  {directory / name}" for name in existing)
        raise Failure(
            "nothing was written, because these files exist",
            where=str(directory),
            remedy=f"move them, or name another directory:{listed}",
        )
    with ExitStack() as written:
        try:
            for name, text in files.items():
                _write(directory / name, text, written)
        except OSError as error:
            place = error.filename or directory
            raise Failure(f"{error.strerror}", where=str(place), remedy="nothing was written") from None
        written.pop_all()


def _write(path: Path, text: str, undo: ExitStack) -> None:
    """Write one file; `undo` removes it again, with the directories that were created for it."""
    for parent in reversed(path.parents):
        if not parent.exists():
            if parent.is_symlink():
                target = os.readlink(parent)  # noqa: PTH115 - as it was written
                raise Failure(
                    f"is a link to {target}, which does not exist",
                    where=str(parent),
                    remedy="create that, or remove the link; nothing was written",
                )
            parent.mkdir()
            undo.callback(_remove, parent, directory=True)
    with path.open("x", encoding="utf-8", newline="\n") as file:
        undo.callback(_remove, path)
        file.write(text)


def _remove(path: Path, directory: bool = False) -> None:
    with suppress(OSError):
        path.rmdir() if directory else path.unlink()
